"""The text of a model card, generated from recorded facts only."""

from collections.abc import Mapping
from typing import Any

from .._markup import code_span, escape_markdown


def card_text(config: Mapping[str, Any], source: str | None = None) -> str:
    """Return the model card as Markdown, from the ``network`` and ``about`` of a shared config."""
    network, about = config["network"], config["about"]
    reduce = f"reduced to {network['reduce']} channels" if network["reduce"] else "without channel reduction"
    sections = [
        f"# {escape_markdown(network['name'])}, {escape_markdown(network['pooling'])}, "
        f"{network['num_classes']} classes",
        f"An image classifier made with isice: the features of {code_span(network['name'])}, {reduce}, pooled by "
        f"{code_span(network['pooling'])}, then a linear classifier.",
        _use(source or "local-dir:FOLDER", network, about.get("input")),
        _training(about.get("training")),
    ]
    return "\n\n".join(sections) + "\n"


def _use(source: str, network: Mapping[str, Any], images: Mapping[str, Any] | None) -> str:
    lines = ["## Use", "", "```python", "import isice", "", f'model = isice.create_model("{source}")']
    lines += ["logits = model(images)", 'names = model.about["classes"]', "```", ""]
    shape = f"(B, {network['in_chans']}, H, W)"
    if images is None:
        return "\n".join([*lines, f"`images` are {shape}; their size and normalisation are not recorded."])
    scaled = "values in [0, 1]"
    if images.get("mean") is not None:
        scaled += f", minus {format_numbers(images['mean'])}, divided by {format_numbers(images['std'])} per channel"
    return "\n".join(
        [*lines, f"`images` are {shape} of {images['image_size']}×{images['image_size']} pixels, {scaled}."]
    )


def _training(facts: Mapping[str, Any] | None) -> str:
    if not facts:
        return "## Training\n\nNothing is recorded about where the weights come from."
    accuracy = facts.get("accuracy", {})
    rows = {
        "data": facts.get("data"),
        "images": ", ".join(f"{split} {count:,}" for split, count in facts.get("images", {}).items()),
        **{f"top-1 accuracy, {split}": f"{value:.2%}" for split, value in accuracy.items()},
        "epoch of these weights": facts.get("epoch"),
        "epoch chosen on": facts.get("chosen_on"),
        "seed": facts.get("seed"),
        "precision": facts.get("precision"),
        "computed on": facts.get("hardware"),
        "commit": facts.get("commit"),
        "versions": ", ".join(f"{name} {version}" for name, version in facts.get("versions", {}).items()),
        "config hash": facts.get("hash"),
    }
    table = [
        f"| {name} | {'not recorded' if value in (None, '') else escape_markdown(str(value))} |"
        for name, value in rows.items()
    ]
    seed = [] if facts.get("seed") is None else ["", "One run with one seed."]
    notes = [] if accuracy else ["", "No accuracy is recorded for these weights."]
    return "\n".join(["## Training", "", "| | |", "|---|---|", *table, *notes, *seed])


def format_numbers(values: Any) -> str:
    """Return numbers as a tuple in a text."""
    return "(" + ", ".join(f"{value:g}" for value in values) + ")"
