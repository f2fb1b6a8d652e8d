"""The small backbone keeps the positions of tiny images."""

import pytest
import torch

from isice.models import SmallCNN


@pytest.mark.parametrize("in_chans", [1, 3])
def test_every_position_stays(in_chans):
    backbone = SmallCNN(in_chans=in_chans)
    assert backbone(torch.rand(2, in_chans, 8, 6)).shape == (2, 64, 8, 6)
    assert backbone.out_channels == 64


def test_widths_are_the_blocks():
    backbone = SmallCNN(in_chans=1, widths=[4, 6])
    assert backbone(torch.rand(2, 1, 8, 8)).shape == (2, 6, 8, 8)
    assert backbone.config["widths"] == (4, 6)


def test_wrong_images_are_named():
    with pytest.raises(ValueError, match=r"small_cnn: expected images \(B, 3, H, W\), got \(2, 1, 8, 8\)"):
        SmallCNN()(torch.rand(2, 1, 8, 8))
