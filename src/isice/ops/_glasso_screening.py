"""Block screening: the graphical lasso splits into the connected components of |S_ij| > Λ_ij (Witten et al. 2011)."""

import functools
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor


class Blocks(NamedTuple):
    """Components of one padded size: their matrices (K,), their variables (K, M) and how many are real (K,)."""

    owner: Tensor
    variables: Tensor
    n_real: Tensor

    @property
    def padding(self) -> Tensor:
        """Where a place (K, M) holds no variable."""
        places = torch.arange(self.variables.shape[1], device=self.variables.device)
        return places >= self.n_real[:, None]

    def gather(self, matrix: Tensor, diagonal: float) -> Tensor:
        """Cuts the blocks (K, M, M) out of (B, D, D); padded variables get ``diagonal`` and are linked to nothing."""
        rows, columns = self.variables[:, :, None], self.variables[:, None, :]
        block = matrix[self.owner[:, None, None], rows, columns]
        unused = self.padding[:, :, None] | self.padding[:, None, :]
        identity = torch.eye(block.shape[-1], dtype=block.dtype, device=block.device)
        return torch.where(unused, diagonal * identity, block)

    def scatter_(self, matrix: Tensor, block: Tensor) -> None:
        """Writes the blocks (K, M, M) back into (B, D, D)."""
        real = ~self.padding
        used = real[:, :, None] & real[:, None, :]
        rows, columns = self.variables[:, :, None].expand_as(used), self.variables[:, None, :].expand_as(used)
        owner = self.owner[:, None, None].expand_as(used)
        matrix[owner[used], rows[used], columns[used]] = block[used]


def component_labels(cov: Tensor, penalty: Tensor) -> Tensor:
    """The smallest variable of each variable's component (B, D), by label propagation with pointer jumping.

    A matrix whose largest component is about as large as itself counts as one component: apart would cost more.
    """
    size = cov.shape[-1]
    linked = cov.abs() > penalty
    linked.diagonal(dim1=-2, dim2=-1).fill_(True)
    labels = torch.arange(size, device=cov.device).expand(cov.shape[:-1]).contiguous()
    while True:
        smallest = torch.where(linked, labels.unsqueeze(-2), size).amin(-1)
        smallest = smallest.gather(-1, smallest)
        if torch.equal(smallest, labels):
            break
        labels = smallest
    counts = torch.zeros_like(labels).scatter_add_(-1, labels, torch.ones_like(labels))
    largest_apart = ([0, *_widths(size)])[-2]
    return labels.masked_fill_(counts.amax(-1, keepdim=True) > largest_apart, 0)


def blocks_by_size(labels: Tensor) -> Iterator[Blocks]:
    """Groups all components of a batch by padded size; isolated variables are left out, for they need no solver."""
    batch, size = labels.shape
    key = (labels + size * torch.arange(batch, device=labels.device)[:, None]).flatten()
    order = torch.argsort(key, stable=True)
    components, counts = torch.unique_consecutive(key[order], return_counts=True)
    starts = counts.cumsum(0) - counts
    padded = torch.tensor([_padded(c, size) for c in counts.tolist()], device=labels.device)
    for width in sorted(set(padded.tolist()) - {1}):
        chosen = padded == width
        offset = torch.arange(width, device=labels.device)
        places = starts[chosen][:, None] + torch.minimum(offset, counts[chosen][:, None] - 1)
        yield Blocks(components[chosen] // size, order[places] % size, counts[chosen])


@functools.cache
def _widths(size: int) -> list[int]:
    """The sizes that blocks are padded to; few distinct ones make large batches: 1, 8, 16, 24, 32, 48, 64, 96, …"""
    widths, width = [1, 8], 16
    while width < size:
        widths.append(width)
        width = width * 3 // 2 if width & (width - 1) == 0 else width * 4 // 3
    return [*(w for w in widths if w < size), size]


def _padded(count: int, size: int) -> int:
    return next(width for width in _widths(size) if width >= count)
