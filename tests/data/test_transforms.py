"""Sizes, values and randomness of the transforms."""

import pytest
import torch
from PIL import Image
from torchvision.transforms import v2

from isice.data.transforms import IMAGENET_MEAN, IMAGENET_STD, TRANSFORMS, Normalize, create_transforms

IMAGE = torch.randint(0, 256, (3, 60, 90), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("kind", TRANSFORMS)
@pytest.mark.parametrize("size", [448, 299, 224, 17])
def test_sizes(kind: str, size: int):
    for transform in create_transforms(kind, size):
        out = transform(IMAGE)
        assert (out.shape, out.dtype) == ((3, size, size), torch.float32)
        assert out.isfinite().all()


@pytest.mark.parametrize("kind", TRANSFORMS)
def test_evaluation_is_deterministic_and_moves_no_generator(kind: str):
    _, evaluate = create_transforms(kind, 32)
    state = torch.get_rng_state()
    assert torch.equal(evaluate(IMAGE), evaluate(IMAGE))
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("kind", ["paper", "crop", "randaugment"])
def test_training_is_random_by_torchs_generator_alone(kind: str):
    train, _ = create_transforms(kind, 32, color_jitter=0.3)
    torch.manual_seed(0)
    first = [train(IMAGE) for _ in range(6)]
    torch.manual_seed(0)
    again = [train(IMAGE) for _ in range(6)]
    assert all(map(torch.equal, first, again))
    assert not all(torch.equal(first[0], other) for other in first)


def test_paper_resizes_to_a_square_and_flips_half_of_the_time():
    train, evaluate = create_transforms("paper", 32)
    plain = evaluate(IMAGE)
    torch.manual_seed(0)
    results = [train(IMAGE) for _ in range(200)]
    assert all(torch.equal(out, plain) or torch.equal(out, plain.flip(-1)) for out in results)
    assert 70 < sum(torch.equal(out, plain) for out in results) < 130


def test_paper_against_pillow():
    _, evaluate = create_transforms("paper", 32, mean=None, std=None)
    resized = Image.fromarray(IMAGE.permute(1, 2, 0).numpy()).resize((32, 32), Image.Resampling.BILINEAR)
    expected = torch.tensor(list(resized.tobytes())).view(32, 32, 3).permute(2, 0, 1) / 255
    torch.testing.assert_close(evaluate(IMAGE), expected, rtol=0, atol=1.5 / 255)


def test_none_is_the_same_in_training():
    train, evaluate = create_transforms("none", 20)
    assert torch.equal(train(IMAGE), evaluate(IMAGE))
    assert train.only_flips


def test_evaluation_of_crop_keeps_the_aspect():
    # A picture that is white left and right of its central square: none of that
    # is in the central crop.
    image = torch.full((3, 64, 192), 255, dtype=torch.uint8)
    image[:, :, 64:128] = 0
    _, evaluate = create_transforms("crop", 28, mean=None, std=None)
    assert evaluate(image).max() == 0
    _, square = create_transforms("paper", 28, mean=None, std=None)
    assert square(image).max() == 1


def test_normalisation():
    _, evaluate = create_transforms("none", 4)
    black, white = (evaluate(torch.full((3, 4, 4), value, dtype=torch.uint8))[:, 0, 0] for value in (0, 255))
    mean, std = torch.tensor(IMAGENET_MEAN), torch.tensor(IMAGENET_STD)
    torch.testing.assert_close(black, -mean / std)
    torch.testing.assert_close(white, (1 - mean) / std)


def test_wrong_arguments():
    with pytest.raises(ValueError, match=r"transform to be one of .* Did you mean 'paper'"):
        create_transforms("papers", 8)
    with pytest.raises(ValueError, match="mean and std together"):
        create_transforms("paper", 8, mean=None)
    with pytest.raises(ValueError, match="as many positive std"):
        create_transforms("paper", 8, mean=(0.5, 0.5), std=(1.0,))


def test_normalisation_against_torchvision():
    own = Normalize(IMAGENET_MEAN, IMAGENET_STD)
    theirs = v2.Compose([v2.ToDtype(torch.float32, scale=True), v2.Normalize(IMAGENET_MEAN, IMAGENET_STD)])
    for image in (IMAGE, IMAGE.expand(2, -1, -1, -1), IMAGE / 255):
        before = image.clone()
        torch.testing.assert_close(own(image), theirs(image), rtol=0, atol=2e-6)
        assert torch.equal(image, before)


def test_center_keeps_the_aspect_ratio_and_takes_the_central_square():
    train, evaluate = create_transforms("center", 4, mean=None, std=None)
    image = torch.arange(8, dtype=torch.uint8).expand(3, 4, 8).contiguous()  # twice as wide as high
    torch.testing.assert_close(255 * evaluate(image)[0, 0], torch.tensor([2.0, 3, 4, 5]))
    assert train.only_flips
    assert len(train.augment) == 1
    assert not evaluate.augment
