"""Data-driven start of poolings: which want it, which features they get, what stays unchanged."""

import math

import pytest
import torch
from torch import nn

import isice
from isice.models import create_model
from isice.pooling import create_pooling, list_poolings

DATA_DRIVEN = {"netvlad", "netfv", "low_rank_bilinear", "deep_kspd", "kernel_pooling"}


def network(pooling: str) -> nn.Module:
    torch.manual_seed(0)
    return create_model("small_cnn", pooling=pooling, num_classes=3, reduce=8, in_chans=1)


def batches(count: int = 4) -> list[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(0)
    return [(torch.rand(16, 1, 16, 16, generator=generator), torch.zeros(16)) for _ in range(count)]


def test_poolings_say_whether_they_want_data():
    assert {name for name in list_poolings() if create_pooling(name, 8, num_classes=3).wants_data} == DATA_DRIVEN
    for spec in ("partial_correlation(standardize=True)", "isqrt_cov(standardize=True)", "gap + netvlad(n_clusters=4)"):
        assert create_pooling(spec, 8).wants_data
    assert not create_pooling("kernel_pooling(gamma=1.0)", 8).wants_data
    assert not create_pooling("deep_kspd(theta=1.0)", 8).wants_data


@pytest.mark.parametrize("name", sorted(DATA_DRIVEN))
def test_initialize_changes_the_pooling_and_nothing_else(name):
    model = network(f"{name}(n_clusters=4)" if name == "netvlad" else name)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    assert isice.initialize(model, batches(), images=40) == 40
    changed = {key for key, value in model.state_dict().items() if not torch.equal(value, before[key])}
    assert changed
    assert all(key.startswith("pooling.") for key in changed)
    assert all(module.training for module in model.modules())


@pytest.mark.parametrize("name", sorted(DATA_DRIVEN))
def test_the_start_is_computed_in_float32_under_autocast(name):
    """The decomposition of low_rank_bilinear does not exist in bfloat16."""
    torch.manual_seed(0)
    pooling, seen = create_pooling(name, 8, num_classes=3), []
    model = network("gap")
    model.pooling = pooling
    model.forward_features = lambda x: seen.append(torch.is_autocast_enabled("cpu")) or x.repeat(1, 8, 1, 1)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        isice.initialize(model, batches(1))
    expected = create_pooling(name, 8, num_classes=3)
    expected.load_state_dict(pooling.state_dict())
    expected.init_from(batches(1)[0][0].repeat(1, 8, 1, 1))
    assert seen == [True]
    for key, value in expected.state_dict().items():
        torch.testing.assert_close(pooling.state_dict()[key], value, msg=key)


def test_the_features_are_those_of_the_first_training_step():
    model, seen = network("isqrt_cov(standardize=True)"), []
    model.pooling.init_from = seen.append
    first = batches(1)[0][0]
    isice.initialize(model, [first])
    torch.testing.assert_close(seen[0], model.train().forward_features(first))


def test_the_size_of_batches_does_not_change_the_images():
    model, seen = create_model("identity", pooling="netvlad", num_classes=2, reduce=None, in_chans=1), []
    model.pooling.init_from = seen.append
    x = torch.rand(48, 1, 4, 4)
    assert [isice.initialize(model, x.split(size), images=40) for size in (25, 16, 48)] == [40, 40, 40]
    assert all(torch.equal(features, x[:40]) for features in seen)


def test_a_pooling_without_parameters_from_data_reads_nothing():
    def loader():
        raise AssertionError("a batch was read")
        yield

    assert isice.initialize(network("isice"), loader()) == 0


def test_an_empty_loader_and_another_model_are_errors():
    with pytest.raises(ValueError, match="initialize: expected at least one batch"):
        isice.initialize(network("netvlad"), [])
    with pytest.raises(TypeError, match="initialize: expected a Network, got Linear"):
        isice.initialize(nn.Linear(1, 1), batches())
    with pytest.raises(TypeError, match=r"got DataParallel; pass the network before it is compiled or wrapped"):
        isice.initialize(nn.DataParallel(network("netvlad")), batches())


@pytest.mark.parametrize(
    ("loader", "error", "message"),
    [
        ([{"image": torch.rand(2, 1, 8, 8)}], TypeError, r"got a dict with the keys image; pass a generator"),
        ("images", TypeError, "got a str; pass a generator"),
        ([()], TypeError, "got a tuple; pass a generator"),
        ([torch.rand(0, 1, 8, 8)], ValueError, r"expected at least one image in every batch, got \(0, 1, 8, 8\)"),
        ([torch.full((2, 1, 8, 8), math.nan)], ValueError, "expected finite features of 2 training images, got NaN"),
    ],
)
def test_batches_without_usable_images_are_errors(loader, error, message):
    model = network("netvlad(n_clusters=2)")
    before = model.pooling.centres.clone()
    with pytest.raises(error, match=f"^initialize: .*{message}"):
        isice.initialize(model, loader)
    assert torch.equal(model.pooling.centres, before)


def test_kernel_pooling_takes_gamma_from_the_mean_inner_product():
    layer = create_pooling("kernel_pooling(order=2, n_features=8)", 2)
    # Two orthogonal unit positions per image: inner products 1, 0, 0, 1, mean ½, so γ = 2.
    layer.init_from(torch.eye(2).reshape(1, 2, 1, 2))
    expected = [math.exp(-2) * 4 ** (i / 2) / math.sqrt(math.factorial(i)) for i in range(3)]
    assert layer.coefficients.tolist() == pytest.approx(expected)
    layer.init_from(torch.zeros(1, 2, 2, 2))
    assert layer.coefficients.isfinite().all()
