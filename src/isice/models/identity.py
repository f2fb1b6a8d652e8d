"""② A backbone without layers: the pooling acts on the channels of the images themselves."""

from typing import Any

from torch import Tensor, nn

from .._checks import check_images, check_int


class Identity(nn.Module):
    """Return images (B, in_chans, H, W) as they are, to compare poolings without a network.

    Args:
        in_chans: Channels of the images.

    Example:
        >>> Identity(in_chans=12)(torch.rand(2, 12, 14, 14)).shape
        torch.Size([2, 12, 14, 14])
    """

    name = "identity"

    def __init__(self, in_chans: int = 3) -> None:
        super().__init__()
        check_int(self.name, "in_chans", in_chans, minimum=1)
        self.in_chans = self.out_channels = in_chans
        self.config: dict[str, Any] = {"name": self.name, "in_chans": in_chans, "img_size": None}

    def forward(self, x: Tensor) -> Tensor:
        """Check and return the images."""
        check_images(self.name, x, self.in_chans)
        return x
