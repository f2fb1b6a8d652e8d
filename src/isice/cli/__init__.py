"""The ``isice`` command: parse, call, print. Every command has a Python equivalent."""

from ._app import app, main

# isort: off
from . import (
    lists,
    training,
    use,
    experiments,
    reports,
    explain,
    bench,
    doctor,
)  # help shows the commands in this order

__all__ = ["app", "bench", "doctor", "experiments", "explain", "lists", "main", "reports", "training", "use"]
