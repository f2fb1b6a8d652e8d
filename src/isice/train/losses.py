"""The training loss of a batch whose images may carry two labels."""

from torch import Tensor
from torch.nn.functional import cross_entropy

from ..data.augmentation import Mixed


def classification_loss(logits: Tensor, batch: Mixed, *, label_smoothing: float = 0.0) -> Tensor:
    """Cross-entropy in float32; for mixed images the weighted mean over both labels.

    Example:
        >>> batch = Mixed(torch.zeros(2, 1), torch.tensor([0, 1]), torch.tensor([1, 0]), 0.25)
        >>> classification_loss(torch.zeros(2, 2), batch)
        tensor(0.6931)
    """
    logits = logits.float()
    loss = cross_entropy(logits, batch.target, label_smoothing=label_smoothing)
    if batch.other is None:
        return loss
    return batch.weight * loss + (1.0 - batch.weight) * cross_entropy(
        logits, batch.other, label_smoothing=label_smoothing
    )
