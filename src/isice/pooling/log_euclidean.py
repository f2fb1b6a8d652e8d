"""Log-Euclidean pooling: the matrix logarithm of the covariance."""

from torch import Tensor

from .._checks import check_number
from ..ops._linalg import add_diagonal
from ..ops.spectral import matrix_log
from . import SPDPooling, register_pooling


@register_pooling
class LogEuclidean(SPDPooling):
    """Log-Euclidean pooling: log(Σ + εI), which maps covariances to a vector space.

    Args:
        eps: Ridge ε, a lower bound of the eigenvalues.

    Example:
        >>> LogEuclidean(8)(torch.rand(2, 8, 7, 7)).shape
        torch.Size([2, 36])
    """

    reference = (
        "Ionescu, Vantzos, Sminchisescu: Matrix Backpropagation for Deep Networks with Structured Layers, ICCV 2015; "
        "metric: Arsigny et al., 2006"
    )
    fidelity = "reconstructed"
    evidence = "the formula in the paper; the matrix exponential undoes it in tests/pooling/test_log_euclidean.py"
    assumed = "centred covariance; ε = 1e-3 absolute; upper triangle without √2 weights"

    def __init__(self, in_channels: int, *, eps: float = 1e-3) -> None:
        super().__init__(in_channels)
        check_number(self.name, "eps", eps, strict=True)
        self.eps = eps

    def transform(self, cov: Tensor) -> Tensor:
        return matrix_log(add_diagonal(cov, self.eps))
