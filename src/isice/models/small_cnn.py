"""② A small convolutional backbone for tiny images, such as 8×8 digits."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from torch import Tensor, nn

from .._checks import check_images, check_int


class SmallCNN(nn.Sequential):
    """Blocks of 3×3 convolution, BatchNorm and ReLU: (B, in_chans, H, W) → (B, 64, H, W).

    The stride is 1, so an 8×8 image keeps 64 positions for second-order pooling.

    Args:
        in_chans: Channels of the images.
        widths: Output channels of the blocks.

    Example:
        >>> SmallCNN(in_chans=1)(torch.rand(2, 1, 8, 8)).shape
        torch.Size([2, 64, 8, 8])
    """

    name = "small_cnn"

    def __init__(self, in_chans: int = 3, widths: Sequence[int] = (32, 64, 64)) -> None:
        check_int(self.name, "in_chans", in_chans, minimum=1)
        if not isinstance(widths, Sequence) or not widths:
            raise ValueError(f"{self.name}: expected at least one block, such as widths=(32,), got widths={widths!r}.")
        widths = tuple(widths)
        for width in widths:
            check_int(self.name, "widths", width, minimum=1)
        super().__init__(*(_block(before, after) for before, after in pairwise((in_chans, *widths))))
        self.in_chans = in_chans
        self.config: dict[str, Any] = {"name": self.name, "in_chans": in_chans, "img_size": None, "widths": widths}
        self.out_channels = widths[-1]

    def forward(self, x: Tensor) -> Tensor:
        """Map images (B, in_chans, H, W) to features (B, out_channels, H, W)."""
        check_images(self.name, x, self.in_chans)
        for block in self:
            x = block(x)
        return x


def _block(in_channels: int, out_channels: int) -> nn.Sequential:
    conv = nn.Conv2d(in_channels, out_channels, kernel_size=3, padding=1, bias=False)
    nn.init.kaiming_normal_(conv.weight, mode="fan_out", nonlinearity="relu")
    return nn.Sequential(conv, nn.BatchNorm2d(out_channels), nn.ReLU(inplace=True))
