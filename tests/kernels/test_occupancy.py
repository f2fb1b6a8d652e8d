"""How the iteration is launched: which kernel, how many blocks, which matrices each computes."""

import warnings
from types import SimpleNamespace

import pytest
import torch

pytest.importorskip("triton")

import triton
import triton.language as tl
from triton.compiler.errors import CompilationError

from isice.kernels import newton_schulz
from isice.kernels.hopper.pipeline import share
from isice.kernels.layout import tiled_shape
from isice.kernels.occupancy import Occupancy, blocks_per_matrix, partition

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


class FakeKernel:
    """A compiled kernel that records its launches."""

    def __init__(self, registers=255, warps=4, error=None):
        self.launches, self.n_regs, self.error = [], registers, error
        self.metadata = SimpleNamespace(shared=96 * 1024, num_warps=warps)

    def warmup(self, *args, grid, **options):
        if self.error:
            raise self.error
        assert options["launch_cooperative_grid"]
        return self

    def _init_handles(self):
        pass

    def __getitem__(self, grid):
        return lambda *args: self.launches.append(SimpleNamespace(grid=grid, workspace=args[2], config=args[-1]))


def for_hopper(**options):
    return FakeKernel(registers=128, warps=8, **options)


@pytest.fixture
def fake_gpu(monkeypatch):
    """A GPU with a number of multiprocessors, whose kernels only record launches."""

    def use(processors, portable, for_hopper, major=9):
        properties = SimpleNamespace(
            regs_per_multiprocessor=65536, shared_memory_per_multiprocessor=228 * 1024,
            max_threads_per_multi_processor=2048, multi_processor_count=processors, major=major,
        )  # fmt: skip
        monkeypatch.setattr(newton_schulz, "INTERPRETED", False)
        monkeypatch.setattr(newton_schulz, "iterate", portable)
        module = for_hopper and SimpleNamespace(iterate=for_hopper, descriptors=lambda slots, config: [None, None])
        monkeypatch.setattr(newton_schulz, "hopper", module)
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
        newton_schulz.plan.cache_clear()
        newton_schulz.has_hopper_kernel.cache_clear()

    yield use
    newton_schulz.plan.cache_clear()
    newton_schulz.has_hopper_kernel.cache_clear()


def launched(size, batch):
    newton_schulz.run(torch.zeros(tiled_shape(batch, size), device="meta"), size, 7, "inverse", "accurate")


def test_blocks_take_several_tiles_where_many_would_have_none():
    assert blocks_per_matrix(36, 264) == 36
    assert blocks_per_matrix(136, 264) == 68
    assert blocks_per_matrix(136, 272) == 136
    assert blocks_per_matrix(136, 10) == 10


def test_spare_blocks_take_what_they_finish_in_time():
    remainder = lambda batch, spare=12: partition(batch, 36, Occupancy(36, 7, spare, 1)).remainder  # noqa: E731
    assert remainder(64) == 1  # three tiles a block, so three rounds of nine
    assert remainder(65) == 2
    assert remainder(67) == 0  # would take twelve
    assert remainder(63) == remainder(64, spare=0) == 0


@triton.jit
def shares(out, batch, remainder, GROUP: tl.constexpr, INTERLEAVE: tl.constexpr):
    part = share(tl.program_id(0), tl.num_programs(0), batch, remainder, GROUP, INTERLEAVE)
    for i in tl.static_range(6):
        tl.store(out + tl.program_id(0) * 6 + i, part[i])


@pytest.mark.parametrize("interleave", [1, 2])
@pytest.mark.parametrize("batch", [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 13, 16, 17, 31])
def test_each_matrix_is_computed_once_in_a_workspace_of_its_own(batch, interleave):
    occupancy = Occupancy(group=4, n_groups=3, spare_blocks=2, interleave=interleave)
    n_blocks, remainder, in_flight = partition(batch, 4, occupancy)
    assert in_flight <= batch  # as many counters as matrices are enough
    out = torch.zeros(n_blocks, 6, dtype=torch.int32, device=DEVICE)
    shares[(n_blocks,)](out, batch - remainder, remainder, GROUP=occupancy.group, INTERLEAVE=interleave)
    members, computed, used = {}, [], []
    for index, rank, size, *span in out.tolist():
        members.setdefault((index, size, *span), []).append(rank)
    for (index, size, begin, end, stride), ranks in members.items():
        assert sorted(ranks) == list(range(size))
        rounds = range(begin, end, stride * interleave)
        images = [first + i * stride for first in rounds for i in range(interleave)]
        computed += [image for image in images if image < end]
        used += [index + i * stride for i in range(interleave) if begin + i * stride < end]
    assert sorted(computed) == list(range(batch))
    assert len(set(used)) == len(used)
    assert max(used) < in_flight


@pytest.mark.parametrize(
    ("processors", "size", "batch", "grid", "group"),
    [
        (132, 256, 128, 260, 10),
        (132, 256, 64, 260, 10),
        (132, 512, 64, 264, 36),
        (132, 1024, 4, 204, 68),
        (28, 1024, 4, 46, 46),
        (4, 1024, 4, 8, 8),
        (28, 64, 3, 3, 1),
    ],
)
def test_all_blocks_of_a_launch_are_resident(fake_gpu, processors, size, batch, grid, group):
    portable, hopper = FakeKernel(), for_hopper()
    fake_gpu(processors, portable, hopper)
    launched(size, batch)
    kernel, unused = (hopper, portable) if size > 64 else (portable, hopper)
    (launch,) = kernel.launches
    assert not unused.launches
    assert (launch.grid, launch.config.GROUP) == ((grid, 1, 1), group)
    assert grid <= 2 * processors  # two blocks fit on each


def test_launches_share_scratch_memory_but_not_counters(fake_gpu):
    kernel, shared, matrices = for_hopper(), {}, torch.zeros(tiled_shape(8, 256))
    fake_gpu(132, FakeKernel(), kernel)
    for own in (shared, shared, {}):
        newton_schulz.run(matrices, 256, 7, "inverse", "accurate", shared=own)
    assert len(shared) == 1
    first, second, other = (launch.workspace for launch in kernel.launches)
    for name in ("slots", "partials", "results"):
        assert getattr(first, name) is getattr(second, name)
        assert getattr(first, name) is not getattr(other, name)
    assert first.counters is not second.counters
    assert not second.counters.any()


@pytest.mark.parametrize(("major", "hopper"), [(8, for_hopper()), (9, None), (10, for_hopper())])
def test_the_portable_kernel_is_used_where_the_other_is_not(fake_gpu, major, hopper):
    portable = FakeKernel()
    fake_gpu(132, portable, hopper, major)
    launched(256, 8)
    assert len(portable.launches) == 1


@pytest.mark.parametrize("error", [CompilationError("code", None, "no such name"), RuntimeError("a pass failed")])
def test_a_kernel_that_does_not_compile_is_replaced_with_a_warning(fake_gpu, error):
    portable = FakeKernel()
    fake_gpu(132, portable, for_hopper(error=error))
    with pytest.warns(UserWarning, match="does not compile with Triton"):
        launched(256, 8)
    launched(256, 8)
    assert len(portable.launches) == 2
    fake_gpu(132, FakeKernel(error=error), None)
    with pytest.raises(type(error)):
        launched(256, 8)


@pytest.mark.parametrize(
    ("hopper", "used"),
    [(for_hopper(), True), (for_hopper(error=RuntimeError("a pass failed")), False), (None, False)],
)
def test_whether_the_hopper_kernel_is_used_is_tried(fake_gpu, hopper, used):
    fake_gpu(132, FakeKernel(), hopper)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert newton_schulz.uses_hopper_kernel(torch.device("meta"), "accurate") is used


def test_out_of_memory_is_raised(fake_gpu):
    fake_gpu(132, FakeKernel(), for_hopper(error=torch.OutOfMemoryError()))
    with pytest.raises(torch.OutOfMemoryError):
        launched(256, 8)
