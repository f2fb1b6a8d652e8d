"""Layers on a device other than the CPU: ``meta`` stands for a GPU, on which a fault would show."""

from contextlib import nullcontext

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from isice.pooling import create_pooling, list_poolings

COPIES = {torch.ops.aten.copy_.default, torch.ops.aten._to_copy.default}


class OneDevice(TorchDispatchMode):
    """Refuse operations on tensors of two devices; numbers on the CPU may join the others."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        devices = {tensor.device.type for tensor in tensors if tensor.ndim or tensor.device.type != "cpu"}
        if len(devices) > 1 and func not in COPIES:
            raise RuntimeError(f"{func}: expected tensors on one device, got {sorted(devices)}")
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("name", list_poolings())
def test_forward_and_backward_stay_on_the_device_without_waiting_for_it(name, dtype, monkeypatch):
    monkeypatch.setattr(torch, "autocast", lambda *_, **__: nullcontext())  # meta has none
    # Reading a number, which waits for a GPU, raises an error on meta tensors.
    layer = create_pooling(name, 8, num_classes=5).to("meta")
    x = torch.empty(3, 8, 4, 4, device="meta", dtype=dtype, requires_grad=True)
    with OneDevice():
        value, loss = layer(x, return_loss=True)
        total = value.sum() if loss is None else value.sum() + loss
        grads = torch.autograd.grad(total, [x, *layer.parameters()], allow_unused=True)
    assert {tensor.device.type for tensor in (value, *grads) if tensor is not None} == {"meta"}
    assert grads[0].shape == x.shape


def test_two_devices_are_noticed():
    with OneDevice(), pytest.raises(RuntimeError, match="expected tensors on one device"):
        torch.bmm(torch.empty(1, 2, 2, device="meta"), torch.ones(1, 2, 2))
