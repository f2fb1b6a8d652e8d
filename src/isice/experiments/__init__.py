"""Experiments as data: a TOML file is a grid of runs. Nothing is imported here, so that reports never load torch."""
