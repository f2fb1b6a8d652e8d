"""The command line: parse, call, print. Everything it does can be done from Python too."""

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
