"""What a cell of an experiment does: trains, measures, estimates, looks up. Every job leaves a record in its folder."""

from .job import run_job

__all__ = ["run_job"]
