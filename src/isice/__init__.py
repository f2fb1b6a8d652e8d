"""Partial-correlation and other second-order representations for PyTorch."""

__version__ = "0.1.0"
