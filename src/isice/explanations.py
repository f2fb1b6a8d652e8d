"""Explanations of images, which ``isice.explain`` computes and ``isice.report`` draws; no torch."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class ChannelGraph:
    """The channel pairs of one image with the largest partial correlations.

    Attributes:
        partial_correlation: All partial correlations (C, C), with a unit diagonal.
        pairs: Channel pairs (P, 2), sorted by decreasing absolute partial correlation.
        strengths: Their partial correlations (P,).
        activations: Activation maps (P, 2, H, W) of the channels, each divided by its maximum.
    """

    partial_correlation: np.ndarray
    pairs: np.ndarray
    strengths: np.ndarray
    activations: np.ndarray

    @property
    def regions(self) -> np.ndarray:
        """Return where both channels of a pair are active (P, H, W), as their minimum."""
        return np.asarray(self.activations.min(axis=1))


@dataclass(frozen=True)
class Explanation:
    """The explanation of one image by one network."""

    target: str  # the class whose map is shown
    probability: float  # its predicted probability
    predicted: str
    heat: np.ndarray  # mean of the last feature maps (H, W)
    class_map: np.ndarray  # contributions to the score of the class (H, W)
    graph: ChannelGraph


@dataclass(frozen=True)
class ExplainedImage:
    """An image and its explanations."""

    name: str  # in file names
    title: str  # in headings and captions
    picture: np.ndarray  # pixels (H, W, 3) in [0, 1]
    explanations: Mapping[str, Explanation]  # label of the network → its explanation
