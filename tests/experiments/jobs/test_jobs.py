"""Jobs: what they compute, and the record that each leaves."""

import json

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from isice.config import config_hash, override
from isice.experiments import jobs
from isice.experiments.jobs import _measure, run_job
from isice.experiments.jobs.bench import BenchConfig, measure
from isice.experiments.jobs.dataset import DatasetConfig, dataset_sizes
from isice.experiments.jobs.samples import SamplesConfig
from isice.experiments.jobs.structure import StructureConfig, estimation_error, random_precision
from isice.experiments.loader import load_experiment, load_recipe
from isice.experiments.runner import run_experiment
from isice.records import find_records
from isice.report.report_page import build_report
from isice.report.results import load_results


def record(folder):
    return json.loads((folder / "record.json").read_text(encoding="utf-8"))


def test_a_training_run_is_evaluated_once_at_its_end(tmp_path, monkeypatch):
    monkeypatch.setattr("isice.inference.evaluate_run", None)  # a second pass over the test images
    settings = ["optim.epochs=1", "model.reduce=4", "model.pooling=gap", "device=cpu"]
    config = override(load_recipe("small"), settings)
    run_job(config, tmp_path, "label")
    assert record(tmp_path)["hash"] == config_hash(config)
    (evaluation,) = json.loads((tmp_path / "evaluation.json").read_text(encoding="utf-8"))["evaluations"]
    assert evaluation["top1"] == pytest.approx(record(tmp_path)["accuracy"]["test"])
    before = (tmp_path / "evaluation.json").stat().st_mtime_ns
    run_job(config, tmp_path, "label")  # finished: nothing is done again
    assert (tmp_path / "evaluation.json").stat().st_mtime_ns == before


def test_a_new_kind_is_one_file(tmp_path, monkeypatch):
    (tmp_path / "square.py").write_text(
        "from dataclasses import dataclass\n"
        "from isice.experiments.job_configs import Job\n"
        "@dataclass(frozen=True)\n"
        "class SquareConfig:\n"
        "    side: int = 1\n"
        "    seed: int = 0\n"
        "JOB = Job(SquareConfig, compute=lambda config: {'area': config.side**2})\n"
    )
    monkeypatch.setattr(jobs, "__path__", [*jobs.__path__, str(tmp_path)])
    (tmp_path / "mine.toml").write_text(
        "[experiment]\nkind = 'square'\n[grid]\nside = [2, 3]\n[metrics]\narea = { key = 'area' }\n"
    )
    experiment = load_experiment(tmp_path / "mine.toml")
    run_experiment(experiment, tmp_path / "runs", run_job)
    assert [record["area"] for record in find_records(tmp_path)] == [4, 9]
    (table,) = build_report(load_results(tmp_path / "runs")).comparisons
    assert table.to_table().rows == [("2", "4.0"), ("3", "9.0")]


@pytest.mark.parametrize("pooling", ["gap", "isice_mlp"])
def test_a_step_is_measured(tmp_path, pooling):
    config = BenchConfig(backbone="small_cnn", pooling=pooling, image_size=16, batch_size=2, reduce=4, repeats=2)
    run_job(config, tmp_path, "label")
    found = record(tmp_path)
    assert (found["status"], found["kind"], found["repeats"]) == ("finished", "bench", 2)
    assert found["batch_seconds"] > 0
    assert found["epoch_minutes"] == pytest.approx(found["batch_seconds"] * 63345 / 60)  # 126,689 images in pairs
    assert found["seconds"] >= found["batch_seconds"]
    assert found["hardware"]["device"] == "cpu" or found["peak_gib"] > 0


def test_a_layer_is_measured():
    config = BenchConfig(what="layer", pooling="precision", channels=8, side=3, batch_size=2, repeats=1, device="cpu")
    found = measure(config)
    assert found["forward_ms"] > 0
    assert found["forward_backward_ms"] > 0
    assert found["kept_gb_per_image"] == pytest.approx(found["kept_mib"] * 2**20 / 2 / 1e9)
    assert found["peak_mib"] is None


def test_slow_work_is_measured_once(monkeypatch):
    calls = []
    assert _measure.median_seconds(lambda: calls.append(1), torch.device("cpu"), 4)[1] == 4
    assert len(calls) == 5  # and a warm-up
    monkeypatch.setattr(_measure, "SLOW_SECONDS", -1.0)
    assert _measure.median_seconds(lambda: None, torch.device("cpu"), 4)[1] == 1


def test_what_is_kept_is_counted_once_and_without_weights_and_input():
    layer = nn.Sequential(nn.Linear(4, 4), nn.Sigmoid(), nn.Sigmoid())
    # The linear layer keeps its input and weight, each sigmoid its own output: 2 · 3 · 4 floats.
    assert _measure.saved_bytes(layer, torch.rand(3, 4)) == 2 * 3 * 4 * 4


def test_tf32_is_put_back():
    before = torch.get_float32_matmul_precision()
    with _measure.tf32(True):
        assert torch.get_float32_matmul_precision() == "high"
    assert torch.get_float32_matmul_precision() == before


@pytest.mark.gpu
def test_peak_memory_on_a_gpu():
    config = BenchConfig(what="layer", pooling="isice", channels=64, batch_size=8, device="cuda")
    assert measure(config)["peak_mib"] > 0


def test_a_failed_measurement_is_recorded(tmp_path):
    with pytest.raises(ValueError, match="Did you mean 'isice'"):
        run_job(BenchConfig(what="layer", pooling="isic"), tmp_path, "label")
    assert record(tmp_path)["status"] == "failed"
    assert "Did you mean 'isice'" in record(tmp_path)["error"]


def two_images(root, missing=False):
    """A miniature of MIT Indoor: two training images of two classes, one test image."""
    lists = {"Train": ["bakery/a.png", "bar/b.png"], "Test": ["bar/c.png"]}
    for name, lines in lists.items():
        (root / "Images").mkdir(parents=True, exist_ok=True)
        (root / f"{name}Images.txt").write_text("\n".join(lines))
        for line in lines[: -1 if missing and name == "Train" else None]:
            (root / "Images" / line).parent.mkdir(exist_ok=True)
            Image.new("RGB", (12, 10), "green").save(root / "Images" / line)
    return root


def test_datasets_are_counted_in_their_files(tmp_path):
    found = dataset_sizes(DatasetConfig("mit_indoor67", root=str(two_images(tmp_path / "whole"))))
    assert found == {"classes": 2, "images": {"total": 3, "train": 2, "test": 1}}
    part = two_images(tmp_path / "part", missing=True)
    assert dataset_sizes(DatasetConfig("mit_indoor67", root=str(part)))["images"]["train"] == 1
    with pytest.raises(ValueError, match=r"data\.root"):
        dataset_sizes(DatasetConfig("mit_indoor67"))


def test_sample_images(tmp_path):
    root = str(two_images(tmp_path / "data"))
    run_job(SamplesConfig("mit_indoor67", height=20, root=root), tmp_path / "run", "label")
    assert record(tmp_path / "run")["shown"] == [{"index": 0, "class": "bar"}]
    assert Image.open(tmp_path / "run" / "samples.png").size == (24, 20)


@pytest.mark.parametrize("structure", ["dense", "dense_mild", "sparse"])
def test_random_structures(structure):
    matrix = random_precision(structure, 60, np.random.default_rng(0))
    assert np.linalg.eigvalsh(matrix)[0] > 0
    np.testing.assert_array_equal(matrix, matrix.T)
    zeros = (matrix == 0).mean()
    assert 0.9 < zeros < 0.99 if structure == "sparse" else zeros == 0


def test_maximum_likelihood_is_the_inverse_of_the_sample_covariance():
    config = StructureConfig("sparse", "mle", size=5, samples=40, seed=3)
    rng = np.random.default_rng(3)
    truth = random_precision("sparse", 5, rng)
    x = rng.multivariate_normal(np.zeros(5), np.linalg.inv(truth), size=40)
    x = x - x.mean(axis=0)
    expected = np.linalg.norm(np.linalg.inv(x.T @ x / 40) - truth)
    assert estimation_error(config)["error"] == pytest.approx(expected)
    with pytest.raises(ValueError, match="more than 5 samples"):
        estimation_error(StructureConfig("sparse", "mle", size=5, samples=5))


def test_sparse_estimation_wins_on_a_sparse_truth_and_not_on_a_dense_one():
    """What the paper says of its figure, at its size, every seed; 1 is the error of zero."""

    def errors(structure, samples, seed):
        configs = [StructureConfig(structure, estimator, samples=samples, seed=seed) for estimator in ("sice", "mle")]
        return [estimation_error(config)["relative_error"] for config in configs]

    for seed in range(3):
        for samples in (120, 300):
            sice, mle = errors("sparse", samples, seed)
            assert sice < 0.45
            assert sice < 0.4 * mle
            assert min(errors("dense", samples, seed)) > 0.85  # both are high
        sice, mle = errors("sparse", 800, seed)
        assert sice < 0.7 * mle
        sice, mle = errors("dense", 400, seed)
        assert sice > 1.2 * mle


def test_cross_validation_helps_on_a_mild_dense_truth_with_few_samples_only():
    """Where it does not hold: with few samples, shrinkage beats a nearly singular inverse."""

    def ratio(samples):
        """Error of SICE over that of maximum likelihood, mean over seeds."""
        sice, mle = (
            [
                estimation_error(StructureConfig("dense_mild", estimator, "cv", 30, samples, seed))["error"]
                for seed in range(3)
            ]
            for estimator in ("sice", "mle")
        )
        return np.mean(sice) / np.mean(mle)

    assert ratio(45) < 0.5
    assert ratio(1500) > 1
