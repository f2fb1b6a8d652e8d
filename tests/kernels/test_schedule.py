"""The schedule: stages that never overwrite what is read, and the result on numbers."""

import pytest
import torch

from isice.kernels.schedule import MAX_STEPS, T, build_schedule, stages

KINDS = ["inverse", "sqrt", "inverse_sqrt"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_stage_never_writes_what_may_still_be_read(kind):
    for n_iter in range(1, 9):
        read, written, wait = set(), set(), True
        for left, right, out, term, next_wait, _ in build_schedule(
            n_iter, kind, 9, torch.device("cpu")
        ).stages.tolist():
            if wait:
                read, written = set(), set()
            wait = next_wait
            read |= {left, right}
            assert not {left, right, term} & written
            written.add(out)
            assert not read & written


def stored(plan, t):
    """What each stage stores if T is a number."""
    slots, found = {-1: 0.0, T: plan.scale * t}, []
    for row, (alpha, beta, delta, gamma) in zip(plan.stages.tolist(), plan.weights.tolist(), strict=True):
        left, right, out, term, _, _ = row
        slots[out] = alpha * slots[left] * slots[right] + beta * slots[left] + delta * slots[term] + gamma
        found.append(slots[out])
    return found


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [9, 1024])
def test_the_schedule_on_numbers(kind, size):
    for n_iter in range(1 if kind != "inverse_sqrt" else 2, MAX_STEPS + 1):
        t = 0.3
        y, z = t, 1.0
        for _ in range(n_iter):
            p = 0.5 * (3 - z * y)
            y, z = y * p, p * z
        result = stored(build_schedule(n_iter, kind, size, torch.device("cpu")), t)[-1]
        assert result == pytest.approx({"sqrt": y, "inverse_sqrt": z, "inverse": z * z}[kind], rel=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_slots_lack_a_multiple_of_the_identity(kind):
    """Tensor cores would cut off the rest; where T is a mean eigenvalue only T is left."""
    for n_iter in range(2, MAX_STEPS + 1):
        found = stored(build_schedule(n_iter, kind, 50, torch.device("cpu")), 1 / 50)
        for value, stage in list(zip(found, stages(n_iter, kind), strict=True))[:-1]:
            assert (abs(value) > 1) if stage.whole else (abs(value) < 1e-3)
