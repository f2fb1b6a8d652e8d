"""Running a grid: skip by hash, failures recorded, Ctrl-C keeps what is finished."""

import json

import pytest
import timm
import torch

from isice.config import RunConfig, config_hash, override
from isice.experiments.job_configs import without_rounding
from isice.experiments.loader import load_experiment
from isice.experiments.runner import run_experiment
from isice.records import find_records, new_record, read_record, write_record
from isice.report.results import load_results


class Trainer:
    """A stand-in for training: write a record, and fail for the given poolings."""

    def __init__(self, *failing, error=RuntimeError):
        self.failing, self.error, self.calls = failing, error, []

    def __call__(self, config, folder, label):
        self.calls.append(label)
        failed = config.model.pooling in self.failing
        if failed and self.error is KeyboardInterrupt:
            raise KeyboardInterrupt
        folder.mkdir(parents=True, exist_ok=True)
        record = {"status": "failed" if failed else "finished", "hash": config_hash(config)}
        record["started"] = f"2026-01-01T00:00:{len(self.calls):02}"
        (folder / "record.json").write_text(json.dumps(record))
        if failed:
            raise self.error("it broke")


@pytest.fixture
def demo():
    return load_experiment("digits")


def test_finished_cells_are_skipped(demo, tmp_path):
    first, second = Trainer(), Trainer()
    assert len(run_experiment(demo, tmp_path, first).done) == 4
    outcome = run_experiment(demo, tmp_path, second)
    assert second.calls == []
    assert len(outcome.skipped) == 4


def test_force_runs_again(demo, tmp_path):
    run_experiment(demo, tmp_path, Trainer())
    again = Trainer()
    run_experiment(demo, tmp_path, again, force=True)
    assert len(again.calls) == 4


def test_other_settings_are_other_runs(demo, tmp_path):
    run_experiment(demo, tmp_path, Trainer())
    changed = Trainer()
    run_experiment(demo.with_settings(["optim.lr=0.5"]), tmp_path, changed)
    assert len(changed.calls) == 4


class RecordingTrainer(Trainer):
    """A stand-in that records its config, too."""

    def __call__(self, config, folder, label):
        self.calls.append(label)
        results = {"status": "finished", "images": {}, "parameters": {}, "epochs": [], "accuracy": {"test": 0.5}}
        write_record(folder, new_record(config, {}) | results)


@pytest.mark.parametrize("setting", ["precision=bf16", "data.cache=ram", "data.workers=2"])
def test_settings_of_rounding_and_memory_are_no_other_runs(demo, tmp_path, setting):
    run_experiment(demo, tmp_path, RecordingTrainer())
    again = RecordingTrainer()
    outcome = run_experiment(demo.with_settings([setting]), tmp_path, again)
    assert (again.calls, len(outcome.skipped)) == ([], 4)
    assert read_record(tmp_path / demo.cells()[0].name)["config"]["precision"] == "fp32"  # what it was computed in


def test_accumulation_is_another_run_where_batch_norm_sees_micro_batches(tmp_path):
    file = tmp_path / "one.toml"
    for settings, calls in (("reduce = 8", 1), ("reduce = 'none'", 0)):
        file.write_text(f"[config]\nmodel.backbone = 'vgg11'\nmodel.pooling = 'gap'\nmodel.{settings}\n")
        experiment, again = load_experiment(file), RecordingTrainer()
        run_experiment(experiment, tmp_path / settings, RecordingTrainer())
        run_experiment(experiment.with_settings(["optim.accumulate=2"]), tmp_path / settings, again)
        assert len(again.calls) == calls, settings


@pytest.mark.parametrize(
    "backbone", ["vgg11", "vgg11_bn", "vit_tiny_patch16_224", "vit_base_resnet26d_224", "resnet18"]
)
def test_accumulation_counts_in_networks_with_batch_norm(backbone):
    with torch.device("meta"):
        model = timm.create_model(backbone)
    counts = any(isinstance(module, torch.nn.BatchNorm2d) for module in model.modules())
    config = override(RunConfig(), [f"model.backbone={backbone}", "model.reduce=none", "optim.accumulate=2"])
    assert without_rounding(config).optim.accumulate == (2 if counts else 1)


def test_precisions_that_a_file_compares_are_different_runs(tmp_path):
    file = tmp_path / "two.toml"
    file.write_text("[grid]\nprecision = ['fp32', 'bf16']\n")
    first = RecordingTrainer()
    outcome = run_experiment(load_experiment(file), tmp_path, first)
    assert (len(outcome.done), len(set(outcome.done))) == (2, 2)
    groups = load_results(tmp_path).groups
    assert [[record["config"]["precision"] for record in group.records] for group in groups] == [["fp32"], ["bf16"]]


def test_a_failed_cell_does_not_stop_the_others_and_is_run_again(demo, tmp_path):
    told = []
    outcome = run_experiment(demo, tmp_path, Trainer("isqrt_cov"), tell=told.append)
    assert len(outcome.done) == 3
    assert list(outcome.failed.values()) == ["RuntimeError: it broke"]
    assert told == ["isqrt_cov: failed: RuntimeError: it broke"]
    again = Trainer()
    run_experiment(demo, tmp_path, again)
    assert again.calls == ["isqrt_cov"]


def test_interrupt_stops_and_keeps_finished_records(demo, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        run_experiment(demo, tmp_path, Trainer("precision", error=KeyboardInterrupt))
    assert [record["status"] for record in find_records(tmp_path)] == ["finished", "finished"]
    rest = Trainer()
    run_experiment(demo, tmp_path, rest)
    assert rest.calls == ["precision", "isice"]
