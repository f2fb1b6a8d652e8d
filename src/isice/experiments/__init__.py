"""Experiments: a TOML file describes a grid of runs. Importing this package does not load torch."""
