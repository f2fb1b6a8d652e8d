"""Proximal maps of the fused penalties over classes: all pairs, or neighbours in time."""

from typing import NamedTuple

import torch
from torch import Tensor


def fuse_pairs(values: Tensor, penalty: Tensor) -> Tensor:
    """Proximal point of λ Σ_{k<l} |x_k − x_l| over the classes (dimension 1).

    The order of the classes does not change, so the penalty is linear in the sorted values, and the
    result is the isotonic regression of the sorted values minus its slope: x_r = max_{a≤r}
    min_{b≥r} mean(y_a … y_b).

    Args:
        values: Tensor (B, K, ...).
        penalty: λ ≥ 0, shape (B, 1, ...).
    """
    classes = values.shape[1]
    ordered, order = values.sort(dim=1)
    slope = 2 * torch.arange(classes, dtype=values.dtype, device=values.device) - (classes - 1)
    y = ordered - penalty * slope[:, None, None]
    regression = torch.full_like(y, -torch.inf)
    for a in range(classes):
        counts = torch.arange(1, classes - a + 1, dtype=y.dtype, device=y.device)[:, None, None]
        means = y[:, a:].cumsum(1) / counts
        smallest = means.flip(1).cummin(1).values.flip(1)
        regression[:, a:] = torch.maximum(regression[:, a:], smallest)
    return torch.empty_like(values).scatter_(1, order, regression)


class _Messages(NamedTuple):
    """Derivative of a message: knots x (2K, M), changes of slope and intercept, both end knots."""

    x: Tensor
    slope: Tensor
    intercept: Tensor
    first: Tensor
    last: Tensor


def fuse_neighbours(values: Tensor, penalty: Tensor) -> Tensor:
    """Proximal point of λ Σ_k |x_{k+1} − x_k| over the classes (dimension 1), exact.

    Johnson's dynamic programme (2013) for all entries at once: the derivative of the message from
    the past is piecewise linear, and clipping it to [−λ, λ] adds one knot at either end and
    removes those that it passes.

    Args:
        values: Tensor (B, K, ...).
        penalty: λ ≥ 0, shape (B, 1, ...).
    """
    y = values.movedim(1, 0).flatten(1)
    lam = penalty.expand_as(values[:, :1]).flatten()
    classes, count = y.shape
    if classes == 1:
        return values
    middle = torch.full((count,), classes, device=y.device)
    x, slope, intercept = (y.new_zeros(2 * classes, count) for _ in range(3))
    messages = _Messages(x, slope, intercept, middle - 1, middle)
    lower, upper = [y[0] - lam], [y[0] + lam]
    one = torch.ones_like(lam)
    messages = _put(messages, lower[0], one, lam - y[0], upper[0], -one, lam + y[0])
    for k in range(1, classes - 1):
        messages, low, high = _clip(messages, y[k], lam)
        lower.append(low)
        upper.append(high)
    a, b, _ = _pass(messages, one, -lam - y[-1], torch.zeros_like(lam), messages.first, messages.last)
    result = [-b / a]
    for low, high in zip(reversed(lower), reversed(upper), strict=True):
        result.append(torch.minimum(torch.maximum(result[-1], low), high))
    fused = torch.where(lam > 0, torch.stack(result[::-1]), y)
    return fused.reshape(classes, values.shape[0], *values.shape[2:]).movedim(0, 1)


def _clip(messages: _Messages, y: Tensor, lam: Tensor) -> tuple[_Messages, Tensor, Tensor]:
    """Add the data term of one class and clip; return where the derivative reaches −λ and λ."""
    one = torch.ones_like(lam)
    a, b, first = _pass(messages, one, -lam - y, -lam, messages.first, messages.last)
    # From the right, the mirror image: derivative −a·x − b.
    c, d, last = _pass(messages, -one, y - lam, -lam, messages.last, first, step=-1)
    low, high = (-lam - b) / a, (lam + d) / -c
    messages = messages._replace(first=first - 1, last=last + 1)
    return _put(messages, low, a, b + lam, high, c, d + lam), low, high


def _pass(
    messages: _Messages, a: Tensor, b: Tensor, level: Tensor, start: Tensor, end: Tensor, step: int = 1
) -> tuple[Tensor, Tensor, Tensor]:
    """Walk the knots from ``start`` to ``end`` while a·x + b ≤ level; return a, b and the last."""
    place = start.clone()
    while True:
        inside = (end - place) * step >= 0
        here = place.clamp(0, len(messages.x) - 1)[None]
        x, slope, intercept = (t.gather(0, here)[0] for t in messages[:3])
        goes_on = inside & (a * x + b <= level)
        if not bool(goes_on.any()):
            return a, b, place
        a, b = torch.where(goes_on, a + slope, a), torch.where(goes_on, b + intercept, b)
        place = torch.where(goes_on, place + step, place)


def _put(messages: _Messages, low: Tensor, a: Tensor, b: Tensor, high: Tensor, c: Tensor, d: Tensor) -> _Messages:
    """Write the first and the last knot."""
    for place, knot in ((messages.first, (low, a, b)), (messages.last, (high, c, d))):
        for tensor, value in zip(messages[:3], knot, strict=True):
            tensor.scatter_(0, place[None], value[None])
    return messages
