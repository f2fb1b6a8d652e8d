"""The graphical lasso of a standardized batch: components apart, float32 as far as it goes, float64, Newton."""

import itertools

import torch
from torch import Tensor

from .admm import Solution, admm
from .certificate import duality_gap, duality_gap_and_inverse, in_parts, inverse_where_positive
from .polish import polish
from .screening import blocks_by_size, component_labels
from .start import Start, cold_start, warm_start

POLISH_BELOW = 1e-9  # relative gaps below which Newton on the support is quicker than more ADMM
SINGLE_PRECISION_LIMIT = 1e-5  # relative gaps that float32 iterates cannot certify
ROUGH_LIMIT = 3e-6  # relative gaps to which float32 prepares what float64 ends, where Θ-steps are roots from scratch
SINGLE_PRECISION_ITER = 100  # iterations in float32 after which the rest is done in float64
IN_CACHE = 2**17  # entries of the part of a batch that a CPU works on at a time
BEYOND = 1e60  # times any number of float32 but zero is beyond every bound
INVERSE_ERROR = 1e-3  # ‖I − ΘW‖_F above which the inverse is not left to products

Outputs = tuple[Tensor, Tensor, Tensor, Tensor]


def solve_by_blocks(cov: Tensor, penalty: Tensor, tol: float, max_iter: int, init: Tensor | None, root: str) -> Outputs:
    """Precision, covariance, gap and iterations; each connected component is solved on its own.

    Most matrices have one component, and then nothing is copied.
    """
    batch, size, _ = cov.shape
    if batch == 0:
        return cov.clone(), cov.clone(), cov.new_zeros(0, dtype=torch.float64), cov.new_zeros(0, dtype=torch.int64)
    labels = component_labels(cov, penalty)
    if not bool(labels.any()):
        count = torch.full((batch,), size, device=cov.device)
        return _solve_connected(cov, penalty, count, tol, max_iter, init, root)
    precision = torch.eye(size, dtype=cov.dtype, device=cov.device).repeat(batch, 1, 1)
    covariance = precision.clone()
    gap = torch.zeros(batch, dtype=torch.float64, device=cov.device)
    n_iter = torch.zeros(batch, dtype=torch.int64, device=cov.device)
    half = cov.numel() // 2  # the working memory of so many entries is as much as there may be beside the rest
    for blocks in itertools.chain.from_iterable(blocks.parts(half) for blocks in blocks_by_size(labels)):
        first = None if init is None else blocks.gather(init, 1.0)
        parts = _solve_connected(
            blocks.gather(cov, 1.0), blocks.gather(penalty, 0.0), blocks.n_real, tol, max_iter, first, root
        )
        blocks.scatter_(precision, parts[0])
        blocks.scatter_(covariance, parts[1])
        gap.index_add_(0, blocks.owner, parts[2])
        n_iter.scatter_reduce_(0, blocks.owner, parts[3], "amax")
    return precision, covariance, gap, n_iter


def _solve_connected(
    cov: Tensor, penalty: Tensor, count: Tensor, tol: float, max_iter: int, init: Tensor | None, root: str
) -> Outputs:
    """ADMM to a gap of ``tol`` per variable, or, where it is slow, ADMM as far as it is quick and Newton from there."""
    if not bool(penalty.any()):
        return _plain_inverse(cov)
    bound, quick = tol * count.double(), max(tol, POLISH_BELOW) * count.double()
    single = cov.dtype == torch.float32
    inverse = None
    if single or (root == "auto" and (cov.is_cuda or _by_corrections(cov, root))):
        # Corrections lose nothing to cancellation: float32 goes all the way, and float64 only proves it.
        limit = SINGLE_PRECISION_LIMIT if single else POLISH_BELOW if _by_corrections(cov, root) else ROUGH_LIMIT
        first, inverse = _in_single_precision(cov, penalty, max(tol, limit) * count.double(), max_iter, init, root)
        solution = _in_double_precision(cov, penalty, quick, max_iter, root, first)
        inverse = inverse if solution is first else None
    else:
        solution = admm(
            cov, penalty, quick, _start(cov, penalty, init), max_iter=max_iter, newton_schulz=_by_products(cov, root)
        )
    if not single and tol < POLISH_BELOW:
        solution, inverse = polish(cov, penalty, solution), None
        if bool((solution.gap > bound).any()):  # the polish met the wrong support
            more = _in_double_precision(cov, penalty, bound, 2 * max_iter, root, solution)
            solution = polish(cov, penalty, more)
    inverse = _inverse(solution, root) if inverse is None else inverse
    return solution.precision, inverse, solution.gap, solution.n_iter


def _by_products(cov: Tensor, root: str) -> bool:
    """Whether the Θ-step is quicker by products than by eigenvalues; measured."""
    if root != "auto":
        return root == "newton_schulz"
    return cov.is_cuda or 32 < cov.shape[-1] <= (128 if cov.dtype == torch.float64 else 512)


def _by_corrections(cov: Tensor, root: str) -> bool:
    """Whether a Θ-step begins with the one before; on CUDA the many small operations take the time."""
    return root == "auto" and not cov.is_cuda and cov.shape[-1] > 16


def _start(cov: Tensor, penalty: Tensor, init: Tensor | None) -> Start:
    if init is None:
        return cold_start(cov, penalty, by_factors=not cov.is_cuda)
    return warm_start(cov, penalty, init)


def _in_single_precision(
    cov: Tensor, penalty: Tensor, bound: Tensor, max_iter: int, init: Tensor | None, root: str
) -> tuple[Solution, Tensor | None]:
    """ADMM in float32 as far as that goes, with the gap of the problem as it was given, and perhaps the inverse."""
    native = cov.dtype == torch.float32
    limit = bound if native else 0.95 * bound  # the estimate is to decide, and a little off
    size = max(1, IN_CACHE // cov[0].numel()) if _by_corrections(cov, root) else len(cov)
    inits = itertools.repeat(None) if init is None else init.float().split(size)
    parts = [
        admm(
            part_cov,
            part_penalty,
            part_limit,
            _start(part_cov, part_penalty, part_init),
            max_iter=min(max_iter, SINGLE_PRECISION_ITER),
            newton_schulz=_by_products(part_cov, root),
            correct=_by_corrections(part_cov, root),
            give_up=True,
            certify=native,
        )
        for part_cov, part_penalty, part_limit, part_init in zip(
            cov.float().split(size), penalty.float().split(size), limit.split(size), inits, strict=False
        )
    ]
    solution = parts[0] if len(parts) == 1 else Solution(*(torch.cat(tensors) for tensors in zip(*parts, strict=True)))
    if native:
        return solution, None
    precision = solution.precision.double()
    # Where Z is not zero the dual is at its bound, which need not be a number of float32.
    dual = solution.dual.double().sub_(cov).add_(precision, alpha=BEYOND).clamp_(-penalty, penalty).add_(cov)
    if cov.is_cuda:
        gap, inverse = duality_gap(cov, penalty, precision, dual), None
    else:
        gap, inverse = duality_gap_and_inverse(cov, penalty, precision, dual)
    return Solution(precision, dual, gap, solution.n_iter, solution.rho.double()), inverse


def _in_double_precision(
    cov: Tensor, penalty: Tensor, bound: Tensor, max_iter: int, root: str, solution: Solution
) -> Solution:
    """ADMM in float64, from where it stands, for the matrices that are still open; a part of the batch at a time."""
    still_open = (solution.gap > bound) & (solution.n_iter < max_iter)
    if not bool(still_open.any()):
        return solution
    merged = Solution(*(tensor.clone() for tensor in solution))
    for part in in_parts(still_open.nonzero()[:, 0]):
        part_cov, part_penalty = cov[part].double(), penalty[part].double()
        more = admm(
            part_cov,
            part_penalty,
            bound[part],
            _continued(part_cov, part_penalty, solution, part),
            max_iter=max_iter - int(solution.n_iter[part].max()),
            newton_schulz=_by_products(part_cov, root),
            correct=_by_corrections(part_cov, root),
        )
        for old, new in zip(merged, more._replace(n_iter=solution.n_iter[part] + more.n_iter), strict=True):
            old[part] = new.to(old.dtype)
    return merged


def _continued(cov: Tensor, penalty: Tensor, solution: Solution, part: Tensor) -> Start:
    """Where a part of the batch stands; where float32 lost its way entirely, the beginning."""
    stands, lost = solution.where(part, cov.dtype), torch.isinf(solution.gap[part])[:, None, None]
    if not bool(lost.any()):
        return stands
    return Start(*(torch.where(lost, new, old) for new, old in zip(_start(cov, penalty, None), stands, strict=True)))


def _plain_inverse(cov: Tensor) -> Outputs:
    """Without a penalty the precision is the inverse; a singular matrix has none, and its gap is infinite."""
    identity = torch.eye(cov.shape[-1], dtype=cov.dtype, device=cov.device)
    precision, _ = inverse_where_positive(cov, identity)
    gap = duality_gap(cov, torch.zeros_like(cov), precision, cov)
    return precision, cov.clone(), gap, torch.zeros_like(gap, dtype=torch.int64)


def _inverse(solution: Solution, root: str) -> Tensor:
    """The inverse of the precision by Cholesky factors, or by Newton's iteration from the dual point, which is near."""
    precision, inverse = solution.precision, solution.dual
    if not (precision.is_cuda or root == "newton_schulz"):
        return inverse_where_positive(precision, inverse)[0]
    for _ in range(4):  # each squares the error, and the duality gap says that it is small
        inverse = torch.baddbmm(inverse, inverse, _residual(precision, inverse))
    inverse = inverse.add(inverse.mT).mul_(0.5)
    failed = ~(torch.linalg.matrix_norm(_residual(precision, inverse)) < INVERSE_ERROR)
    if bool(failed.any()):
        for part in in_parts(failed.nonzero()[:, 0]):
            exact, _ = inverse_where_positive(precision[part].double(), solution.dual[part].double())
            inverse[part] = exact.to(inverse.dtype)
    return inverse


def _residual(matrix: Tensor, inverse: Tensor) -> Tensor:
    residual = torch.bmm(matrix, inverse).neg_()
    residual.diagonal(dim1=-2, dim2=-1).add_(1.0)
    return residual
