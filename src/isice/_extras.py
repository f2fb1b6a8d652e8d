"""Optional packages, and the extra of pyproject.toml that installs each."""

# Import names, per extra. A package in several extras belongs to the first.
EXTRAS = {
    "train": (
        "torchvision",
        "PIL",
        "sklearn",
        "lightning_fabric",
        "tensorboard",
        "huggingface_hub",
        "rich",
        "typer",
    ),
    "sklearn": ("sklearn",),
    "report": ("matplotlib", "jinja2", "rich"),
    "export": ("onnx", "onnxscript", "onnxruntime"),
}


def missing_package(error: ModuleNotFoundError) -> str | None:
    """Return a message with the extra that installs a missing package, or None for others.

    Example:
        >>> missing_package(ModuleNotFoundError(name="matplotlib.pyplot")).split("; ")[1]
        "run pip install 'isice[report]'."
    """
    package = (error.name or "").split(".")[0]
    for extra, packages in EXTRAS.items():
        if package in packages:
            return f"isice: expected the package {package!r}, which is not installed; run pip install 'isice[{extra}]'."
    return None
