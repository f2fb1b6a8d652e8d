"""``isice doctor``: versions, hardware and missing packages."""

import os
from importlib.util import find_spec

import typer

from .._extras import EXTRAS
from ._app import app, console, facts_table, tell

# Import names of the required packages of pyproject.toml.
REQUIRED = ("torch", "timm", "numpy", "safetensors")


@app.command()
def doctor() -> None:
    """Show versions, device, threads, GPU kernels and optional extras, and what is missing.

    Exits with 1 if a required package is missing. A missing extra is reported, not fatal.
    """
    import torch

    from ..records import commit, versions
    from ..train.hardware import hardware

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    facts = {**versions(), "commit": commit() or "not a checkout", **hardware(device)}
    facts["GPU kernels"] = _kernels()
    facts["weights cache"] = os.environ.get("HF_HOME", "default of huggingface_hub")
    for name, packages in EXTRAS.items():
        absent = [package for package in packages if find_spec(package) is None]
        facts[f"extra {name}"] = f"without {', '.join(absent)}: pip install 'isice[{name}]'" if absent else "installed"
    console.print(facts_table(facts.items()))
    missing = [name for name in REQUIRED if find_spec(name) is None]
    for name in missing:
        tell(f"missing: {name}; reinstall with pip install isice", style="yellow")
    if missing:
        raise typer.Exit(1)
    tell("Nothing is missing.", style="green")


def _kernels() -> str:
    from ..kernels.schedule import MAX_STEPS
    from ..ops._dispatch import MAX_SIZE, kernel_precision, kernels_missing

    reason = kernels_missing()
    if reason:
        return f"not used: {reason}; PyTorch is used instead"
    import torch

    from ..kernels.newton_schulz import uses_hopper_kernel

    try:
        has_hopper = uses_hopper_kernel(torch.device("cuda"), kernel_precision())
    except Exception as error:  # compiler passes raise errors of many types
        return f"do not compile ({type(error).__name__}: {error}); check that Triton finds a C compiler"
    which = "Hopper kernels above 64 channels" if has_hopper else "generic kernels"
    limits = f"8 to {MAX_SIZE} channels and up to {MAX_STEPS} Newton-Schulz steps"
    return f"used for float32, {limits} ({which}, precision {kernel_precision()}); PyTorch otherwise"
