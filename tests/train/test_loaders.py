"""Batches: a step sees the same images for any processes, micro-batches, workers, interruptions."""

from itertools import chain

import pytest
import torch

from isice.config import override
from isice.data import load_splits
from isice.train.loaders import EpochBatches, describe_images, eval_loader, start_epoch, train_loader

from ._tiny import TINY


def steps(batches):
    """Return the images of every step, over all micro-batches."""
    micro_batches = list(batches)
    count = batches.accumulate
    return [list(chain(*micro_batches[i : i + count])) for i in range(0, len(micro_batches), count)]


def test_every_image_at_most_once_and_only_whole_steps():
    batches = EpochBatches(103, 10, seed=0)
    taken = [image for step in steps(batches) for image in step]
    assert len(taken) == len(set(taken)) == 100
    assert batches.steps == len(batches) == 10


def test_order_is_a_function_of_seed_and_epoch():
    def order(seed, epoch):
        batches = EpochBatches(50, 10, seed=seed)
        batches.start(epoch)
        return steps(batches)

    assert order(0, 1) == order(0, 1)
    assert order(0, 1) != order(0, 2)
    assert order(0, 1) != order(1, 1)


def test_balanced_sampling_draws_all_classes_equally_often():
    split = load_splits(TINY.data).train
    split.targets = torch.tensor([0] * 450 + [1] * (len(split) - 450))
    plain, balanced = (
        train_loader(override(TINY, [f"data.balanced={value}"]), split).batch_sampler for value in ("false", "true")
    )
    share = [split.targets[batches.order(1)].double().mean().item() for batches in (plain, balanced)]
    assert share[0] == pytest.approx(89 / 539)
    assert share[1] == pytest.approx(0.5, abs=0.05)
    assert balanced.order(1) == balanced.order(1) != balanced.order(2)
    assert len(balanced) == len(plain)


@pytest.mark.parametrize(("world", "accumulate"), [(2, 1), (1, 3), (2, 3), (4, 1)])
def test_processes_and_micro_batches_share_the_same_steps(world, accumulate):
    alone = steps(EpochBatches(100, 12, seed=3))
    shares = [
        steps(EpochBatches(100, 12, seed=3, accumulate=accumulate, rank=rank, world_size=world))
        for rank in range(world)
    ]
    together = [sorted(chain(*parts)) for parts in zip(*shares, strict=True)]
    assert together == [sorted(step) for step in alone]
    assert all(len(part) == 12 // world for share in shares for part in share)


def test_resuming_skips_what_was_done():
    batches = EpochBatches(100, 12, seed=3, accumulate=2)
    batches.start(5)
    whole = steps(batches)
    batches.start(5, done=3)
    assert len(batches) == 2 * (batches.steps - 3)
    assert steps(batches) == whole[3:]
    assert batches.micro_batch(4, 1) == list(batches)[1]


def test_a_dataset_smaller_than_a_batch_is_one_step():
    assert [len(step) for step in steps(EpochBatches(7, 64, seed=0))] == [7]
    assert [len(step) for step in steps(EpochBatches(7, 64, seed=0, accumulate=3))] == [6]


@pytest.mark.parametrize(("images", "size", "world"), [(100, 10, 3), (2, 10, 4)])
def test_a_batch_that_cannot_be_shared(images, size, world):
    with pytest.raises(ValueError, match=rf"multiple of processes × optim.accumulate = {world}"):
        EpochBatches(images, size, seed=0, world_size=world)


def test_every_test_image_once_over_processes():
    part = load_splits(TINY.data).test
    counts = [sum(len(y) for _, y in eval_loader(TINY, part, rank=rank, world_size=4)) for rank in range(4)]
    assert sum(counts) == len(part)


def test_augmentation_does_not_depend_on_workers_or_skipped_steps():
    config = override(TINY, ["data.transform=paper"])
    part = load_splits(config.data).train

    def images(workers, epoch, done):
        loader = train_loader(override(config, [f"data.workers={workers}"]), part)
        start_epoch(loader, epoch, done)
        return torch.cat([x for x, _ in loader])

    whole = images(0, 2, 0)
    assert torch.equal(images(2, 2, 0), whole)
    assert torch.equal(images(2, 2, 5), whole[5 * 32 :])
    assert not torch.equal(images(0, 3, 0), whole)


def test_images_are_described_by_file_or_number():
    class Files:
        def path(self, index):
            return f"{index}.jpg"

    class Split:
        source, indices = Files(), torch.tensor([4, 5, 6])

    assert describe_images(Split(), [2, 0]) == "2 (6.jpg), 0 (4.jpg)"
    assert describe_images([], list(range(10))) == "0, 1, 2, 3, 4, 5, 6, 7 and 2 more"
