"""Plain covariance pooling: second-order statistics without any normalisation."""

from torch import Tensor

from . import SPDPooling, register_pooling


@register_pooling
class Covariance(SPDPooling):
    """Covariance pooling: the upper triangle of the covariance matrix, without normalisation.

    Example:
        >>> Covariance(8)(torch.rand(2, 8, 7, 7)).shape
        torch.Size([2, 36])
    """

    reference = "Tuzel, Porikli, Meer: Region Covariance, ECCV 2006"
    fidelity = "verified"
    evidence = "the covariance step of jiangtaoxie/fast-MPN-COV; numpy.cov in tests/ops/test_covariance.py"

    @property
    def needs_positions(self) -> bool:
        return False

    def transform(self, cov: Tensor) -> Tensor:
        return cov
