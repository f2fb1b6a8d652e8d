"""Pooling layers: (B, C, H, W) → (B, out_features). Each file defines one method."""

from ._base import Pooling, SPDPooling
from ._registry import create_pooling, list_poolings, pooling_class, register_pooling

__all__ = ["Pooling", "SPDPooling", "create_pooling", "list_poolings", "pooling_class", "register_pooling"]
