"""Push the network of a run to the Hugging Face Hub, or write the same files to a folder."""

from pathlib import Path
from typing import Any

from huggingface_hub.errors import HFValidationError

from ..config import config_hash, to_dict
from ..models import Network
from ..models.hub import LOCAL, local_folder
from ..train import Trained, load_trained
from .predict import input_facts


def push_run(folder: str | Path, repo: str, *, which: str = "best", private: bool = False) -> str:
    """Push the network of a run with a model card made from its record.

    Args:
        folder: The run folder.
        repo: ``"owner/name"`` on the Hub, or ``"./folder"``, ``"/folder"``, ``"local-dir:folder"``.
        which: The checkpoint, ``"best"`` or ``"last"``.
        private: Make a new repository private.

    Returns:
        The URL of the commit, or the folder.
    """
    trained = load_trained(folder, which)
    trained.model.about = {
        "classes": list(trained.classes),
        "input": input_facts(trained.config.data),
        "training": training_facts(trained),
    }
    place = local_folder(repo)
    if place is not None:
        trained.model.save_pretrained(place, keep_card=False, model_card_kwargs={"source": f"{LOCAL}{place}"})
        return str(place)
    return _push(trained.model, repo, private)


def training_facts(trained: Trained) -> dict[str, Any]:
    """Return what the record says about the weights, without local paths."""
    record, config = trained.record, to_dict(trained.config)
    config["data"]["root"] = config["model"]["checkpoint_path"] = None
    reported = record.get("reported_epoch", {})
    # The record has the accuracy of the reported epoch only.
    accuracy = record.get("accuracy", {}) if reported.get("epoch") == trained.epoch else {}
    hardware = record.get("hardware", {})
    return {
        "data": trained.config.data.name,
        "images": record.get("images", {}),
        "accuracy": accuracy,
        "epoch": trained.epoch,
        "chosen_on": reported.get("chosen_on"),
        "seed": trained.config.seed,
        "precision": trained.config.precision,
        "hardware": hardware.get("gpu", hardware.get("cpu")),
        "commit": record.get("commit"),
        "versions": record.get("versions", {}),
        "hash": config_hash(trained.config),
        "config": config,
    }


def _push(model: Network, repo: str, private: bool) -> str:
    try:
        return str(model.push_to_hub(repo, private=private or None, model_card_kwargs={"source": f"hf-hub:{repo}"}))
    except HFValidationError:
        raise ValueError(
            f"push: expected a repository like owner/name, got {repo!r}; write ./{repo} to save to a folder."
        ) from None
    except OSError as error:
        raise OSError(
            f"push: expected to upload to {repo!r}, but the Hub refused or could not be reached "
            f"({type(error).__name__}: {' '.join(str(error).split())[:300]}); log in with hf auth login, "
            f"or save to a folder with isice push RUN ./FOLDER."
        ) from error
