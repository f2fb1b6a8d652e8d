"""Block screening: one problem per component of the graph |S_ij| > Λ_ij (Witten et al. 2011)."""

import functools
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor


class Blocks(NamedTuple):
    """Components padded to size M: matrix (K,), variables (K, M) and true size (K,) of each."""

    owner: Tensor
    variables: Tensor
    n_real: Tensor

    def split(self, max_entries: int) -> Iterator["Blocks"]:
        """Split into groups of at most ``max_entries`` matrix entries, or of one block."""
        count = max(1, max_entries // self.variables.shape[1] ** 2)
        for part in zip(*(tensor.split(count) for tensor in self), strict=True):
            yield Blocks(*part)

    @property
    def padding(self) -> Tensor:
        """Mask (K, M) of the padded positions."""
        places = torch.arange(self.variables.shape[1], device=self.variables.device)
        return places >= self.n_real[:, None]

    def gather(self, matrix: Tensor, diagonal: float) -> Tensor:
        """Return the blocks (K, M, M) of (B, D, D), padded by ``diagonal``·I."""
        rows, columns = self.variables[:, :, None], self.variables[:, None, :]
        block = matrix[self.owner[:, None, None], rows, columns]
        unused = self.padding[:, :, None] | self.padding[:, None, :]
        identity = torch.eye(block.shape[-1], dtype=block.dtype, device=block.device)
        return torch.where(unused, diagonal * identity, block)

    def scatter_(self, matrix: Tensor, block: Tensor) -> None:
        """Write the blocks (K, M, M) back into (B, D, D)."""
        real = ~self.padding
        used = real[:, :, None] & real[:, None, :]
        rows, columns = self.variables[:, :, None].expand_as(used), self.variables[:, None, :].expand_as(used)
        owner = self.owner[:, None, None].expand_as(used)
        matrix[owner[used], rows[used], columns[used]] = block[used]


def component_labels(cov: Tensor, penalty: Tensor) -> Tensor:
    """Label the variables (B, D) by component, by label propagation with pointer jumping.

    A matrix with one component of nearly its own size gets all labels zero, because splitting it
    costs more.
    """
    size = cov.shape[-1]
    linked = (cov.abs() > penalty).to(torch.float32)
    linked.diagonal(dim1=-2, dim2=-1).fill_(1.0)
    labels = torch.arange(1, size + 1, dtype=torch.float32, device=cov.device).expand(cov.shape[:-1])
    while True:
        largest = (linked * labels.unsqueeze(-2)).amax(-1)
        largest = largest.gather(-1, largest.long() - 1)
        if torch.equal(largest, labels):
            break
        labels = largest
    places = labels.long() - 1
    counts = torch.zeros_like(places).scatter_add_(-1, places, torch.ones_like(places))
    return places.masked_fill_(counts.amax(-1, keepdim=True) > _max_component(size, cov.is_cuda), 0)


def _max_component(size: int, cuda: bool) -> int:
    """Return the largest component worth splitting off; on CUDA launches dominate."""
    return size // 2 if cuda else ([0, *_padded_sizes(size, cuda)])[-2]


def blocks_by_size(labels: Tensor) -> Iterator[Blocks]:
    """Group all components of a batch by padded size; isolated variables need no solver."""
    batch, size = labels.shape
    key = (labels + size * torch.arange(batch, device=labels.device)[:, None]).flatten()
    order = torch.argsort(key, stable=True)
    components, counts = torch.unique_consecutive(key[order], return_counts=True)
    starts = counts.cumsum(0) - counts
    widths = _padded_sizes(size, labels.is_cuda)
    padded = torch.tensor([next(w for w in widths if w >= count) for count in counts.tolist()], device=labels.device)
    for width in sorted(set(padded.tolist()) - {1}):
        chosen = padded == width
        offset = torch.arange(width, device=labels.device)
        places = starts[chosen][:, None] + torch.minimum(offset, counts[chosen][:, None] - 1)
        yield Blocks(components[chosen] // size, order[places] % size, counts[chosen])


@functools.cache
def _padded_sizes(size: int, cuda: bool) -> list[int]:
    """Return the sizes that blocks are padded to; few distinct sizes give large batches.

    1, 8, 16, 24, 32, 48, 64, 96, …; on CUDA, where a batch of small blocks costs as much as one, 1,
    8, 32, 64, 128, ….
    """
    widths, width = [1, 8], 32 if cuda else 16
    while width < size:
        widths.append(width)
        width = 2 * width if cuda else width * 3 // 2 if width & (width - 1) == 0 else width * 4 // 3
    return [*(w for w in widths if w < size), size]
