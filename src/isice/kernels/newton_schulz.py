"""The Newton–Schulz chain as a short list of launches: the twin of ``ops/newton_schulz.py``."""

import functools
from typing import NamedTuple

import torch
from torch import Tensor

from .symmetric_product import group_product

# A chunk of the batch at a time bounds the memory: 40 Mi floats are 160 MiB.
_WORKSPACE_FLOATS = 40 * 2**20


class Output(NamedTuple):
    """``out = α(ab + cd) + βe + γI`` with names of matrices; ``c`` and ``d`` empty for one product."""

    out: str
    a: str
    b: str
    c: str = ""
    d: str = ""
    e: str = ""
    alpha: float = 1.0
    beta: float = 0.0
    gamma: float = 0.0


def value_program(n_iter: int, kind: str) -> tuple[list[list[Output]], str]:
    """The launches that turn ``t0`` into the product of the factors, and the name of the result."""
    launches: list[list[Output]] = []
    result = "t0" if kind == "sqrt" else ""
    for i in range(n_iter):
        t, q, new_t, new_r, last = f"t{i}", f"q{i}", f"t{i + 1}", f"r{i + 1}", i == n_iter - 1
        group = []
        if kind == "inverse" or not last:
            launches.append([Output(q, t, t, e=t, alpha=0.25, beta=-1.5, gamma=2.25)])
        if not last:
            group.append(Output(new_t, t, q))
        if kind == "inverse":
            if result:
                group.append(Output(new_r, result, q))
            result = new_r if result else q
        elif result:
            group.append(Output(new_r, result, t, e=result, alpha=-0.5, beta=1.5))
            result = new_r
        else:
            # P₀ = ½(3I − T₀) without a product: T₀ times T₀ with weight zero.
            group.append(Output(new_r, t, t, e=t, alpha=0.0, beta=-0.5, gamma=1.5))
            result = new_r
        if group:
            launches.append(group)
    return launches, result


def derivative_program(n_iter: int, kind: str) -> tuple[list[list[Output]], str]:
    """The launches that turn ``t0`` and the direction ``dt0`` into the derivative of the product, and its name."""
    launches: list[list[Output]] = []
    result = "t0" if kind == "sqrt" else ""
    for i in range(n_iter):
        t, q, new_t, new_r, last = f"t{i}", f"q{i}", f"t{i + 1}", f"r{i + 1}", i == n_iter - 1
        group = []
        if kind == "inverse" or not last:
            square = Output(q, t, t, e=t, alpha=0.25, beta=-1.5, gamma=2.25)
            launches.append([square, Output("d" + q, t, "d" + t, "d" + t, t, e="d" + t, alpha=0.25, beta=-1.5)])
        if not last:
            group += [Output(new_t, t, q), Output("d" + new_t, "d" + t, q, t, "d" + q)]
        if kind == "inverse":
            if result:
                group.append(Output("d" + new_r, "d" + result, q, result, "d" + q))
                group += [] if last else [Output(new_r, result, q)]
            result = new_r if result else q
        elif result:
            group.append(Output("d" + new_r, "d" + result, t, result, "d" + t, "d" + result, alpha=-0.5, beta=1.5))
            group += [] if last else [Output(new_r, result, t, e=result, alpha=-0.5, beta=1.5)]
            result = new_r
        else:
            group.append(Output("d" + new_r, t, t, e="d" + t, alpha=0.0, beta=-0.5))
            group += [] if last else [Output(new_r, t, t, e=t, alpha=0.0, beta=-0.5, gamma=1.5)]
            result = new_r
        if group:
            launches.append(group)
    return launches, "d" + result


class Schedule(NamedTuple):
    """A program with its matrices placed into slots; the inputs take the first ones."""

    n_slots: int
    result: int
    launches: list[tuple[Tensor, Tensor]]


def _reads(output: Output) -> set[str]:
    return {name for name in output[1:6] if name}


@functools.lru_cache(maxsize=64)
def schedule(direction: str, n_iter: int, kind: str, device: torch.device) -> Schedule:
    """Places the matrices of a program into as few slots as their lifetimes allow."""
    launches, result = (value_program if direction == "value" else derivative_program)(n_iter, kind)
    inputs = ["t0"] if direction == "value" else ["t0", "dt0"]
    place = {name: i for i, name in enumerate(inputs)}
    n_slots, tables = len(inputs), []
    for i, group in enumerate(launches):
        needed = {name for later in launches[i:] for output in later for name in _reads(output)} | {result}
        free = set(range(n_slots)) - {place[name] for name in needed if name in place}
        for output in group:
            slot = min(free) if free else n_slots
            free.discard(slot)
            n_slots = max(n_slots, slot + 1)
            place[output.out] = slot
        rows = [[place[name] if name else 0 for name in output[:6]] for output in group]
        weights = [[o.alpha, o.beta, o.gamma, 0.0 if o.alpha == 0 else 2.0 if o.c else 1.0] for o in group]
        tables.append((torch.tensor(rows, dtype=torch.int32, device=device), torch.tensor(weights, device=device)))
    return Schedule(n_slots, place[result], tables)


def run(matrices: list[Tensor], n_iter: int, kind: str, precision: str) -> Tensor:
    """The product of the factors of float32 matrices (B, D, D); with a second input its derivative in that direction.

    ``precision`` is a key of :data:`isice.kernels.symmetric_product.PRECISIONS`.
    """
    direction = "value" if len(matrices) == 1 else "derivative"
    first = matrices[0]
    plan = schedule(direction, n_iter, kind, first.device)
    out, size = torch.empty_like(first), max(1, _WORKSPACE_FLOATS // (plan.n_slots * first.shape[-1] ** 2))
    for begin in range(0, len(first), size):
        workspace = first.new_empty((plan.n_slots, *first[begin : begin + size].shape))
        for slot, matrix in enumerate(matrices):
            workspace[slot].copy_(matrix[begin : begin + size])
        for slots, factors in plan.launches:
            group_product(workspace, slots, factors, precision)
        out[begin : begin + size].copy_(workspace[plan.result])
    return out
