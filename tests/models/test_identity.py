"""The backbone without layers."""

import pytest
import torch

import isice
from isice.models import Identity


def test_the_pooling_sees_the_images():
    model = isice.create_model("identity", pooling="covariance", num_classes=3, reduce=None, in_chans=4)
    images = torch.rand(2, 4, 6, 6)
    assert torch.equal(model.forward_features(images), images)
    assert model.config["name"] == "identity"
    assert sum(parameter.numel() for parameter in model.backbone.parameters()) == 0


def test_other_channels_are_an_error():
    with pytest.raises(ValueError, match=r"expected images \(B, 4, H, W\), got \(2, 3, 6, 6\)"):
        Identity(4)(torch.rand(2, 3, 6, 6))
