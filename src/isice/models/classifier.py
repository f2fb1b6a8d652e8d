"""⑦ The linear classifier on the pooled vector."""

import torch
from torch import Tensor, nn

from ..pooling import Pooling


class Classifier(nn.Linear):
    """A linear layer that computes in the dtype of its weight (float32), also under autocast.

    The entries of a normalised matrix are small, and a 16-bit product would lose their precision.

    Example:
        >>> Classifier(8, 3)(torch.rand(2, 8)).shape
        torch.Size([2, 3])
    """

    def forward(self, x: Tensor) -> Tensor:
        """Map vectors (B, in_features) to logits (B, out_features)."""
        with torch.autocast(x.device.type, enabled=False):
            return super().forward(x.to(self.weight.dtype))


def create_classifier(pooling: Pooling, num_classes: int) -> nn.Module:
    """Create the classifier: the identity if the pooling returns logits or ``num_classes`` is 0."""
    if pooling.needs_num_classes or num_classes == 0:
        return nn.Identity()
    return Classifier(pooling.out_features, num_classes)
