"""The reduction: 1×1 convolution without bias, BatchNorm, ReLU; Kaiming fan-out weights."""

import pytest
import torch
from torch import nn

from isice.models import Reduce


def test_is_conv_batchnorm_relu():
    reduce = Reduce(6, 4).eval()
    x = torch.randn(2, 6, 3, 5)
    mixed = torch.einsum("oc,bchw->bohw", reduce[0].weight[:, :, 0, 0], x)
    expected = (mixed / (1 + reduce[1].eps) ** 0.5).clamp(min=0)
    torch.testing.assert_close(reduce(x), expected)
    assert [type(part) for part in reduce] == [nn.Conv2d, nn.BatchNorm2d, nn.ReLU]
    assert reduce[0].bias is None


def test_weights_have_the_fan_out_scale():
    torch.manual_seed(0)
    weight = Reduce(2048, 128)[0].weight
    assert weight.std().item() == pytest.approx((2 / 128) ** 0.5, rel=0.02)


def test_channels_are_checked():
    with pytest.raises(ValueError, match="reduce: expected reduce ≥ 1, got 0"):
        Reduce(8, 0)
