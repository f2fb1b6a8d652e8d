"""Parts: randomness by seed, epoch and image; caches that change nothing; loaders."""

import dataclasses
from pathlib import Path

import pytest
import torch

from isice.config import DataConfig, RunConfig, override
from isice.data import GpuBatches, create_loader, load_splits
from isice.data.images import BadImageError
from isice.data.loading import DeviceLoader
from isice.data.transforms import IMAGENET_STD

from .conftest import save_image

pytestmark = pytest.mark.filterwarnings("ignore:The image decoding:DeprecationWarning")
BATCHES = [[0, 3], [6, 1], [2, 4]]


@pytest.fixture
def config(folder: Path) -> DataConfig:
    return DataConfig(name="folder", root=str(folder), image_size=12, transform="crop")


def images_of(loader) -> torch.Tensor:
    return torch.cat([images for images, _ in loader])


@pytest.mark.parametrize("workers", [0, 2])
def test_augmentation_depends_on_seed_epoch_and_image_alone(config: DataConfig, workers: int):
    train = load_splits(config).train
    train.set_epoch(3, seed=5)
    expected = torch.stack([train[index][0] for batch in BATCHES for index in batch])
    part = load_splits(config).train
    loader = create_loader(part, dataclasses.replace(config, workers=workers), BATCHES)
    part.set_epoch(2, seed=5)
    other_epoch = images_of(loader)
    torch.manual_seed(123)
    # The workers live on: they must see the new epoch.
    part.set_epoch(3, seed=5)
    assert torch.equal(images_of(loader), expected)
    assert not torch.equal(other_epoch, expected)
    part.set_epoch(3, seed=6)
    assert not torch.equal(images_of(loader), expected)


def test_resuming_in_the_middle_gives_the_same_images(config: DataConfig):
    train = load_splits(config).train
    train.set_epoch(1)
    whole = list(create_loader(train, config, BATCHES))
    rest = list(create_loader(train, config, BATCHES[2:]))
    assert torch.equal(rest[0][0], whole[2][0])


def test_set_epoch_leaves_the_global_generator_alone(config: DataConfig):
    train = load_splits(config).train
    train.set_epoch(0)
    state = torch.get_rng_state()
    list(create_loader(train, config, BATCHES))
    assert torch.equal(torch.get_rng_state(), state)


def test_without_an_epoch_images_differ_every_time(config: DataConfig):
    train = load_splits(config).train
    assert train.epoch is None
    assert not torch.equal(train[0][0], train[0][0])


def test_held_out_images_keep_their_randomness(config: DataConfig):
    whole = load_splits(config).train
    kept = load_splits(dataclasses.replace(config, val_fraction=0.3)).train
    for part in (whole, kept):
        part.set_epoch(4)
    position = int(kept.indices[2])
    assert torch.equal(kept[2][0], whole[position][0])


def test_ram_cache_changes_nothing(config: DataConfig):
    config = dataclasses.replace(config, transform="paper", color_jitter=0.2)
    cached = load_splits(dataclasses.replace(config, cache="ram"))
    plain = load_splits(config)
    for path in Path(config.root).rglob("*.jpg"):
        path.unlink()
    with pytest.raises(BadImageError):
        plain.train[0]
    assert cached.test[1][0].shape == (3, 12, 12)
    assert cached.train[0][0].shape == (3, 12, 12)


def test_ram_cache_is_the_same_as_reading(config: DataConfig):
    config = dataclasses.replace(config, transform="paper")
    parts = [load_splits(dataclasses.replace(config, cache=cache)).train for cache in ("none", "ram")]
    for part in parts:
        part.set_epoch(1)
    assert torch.equal(*(images_of(create_loader(part, config, BATCHES)) for part in parts))


def test_caches_need_one_size(config: DataConfig):
    with pytest.raises(ValueError, match="one size before caching, got random crops"):
        load_splits(dataclasses.replace(config, cache="ram"))
    with pytest.raises(ValueError, match=r"resizing and flipping for data.cache=gpu, .* policies under augment"):
        GpuBatches(load_splits(config).train, BATCHES, "cpu")


def test_gpu_cache_needs_a_gpu(config: DataConfig):
    part = load_splits(config).test
    with pytest.raises(ValueError, match=r"CUDA device for data.cache=gpu, got 'cpu'"):
        create_loader(part, dataclasses.replace(config, cache="gpu"), [[0]], "cpu")


def check_batches_against_a_loader(config: DataConfig, device: str, worst: float, mean: float) -> None:
    config = dataclasses.replace(config, transform="paper")
    splits = load_splits(config)
    for part in (splits.train, splits.test):
        batches = GpuBatches(part, [[0, 2], [1]], device)
        assert (len(batches), batches.images.dtype) == (2, torch.uint8)
        plain = create_loader(part, dataclasses.replace(config, transform="none"), [[0, 2], [1]])
        for (images, labels), (index, expected_labels) in zip(batches, plain, strict=True):
            assert (images.device.type, labels.device.type) == (device, device)
            assert labels.tolist() == expected_labels.tolist()
            assert images.shape == index.shape
    # No flip in evaluation: the very pixels.
    found, expected = images_of(batches).cpu(), images_of(create_loader(splits.test, config, [[0, 2], [1]]))
    levels = (found - expected).abs() * 255 * torch.tensor(IMAGENET_STD).view(3, 1, 1)
    assert levels.max() <= worst
    assert levels.mean() <= mean


def test_batches_of_a_cache(config: DataConfig):
    check_batches_against_a_loader(config, "cpu", worst=0.0, mean=0.0)


@pytest.mark.gpu
def test_batches_of_a_cache_on_a_gpu(config: DataConfig):
    # The decoders enlarge the halved chroma differently, which shows at the sharp edges
    # of these small pictures.
    check_batches_against_a_loader(config, "cuda", worst=24.0, mean=2.5)


def test_cache_flips_by_seed_and_epoch(config: DataConfig):
    part = load_splits(dataclasses.replace(config, transform="paper")).train
    everything = [list(range(7))]
    batches = GpuBatches(part, everything, "cpu")
    unflipped = part.transform.finish(batches.images)
    flipped = []
    for epoch in range(40):
        part.set_epoch(epoch, seed=1)
        images, again = images_of(batches), images_of(batches)
        assert torch.equal(images, again)
        is_flipped = [torch.equal(a, b.flip(-1)) for a, b in zip(images, unflipped, strict=True)]
        assert all(f or torch.equal(a, b) for f, a, b in zip(is_flipped, images, unflipped, strict=True))
        # One image alone, as after a resumption, is flipped like the same image in the whole.
        batches.batch_sampler = [[4]]
        assert torch.equal(images_of(batches)[0], images[4])
        batches.batch_sampler = everything
        flipped.append(is_flipped)
    assert 0.35 < torch.tensor(flipped).float().mean() < 0.65


def test_channels_must_fit():
    with pytest.raises(ValueError, match="3 channels for randaugment and color_jitter, got 1 in 'digits'"):
        load_splits(DataConfig(transform="randaugment"))
    with pytest.raises(ValueError, match=r"1 values in data.mean and data.std, got \(0.5, 0.5\)"):
        load_splits(DataConfig(mean=(0.5, 0.5), std=(1.0, 1.0)))


def test_mean_and_std_are_set_together():
    config = override(RunConfig(), ["data.mean=[0.5]", "data.std=(0.25,)"]).data
    image, _ = load_splits(config).test[0]
    plain, _ = load_splits(DataConfig()).test[0]
    torch.testing.assert_close(image, (plain - 0.5) / 0.25)
    for lonely in ({"mean": (0.5,)}, {"std": (0.5,)}):
        with pytest.raises(ValueError, match=r"data.mean and data.std together"):
            load_splits(DataConfig(**lonely))


@pytest.mark.parametrize("workers", [0, 1])
def test_unfinished_pixels_normalised_by_the_loader_are_the_same_images(config: DataConfig, workers: int):
    train = load_splits(config).train
    loader = DeviceLoader(train, torch.device("cpu"), batch_sampler=BATCHES, num_workers=workers)
    assert train.unfinished()[0][0].dtype == torch.uint8
    # An epoch set on either is set on both: a trainer knows the loader's own copy.
    loader.dataset.set_epoch(2, seed=3)
    assert train.epoch == (2, 3)
    expected = torch.stack([train[index][0] for batch in BATCHES for index in batch])
    assert torch.equal(images_of(loader), expected)


@pytest.mark.gpu
@pytest.mark.parametrize("workers", [0, 2])
def test_loader_for_a_gpu(config: DataConfig, workers: int):
    config = dataclasses.replace(config, workers=workers)
    train = load_splits(config).train
    loader = create_loader(train, config, BATCHES, "cuda")
    loader.dataset.set_epoch(2)
    expected = torch.stack([train[index][0] for batch in BATCHES for index in batch])
    found = images_of(loader)
    assert found.device.type == "cuda"
    torch.testing.assert_close(found.cpu(), expected, rtol=0, atol=1e-5)


@pytest.mark.gpu
def test_gpu_cache_leaves_to_the_cpu_what_is_no_whole_jpeg(config: DataConfig):
    root = Path(config.root)
    save_image(root / "test" / "cat" / "9.png", seed=9)
    part = load_splits(dataclasses.replace(config, transform="paper")).test
    batches = GpuBatches(part, [[0, 1, 2, 3]], "cuda")
    assert batches.decoded == {"gpu": 3, "cpu": 1}
    cut = root / "test" / "dog" / "0.jpg"
    cut.write_bytes(cut.read_bytes()[:-60])
    with pytest.raises(BadImageError, match=r"dog/0.jpg"):
        GpuBatches(part, [[0]], "cuda")


@pytest.mark.gpu
def test_gpu_cache_that_does_not_fit(config: DataConfig):
    part = load_splits(dataclasses.replace(config, transform="paper", image_size=8000)).train
    part.indices, part.targets = part.indices.repeat(200), part.targets.repeat(200)
    with pytest.raises(ValueError, match=r"GiB of pixels .* GiB free"):
        GpuBatches(part, [[0]], "cuda")
