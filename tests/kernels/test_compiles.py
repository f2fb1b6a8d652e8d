"""The kernels compile for GPUs, on machines that have none."""

import pytest

pytest.importorskip("triton")

SCRIPT = """
from isice.kernels import layout
from isice.kernels.isice import Settings, isice, isice_vjp

D, batch = 128, 2
matrices, values = torch.eye(D).repeat(batch, 1, 1), torch.ones(batch)
settings = Settings([1.0], 7, 0.5, 1e-9, PRECISION)
saved = isice(matrices, values, values, settings)
isice_vjp(saved.out, D, saved, values, values, settings, learned=PRECISION == "accurate")
tiles = layout.to_tiles(matrices, D, cotangent=True)
layout.from_tiles(layout.to_tiles(saved.out, D), D)
layout.from_tiles(tiles, D, packed=True)
iterations = [kernel for kernel in compiled if kernel.metadata.name == "iterate"]
# Two blocks fit on a multiprocessor of a Hopper GPU, one on those with the least shared memory.
limit = 113 if CAPABILITY == 90 else 99
assert len(iterations) == 8  # each is compiled again with the size of its group
assert all(kernel.metadata.shared <= limit * 1024 for kernel in iterations)
compiled.clear()

from isice.kernels.covariance import covariance, covariance_vjp

FEATURES = [
    (torch.zeros(2, 14, 14, 256, dtype=torch.bfloat16).permute(0, 3, 1, 2).flatten(2), "accurate"),
    (torch.zeros(2, 256, 196), "accurate"),
    (torch.zeros(2, 16, 1, dtype=torch.float16), "fast"),
]
for x, precision in FEATURES:
    cov, channels = covariance(x, precision)
    covariance_vjp(x, channels, cov, precision)
assert len(compiled) == 9
assert all(kernel.metadata.shared <= 99 * 1024 for kernel in compiled)  # of the GPUs with the least
"""


# The products of "fast" are those of the first plane of "accurate".
@pytest.mark.parametrize(
    ("capability", "precision"),
    [
        (90, "accurate"),
        *(pytest.param(*case, marks=pytest.mark.slow) for case in ((90, "fast"), (80, "accurate"), (80, "fast"))),
    ],
)
def test_the_kernels_compile(capability, precision, compile_script):
    compile_script(f"PRECISION = {precision!r}\n{SCRIPT}", capability)
