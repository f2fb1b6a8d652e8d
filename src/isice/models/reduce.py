"""③ Channel reduction before second-order pooling, whose output grows with C²."""

from torch import nn

from .._checks import check_int


class Reduce(nn.Sequential):
    """1×1 convolution without bias, BatchNorm and ReLU (the paper reduces to 256 channels).

    Args:
        in_channels: Channels of the backbone.
        out_channels: Channels of the pooling.

    Example:
        >>> Reduce(64, 16)(torch.rand(2, 64, 7, 7)).shape
        torch.Size([2, 16, 7, 7])
    """

    def __init__(self, in_channels: int, out_channels: int) -> None:
        check_int("reduce", "in_channels", in_channels, minimum=1)
        check_int("reduce", "reduce", out_channels, minimum=1)
        conv = nn.Conv2d(in_channels, out_channels, kernel_size=1, bias=False)
        nn.init.kaiming_normal_(conv.weight, mode="fan_out", nonlinearity="relu")
        super().__init__(conv, nn.BatchNorm2d(out_channels), nn.ReLU(inplace=True))
        self.out_channels = out_channels
