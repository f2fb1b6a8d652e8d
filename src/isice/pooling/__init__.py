"""Pooling layers: (B, C, H, W) → (B, out_features). One file is one published method, found by its file name."""

from ._base import Pooling, SPDPooling
from ._registry import create_pooling, list_poolings, pooling_class, register_pooling

__all__ = ["Pooling", "SPDPooling", "create_pooling", "list_poolings", "pooling_class", "register_pooling"]
