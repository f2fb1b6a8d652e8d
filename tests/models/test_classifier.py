"""The classifier: linear, in float32 under autocast, omitted for poolings that return logits."""

import torch
from torch import nn

from isice.models import Classifier, create_classifier
from isice.pooling import Pooling, create_pooling


class Logits(Pooling):
    needs_num_classes = True
    out_features = 3


def test_linear_on_the_pooled_vector():
    classifier = create_classifier(create_pooling("gap", 8), 3)
    x = torch.rand(2, 8)
    torch.testing.assert_close(classifier(x), x @ classifier.weight.T + classifier.bias)


def test_identity_when_there_is_nothing_to_classify():
    assert isinstance(create_classifier(create_pooling("gap", 8), 0), nn.Identity)
    assert isinstance(create_classifier(Logits(8), 3), nn.Identity)


def test_autocast_does_not_round():
    classifier, x = Classifier(64, 3), 1e-4 * torch.rand(2, 64)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(classifier(x), classifier.float()(x))
        assert classifier(x).dtype == torch.float32
    torch.testing.assert_close(classifier(x), x @ classifier.weight.T + classifier.bias)
