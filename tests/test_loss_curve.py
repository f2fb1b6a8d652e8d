"""On a GPU: a network trained on the kernels has the loss curve of one trained on PyTorch."""

import contextlib
import functools
from unittest import mock

import pytest
import torch
from torch import Tensor, nn

from isice.data.synthetic import make_textures
from isice.models import create_model
from isice.ops import _dispatch

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
STEPS, BATCH, CLASSES, CHANNELS = 300, 64, 4, 12
EARLY, WINDOW = 10, 50
# Largest relative difference of the first losses: float32 against float64 gave 1e-4 and
# less, TF32-like noise 1e-3.
EARLY_TOLERANCE = {"high": 1e-3, "medium": 1e-2}


@functools.cache
def loss_curve(head: str, backend: str, mode: str) -> Tensor:
    """Losses of 300 steps on textures that differ by covariance only; same seed, same batches."""
    images, labels = make_textures(1024, family="correlation", n_classes=CLASSES, channels=CHANNELS, size=14, seed=1)
    images, labels = images.cuda(), labels.cuda()
    torch.manual_seed(0)
    options = {"num_classes": CLASSES, "reduce": 64, "in_chans": CHANNELS, "widths": (32, 64)}
    model = create_model("small_cnn", pooling=head, **options).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    generator = torch.Generator().manual_seed(0)
    before, losses = torch.get_float32_matmul_precision(), []
    torch.set_float32_matmul_precision(mode)
    try:
        missing = mock.patch.object(_dispatch, "kernels_missing", return_value="the test compares with PyTorch")
        with missing if backend == "torch" else contextlib.nullcontext():
            for _ in range(STEPS):
                batch = torch.randint(len(images), (BATCH,), generator=generator).cuda()
                logits, aux_loss = model(images[batch], return_loss=True)
                loss = nn.functional.cross_entropy(logits, labels[batch]) + aux_loss
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                losses.append(loss.detach())
    finally:
        torch.set_float32_matmul_precision(before)
    return torch.stack(losses).double().cpu()


def smoothed(losses: Tensor) -> Tensor:
    return losses.view(-1, WINDOW).mean(dim=1)


@pytest.mark.parametrize("mode", EARLY_TOLERANCE)
@pytest.mark.parametrize("head", ["isice", "isqrt_cov"])
def test_the_curve_is_that_of_pytorch(head, mode):
    expected, found = loss_curve(head, "torch", "highest"), loss_curve(head, "auto", mode)
    assert ((found - expected).abs() / expected)[:EARLY].max() < EARLY_TOLERANCE[mode]
    # Later on rounding separates any two runs step by step; their averages stay together.
    difference = (smoothed(found) - smoothed(expected)).abs()
    assert (difference <= 0.1 * smoothed(expected) + 0.02).all()
    assert smoothed(found)[-1] < 0.3 * smoothed(found)[0]


def test_the_kernels_are_used():
    assert not torch.equal(loss_curve("isice", "torch", "highest"), loss_curve("isice", "auto", "high"))
