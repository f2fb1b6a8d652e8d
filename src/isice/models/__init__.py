"""Models: a timm backbone and a head of channel reduction, pooling and classifier."""

from .backbone import PAPER_BACKBONES, Backbone, create_backbone
from .classifier import Classifier, create_classifier
from .create import attach, create_model
from .identity import Identity
from .initialization import initialize
from .network import Network
from .reduce import Reduce
from .small_cnn import SmallCNN
from .weights import LoadReport, load_weights, read_state_dict

__all__ = [
    "PAPER_BACKBONES",
    "Backbone",
    "Classifier",
    "Identity",
    "LoadReport",
    "Network",
    "Reduce",
    "SmallCNN",
    "attach",
    "create_backbone",
    "create_classifier",
    "create_model",
    "initialize",
    "load_weights",
    "read_state_dict",
]
