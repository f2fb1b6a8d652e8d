"""Explain trained networks: heat maps, class activation maps, channel graphs, spectra, sparsity."""

from ..explanations import ChannelGraph
from .graph import channel_graphs, partial_correlations
from .maps import class_maps, mean_maps
from .runs import explain_runs, explain_samples
from .structure import Structure, isice_before_after, structure

__all__ = [
    "ChannelGraph",
    "Structure",
    "channel_graphs",
    "class_maps",
    "explain_runs",
    "explain_samples",
    "isice_before_after",
    "mean_maps",
    "partial_correlations",
    "structure",
]
