"""How the iteration is launched: which kernel, how many blocks, which matrices each carries."""

import warnings
from types import SimpleNamespace

import pytest
import torch

pytest.importorskip("triton")

import triton
import triton.language as tl
from triton.compiler.errors import CompilationError

from isice.kernels import launch, newton_schulz
from isice.kernels.hopper import share
from isice.kernels.program import tiled_shape

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


class FakeKernel:
    """Stands for the compiled kernel of a GPU: 255 registers a thread, 96 KiB a block; or 128 of twice the threads."""

    arg_names = ("GROUP",)

    def __init__(self, n_arguments, registers=255, warps=4, error=None):
        self.launches, self.n_arguments, self.n_regs, self.error = [], n_arguments, registers, error
        self.metadata = SimpleNamespace(shared=96 * 1024, num_warps=warps)

    def warmup(self, *args, grid, **options):
        if self.error:
            raise self.error
        assert len(args) == self.n_arguments
        assert options["launch_cooperative_grid"]
        return self

    def _init_handles(self):
        pass

    def __getitem__(self, grid):
        return lambda *args: self.launches.append((grid, args))


@pytest.fixture
def fake_gpu(monkeypatch):
    """A GPU of so many multiprocessors, with kernels that only tell how they were launched."""

    def use(processors, portable, for_hopper, major=9):
        properties = SimpleNamespace(
            regs_per_multiprocessor=65536, shared_memory_per_multiprocessor=228 * 1024,
            max_threads_per_multi_processor=2048, multi_processor_count=processors, major=major,
        )  # fmt: skip
        monkeypatch.setattr(launch, "INTERPRETED", False)
        monkeypatch.setattr(newton_schulz, "iterate", portable)
        for_hopper = for_hopper and SimpleNamespace(
            iterate=for_hopper, describer=lambda *args: lambda workspace, left: (0, 0, left)
        )
        monkeypatch.setattr(launch, "hopper", for_hopper)
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
        launch.plan.cache_clear()
        launch.has_hopper_kernel.cache_clear()

    yield use
    launch.plan.cache_clear()
    launch.has_hopper_kernel.cache_clear()


def launched(size, batch):
    launch.run(torch.zeros(tiled_shape(batch, size), device="meta"), size, 7, "inverse", "accurate")


def test_blocks_take_several_tiles_where_many_would_have_none():
    assert launch.blocks_per_matrix(36, 264) == 36
    assert launch.blocks_per_matrix(136, 264) == 68
    assert launch.blocks_per_matrix(136, 272) == 136
    assert launch.blocks_per_matrix(136, 10) == 10


def test_blocks_beside_the_groups_carry_what_they_can_in_time():
    left = lambda batch, spare=12: launch.divide(batch, 36, launch.Crew(36, 7, spare, 1)).left  # noqa: E731
    assert left(64) == 1  # three tiles a block, so three rounds of nine
    assert left(65) == 2
    assert left(67) == 0  # would take twelve
    assert left(63) == left(64, spare=0) == 0


@triton.jit
def shares(out, batch, left, GROUP: tl.constexpr, CHAINS: tl.constexpr):
    values = share(tl.program_id(0), tl.num_programs(0), batch, left, GROUP, CHAINS)
    for i in tl.static_range(6):
        tl.store(out + tl.program_id(0) * 6 + i, values[i])


@pytest.mark.parametrize("chains", [1, 2])
@pytest.mark.parametrize("batch", [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 13, 16, 17, 31])
def test_each_matrix_is_carried_once_in_a_place_of_its_own(batch, chains):
    crew = launch.Crew(group=4, resident=3, spare=2, chains=chains)
    n_blocks, left, places = launch.divide(batch, 4, crew)
    assert places <= batch  # as many counters as matrices are enough
    out = torch.zeros(n_blocks, 6, dtype=torch.int32, device=DEVICE)
    shares[(n_blocks,)](out, batch - left, left, GROUP=crew.group, CHAINS=chains)
    members, carried, used = {}, [], []
    for own, rank, size, *span in out.tolist():
        members.setdefault((own, size, *span), []).append(rank)
    for (own, size, begin, end, stride), ranks in members.items():
        assert sorted(ranks) == list(range(size))
        rounds = range(begin, end, stride * chains)
        images = [first + chain * stride for first in rounds for chain in range(chains)]
        carried += [image for image in images if image < end]
        used += [own + chain * stride for chain in range(chains) if begin + chain * stride < end]
    assert sorted(carried) == list(range(batch))
    assert len(set(used)) == len(used)
    assert max(used) < places


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
def test_all_blocks_of_a_launch_are_on_the_gpu_at_once(fake_gpu, processors, size, batch, grid, group):
    portable, for_hopper = FakeKernel(25), FakeKernel(27, registers=128, warps=8)
    fake_gpu(processors, portable, for_hopper)
    launched(size, batch)
    kernel, unused = (for_hopper, portable) if size > 64 else (portable, for_hopper)
    ((found, args),) = kernel.launches
    assert not unused.launches
    assert (found, len(args), args[-1]) == ((grid, 1, 1), kernel.n_arguments + 1, group)
    assert found[0] <= 2 * processors  # there is room for two blocks


def test_launches_share_memory_if_they_follow_each_other(fake_gpu):
    kernel, rooms, matrices = FakeKernel(27, registers=128, warps=8), {}, torch.zeros(tiled_shape(8, 256))
    fake_gpu(132, FakeKernel(25), kernel)
    for own in (rooms, rooms, {}):
        launch.run(matrices, 256, 7, "inverse", "accurate", rooms=own)
    assert len(rooms) == 1
    first, second, other = ([args[i].data_ptr() for i in (12, 16, 18)] for _, args in kernel.launches)
    assert first == second
    assert not set(first) & set(other)


@pytest.mark.parametrize(("major", "for_hopper"), [(8, FakeKernel(27)), (9, None), (10, FakeKernel(27))])
def test_the_portable_kernel_is_used_where_the_other_is_not(fake_gpu, major, for_hopper):
    portable = FakeKernel(25)
    fake_gpu(132, portable, for_hopper, major)
    launched(256, 8)
    assert len(portable.launches) == 1


@pytest.mark.parametrize("error", [CompilationError("code", None, "no such name"), RuntimeError("a pass failed")])
def test_a_kernel_that_does_not_compile_is_replaced_with_a_warning(fake_gpu, error):
    portable = FakeKernel(25)
    fake_gpu(132, portable, FakeKernel(27, error=error))
    with pytest.warns(UserWarning, match="does not compile with Triton"):
        launched(256, 8)
    launched(256, 8)
    assert len(portable.launches) == 2
    fake_gpu(132, FakeKernel(25, error=error), None)
    with pytest.raises(type(error)):
        launched(256, 8)


@pytest.mark.parametrize(
    ("for_hopper", "used"),
    [(FakeKernel(27), True), (FakeKernel(27, error=RuntimeError("a pass failed")), False), (None, False)],
)
def test_whether_the_kernel_for_hopper_gpus_is_used_is_tried(fake_gpu, for_hopper, used):
    fake_gpu(132, FakeKernel(25), for_hopper)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert launch.uses_hopper_kernel(torch.device("meta"), "accurate") is used


def test_lack_of_memory_is_told(fake_gpu):
    fake_gpu(132, FakeKernel(25), FakeKernel(27, error=torch.OutOfMemoryError()))
    with pytest.raises(torch.OutOfMemoryError):
        launched(256, 8)
