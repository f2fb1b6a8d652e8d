"""Backward passes that cannot be differentiated again, and say so."""

from typing import Any

import torch
from torch import Tensor


class _NoSecondDerivative(torch.autograd.Function):
    """Identity on its first argument; its backward pass is the error. The other arguments connect it to the graph,
    so that no path around it gives a silently wrong second derivative (torch's once_differentiable leaves one)."""

    @staticmethod
    def forward(ctx: Any, grad: Tensor, who: str, *inputs: Tensor) -> Tensor:
        ctx.who = who
        return grad.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> None:
        raise RuntimeError(
            f"{ctx.who}: expected a first derivative, got a second one, which this operation does not have; "
            f"use {ctx.who}_reference, which autograd differentiates any number of times."
        )


def first_derivative_only(who: str, inputs: tuple[Tensor, ...], grads: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Returns ``grads``; under ``create_graph=True``, gradients whose own differentiation raises a clear error.

    Args:
        who: The operation, for the message.
        inputs: The tensors that ``grads`` depend on: the incoming cotangent and the operation's inputs.
        grads: What the backward pass computed, without a graph.
    """
    if torch.compiler.is_compiling() or not torch.is_grad_enabled():
        return grads
    return tuple(_NoSecondDerivative.apply(grad, who, *inputs) for grad in grads)
