"""Save a network to a folder or a Hugging Face repository, and load it.

``config.json`` holds the network's arguments, and ``about``: classes, input and training. The
weights are ``model.safetensors``. ``README.md`` is the model card, generated from ``about``.
"""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import safetensors.torch
from huggingface_hub import ModelCard, ModelHubMixin, hf_hub_download
from huggingface_hub.errors import EntryNotFoundError, HFValidationError, LocalEntryNotFoundError
from safetensors import SafetensorError

from .._atomic import replace_files
from .model_card import card_text
from .saved_arguments import check_arguments, check_backbone_arguments
from .weights import plain_weights

if TYPE_CHECKING:
    from .network import Network

HUB, LOCAL = "hf-hub:", "local-dir:"
SCHEMA = 1
_CONFIG, _WEIGHTS, _CARD = "config.json", "model.safetensors", "README.md"


class HubModel(ModelHubMixin, library_name="isice", pipeline_tag="image-classification", tags=["second-order pooling"]):
    """Methods ``save_pretrained``, ``push_to_hub`` and ``from_pretrained`` of :class:`Network`.

    Attributes:
        about: Metadata saved with the weights: ``classes``, ``input`` (size and normalisation of
            the images) and ``training`` (data, settings and accuracy).
    """

    about: dict[str, Any]

    def save_pretrained(
        self,
        save_directory: str | Path,
        *,
        config: Any = None,
        keep_card: bool = True,
        push_to_hub: bool = False,
        repo_id: str | None = None,
        model_card_kwargs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> str | None:
        """Save config, weights and model card to a folder that :func:`isice.create_model` loads.

        All files are replaced, or, after an error, none.

        Args:
            save_directory: The folder.
            config: Required by huggingface_hub; leave unset.
            keep_card: Keep an existing model card.
            push_to_hub: Also upload the network.
            repo_id: The repository to upload to; by default the name of the folder.
            model_card_kwargs: Arguments of :meth:`generate_model_card`.
            **kwargs: Options of ``push_to_hub``.
        """
        folder, config = Path(save_directory), config or self._shared_config()
        with replace_files(folder) as new:
            super().save_pretrained(new, config=config, model_card_kwargs=model_card_kwargs)
            if keep_card and (folder / _CARD).exists():
                (new / _CARD).unlink()
        if not push_to_hub:
            return None
        options = kwargs | {"config": config, "model_card_kwargs": model_card_kwargs}
        return str(self.push_to_hub(repo_id or folder.name, **options))

    def generate_model_card(self, *args: Any, source: str | None = None, **kwargs: Any) -> ModelCard:
        """Generate the model card; ``source`` is the name for :func:`isice.create_model`."""
        card_data = self._hub_mixin_info.model_card_data
        return ModelCard(f"---\n{card_data.to_yaml()}\n---\n\n{card_text(self._shared_config(), source)}")

    def _shared_config(self) -> dict[str, Any]:
        from .. import __version__

        network = self.config  # type: ignore[attr-defined]
        config = {"library_name": "isice", "schema": SCHEMA, "isice_version": __version__}
        return {**config, "network": network, "about": self.about}

    def _save_pretrained(self, save_directory: Path) -> None:
        weights = plain_weights(self)  # type: ignore[arg-type]
        # Not save_file, which hides the cause of a failed write.
        (save_directory / _WEIGHTS).write_bytes(safetensors.torch.save(weights, metadata={"format": "pt"}))

    @classmethod
    def _from_pretrained(
        cls, *, model_id: str, map_location: Any = "cpu", config: dict[str, Any] | None = None, **download: Any
    ) -> "Network":
        from .create import build_network

        checked = _checked(config, model_id)
        model = build_network(**check_arguments(checked["network"], model_id))
        path = Path(model_id) / _WEIGHTS if Path(model_id).is_dir() else _download(model_id, _WEIGHTS, **download)
        if path is None or not path.is_file():
            raise FileNotFoundError(f"create_model: expected {_WEIGHTS} in {model_id!r}, got none; fetch it again.")
        try:
            model.load_state_dict(safetensors.torch.load_file(path))
        except (SafetensorError, RuntimeError) as error:
            raise ValueError(
                f"create_model: expected weights that fit the network in {model_id!r}, got {_WEIGHTS} with a problem "
                f"({_short(error)}); fetch it again, or use the version of isice that wrote it."
            ) from error
        about = checked.get("about")
        model.about = about if isinstance(about, dict) else {}
        return model.to(map_location).eval()


def find_shared(name: str) -> tuple[str, str | None] | None:
    """Find a shared network: return (folder or repository, revision), or None if it is a backbone.

    A network has a name ``"hf-hub:owner/name"``, optionally with ``"@revision"``,
    ``"local-dir:folder"``, or a path that begins with ``.``, ``/`` or ``~``. In the format of timm
    these are backbones, too.
    """
    if local_folder(name) is None and not name.startswith(HUB):
        return None
    place, revision, config = _read_source(name)
    if not isinstance(config, dict) or config.get("library_name") != "isice":
        return None
    return place, revision


def timm_arguments(name: str) -> dict[str, Any]:
    """Return the architecture (``name``) and arguments in a config of timm, after checking them."""
    config = _read_source(name)[2]
    if not isinstance(config, dict):
        raise ValueError(f"create_model: expected a config of timm in {name!r}, got another or none; check the name.")
    return check_backbone_arguments(config, name)


def local_folder(name: str) -> Path | None:
    """Return the folder that a name refers to, or None if it is not a path.

    Example:
        >>> local_folder("local-dir:shared/birds").as_posix(), local_folder("hf-hub:owner/birds")
        ('shared/birds', None)
    """
    if name.startswith((LOCAL, ".", "/", "~")):
        return Path(name.removeprefix(LOCAL)).expanduser()
    return None


def _read_source(name: str) -> tuple[str, str | None, Any]:
    """Return the folder or repository of a name, its revision, and its config, None without one."""
    folder = local_folder(name)
    if folder is not None:
        if not folder.is_dir():
            raise FileNotFoundError(f"create_model: expected a folder at {str(folder)!r}, got none; check the path.")
        return str(folder), None, _read_config(folder / _CONFIG)
    repo, _, revision = name.removeprefix(HUB).partition("@")
    path = _download(repo, _CONFIG, revision=revision or None)
    return repo, revision or None, None if path is None else _read_config(path)


def _download(repo: str, file: str, **options: Any) -> Path | None:
    """Download a file of a repository and return its path, or None if the repository lacks it."""
    try:
        return Path(hf_hub_download(repo, file, **options))
    except (EntryNotFoundError, HFValidationError, OSError) as error:
        # LocalEntryNotFoundError (no network, not cached) is a subclass of EntryNotFoundError.
        if isinstance(error, EntryNotFoundError) and not isinstance(error, LocalEntryNotFoundError):
            return None
        raise OSError(
            f"create_model: expected to read {file} of the repository {repo!r}, but it could not be downloaded "
            f"({type(error).__name__}: {_short(error)}); check the name, your connection and access, "
            f"or pass a local copy as {LOCAL}PATH."
        ) from error


def _short(error: Exception) -> str:
    return " ".join(str(error).split())[:300]


def _read_config(path: Path) -> Any:
    if not path.is_file():
        hint = "; this is a run folder: share it with isice push, or load it with load_trained"
        raise FileNotFoundError(
            f"create_model: expected {_CONFIG} in {str(path.parent)!r}, got none"
            f"{hint if (path.parent / 'checkpoints').is_dir() else '; it is not the folder of a shared model'}."
        )
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(
            f"create_model: expected JSON in {str(path)!r}, got something else ({error}); save it again."
        ) from None


def _checked(config: Any, where: str) -> dict[str, Any]:
    """Return the config if it is one of isice in a known format."""
    if not isinstance(config, dict) or config.get("library_name") != "isice":
        raise ValueError(
            f"create_model: expected a model shared by isice in {where!r}, got another or none; check the name."
        )
    if config.get("schema") != SCHEMA or not isinstance(config.get("network"), dict):
        raise ValueError(
            f"create_model: expected {_CONFIG} of format {SCHEMA} in {where!r}, got {config.get('schema')!r}; "
            f"use isice {config.get('isice_version')}, which wrote it."
        )
    return config
