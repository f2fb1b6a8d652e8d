"""Every writer of the package: no file operation that fails loses a file that was there."""

import contextlib
import os
import shutil
from functools import cache
from itertools import count
from pathlib import Path

import numpy as np
import pytest
import torch

from isice import create_model
from isice._atomic import replace_files, write_atomically, write_folder
from isice._atomic import write_arrays as save_arrays
from isice.config import RunConfig, override
from isice.experiments.loader import load_experiment
from isice.experiments.manifest import describe, write_manifest
from isice.explanations import ChannelGraph, ExplainedImage, Explanation
from isice.inference import export, push_run
from isice.records import new_record, write_record
from isice.report import theme, write_report
from isice.report.explain_page import write_explanations
from isice.train.checkpoint import save_checkpoint
from isice.train.logger import MetricsLogger
from isice.train.scoring import add_evaluation
from tests._faults import FAULTS, inject

MOST_OPERATIONS = 200


def test_an_error_names_the_file_that_was_asked_for(tmp_path):
    path = tmp_path / "missing" / "record.json"
    with pytest.raises(FileNotFoundError) as caught:
        write_atomically(path, "text")
    assert caught.value.filename == str(path)


def network(seed):
    torch.manual_seed(seed)
    return create_model("small_cnn", pooling="gap", num_classes=2, reduce=4, in_chans=1)


def write_checkpoint(folder, seed):
    save_checkpoint(folder, "best", config=RunConfig(), classes=("a", "b"), model=network(seed), epoch=seed, step=0)


def write_record_(folder, seed):
    record = {"status": "finished", "hash": "0", "config": {}, "seed": seed, "started": "2026", "commit": None}
    write_record(folder, record | {"versions": {}, "hardware": {}, "accuracy": {"test": seed / 10}})


def write_evaluation(folder, seed):
    add_evaluation(folder, {"split": "test", "which": "best", "flip": False, "accuracy": seed})


def write_arrays(folder, seed):
    save_arrays(folder / "arrays.npz", vectors=np.full(9, seed))


def write_metrics(folder, seed):
    MetricsLogger(folder, [{"epoch": 1, "train_loss": seed}], tensorboard=False)


def write_experiment(folder, seed):
    write_manifest(describe(load_experiment("demo"), (".", "..")[seed - 1]), folder)


def write_shared(folder, seed):
    """``isice push`` into a folder, from a run outside of it."""
    run = folder.parent / f"run{seed}"
    if not run.exists():
        write_checkpoint(run, seed)
    with contextlib.chdir(folder):
        push_run(run, "./shared")


@cache
def program(seed):
    shapes = ({0: torch.export.Dim("batch", min=1)},)
    return torch.export.export(network(seed).eval(), (torch.rand(2, 1, 8, 8),), dynamic_shapes=shapes)


def write_program(folder, seed):
    facts = {"classes": ["a", "b"], "input": {"channels": 1, "image_size": 8}}
    traced = program(seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.export, "export", lambda *_, **__: traced)
        patch.setattr(export, "_difference", lambda model, call, shape: 0.0)
        export.export_model(network(seed), facts, "torch", folder / "model.pt2")


@cache
def onnx_program(seed):
    return torch.onnx.export(program(seed), dynamo=True, verbose=False, optimize=False)


def write_onnx(folder, seed):
    facts = {"classes": ["a", "b"], "input": {"channels": 1, "image_size": 8}}
    converted = onnx_program(seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.export, "export", lambda *_, **__: None)
        # Two conversions differ in names of the trace; what is tested is writing.
        patch.setattr(torch.onnx, "export", lambda *_, **__: converted)
        patch.setattr(export, "_difference", lambda model, call, shape: 0.0)
        export.export_model(network(seed), facts, "onnx", folder / "model.onnx")


def write_page(folder, seed):
    """``isice report`` of one run, then of two."""
    config = override(RunConfig(), [f"seed={seed}"])
    epochs = [{"epoch": e, "train_loss": 1 / e, "train_accuracy": 0.5, "seconds": 1.0} for e in (1, 2)]
    results = {"status": "finished", "accuracy": {"test": seed / 10}, "epochs": epochs, "images": {"test": 9}}
    record = new_record(config, {}) | {"started": "2026", **results, "parameters": {"total": 1}}
    write_record(folder / "runs" / str(seed), record)
    with quick_figures(seed):
        write_report(folder / "runs")


@contextlib.contextmanager
def quick_figures(seed):
    """Drawing takes long; what is tested is writing."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(theme, "_png", lambda draw, name: f"{name}{seed}".encode())
        yield


def write_heat_maps(folder, seed):
    picture = np.full((4, 4), seed / 10)
    nothing = np.zeros((0, 2))
    found = Explanation("a", 0.5, "a", picture, picture, ChannelGraph(np.eye(2), nothing, nothing, nothing))
    images = [ExplainedImage(name, name, picture, {"gap": found}) for name in ("one", "two", "three")[: 4 - seed]]
    with quick_figures(seed):
        write_explanations(images, folder, graphs=False)


def write_three(folder, seed):
    with replace_files(folder) as new:
        for name in "abc":
            (new / name).write_text(f"{name}{seed}")


WRITERS = [
    write_checkpoint, write_record_, write_evaluation, write_arrays, write_metrics, write_experiment, write_shared,
    write_three, write_page, write_heat_maps, write_program, pytest.param(write_onnx, marks=pytest.mark.slow),
]  # fmt: skip


def test_files_that_cannot_be_moved_back_are_kept(tmp_path, monkeypatch):
    write_three(tmp_path, 1)
    real, moves = Path.replace, []

    def replace(self, target):
        moves.append(self)
        if len(moves) > 2:  # the second file, and the undo of the first
            raise OSError("disk failure")
        return real(self, target)

    monkeypatch.setattr(Path, "replace", replace)
    with pytest.raises(OSError, match="disk failure"):
        write_three(tmp_path, 2)
    assert [path.read_text() for path in tmp_path.rglob("old/a")] == ["a1"]


def content(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("write", WRITERS, ids=lambda write: write.__name__.strip("_"))
def test_a_failing_operation_loses_nothing(tmp_path, write):
    old, new = tmp_path / "old", tmp_path / "new"
    old.mkdir()
    write(old, 1)
    shutil.copytree(old, new)
    write(new, 2)
    before, after = content(old), content(new)
    assert before != after
    for fault in FAULTS:
        for number in count(1):
            folder = tmp_path / f"{fault}{number}"
            shutil.copytree(old, folder)
            with inject(folder, number, fault) as happened:
                try:
                    write(folder, 2)
                    failed = False
                except OSError:
                    failed = True
            found = content(folder)
            if not happened():
                break
            where = f"{fault} at operation {number} (failed: {failed})"
            for name, earlier in before.items():
                kept = (earlier, after.get(name)) if failed else (after.get(name),)
                assert found.get(name) in kept, f"{where}: {name}"
            assert not [name for name in found if ".partial" in name], where
            assert number < MOST_OPERATIONS
        assert found == after


def test_files_that_belong_together_are_replaced_together(tmp_path):
    write_three(tmp_path / "old", 1)
    for number in count(1):
        folder = tmp_path / str(number)
        shutil.copytree(tmp_path / "old", folder)
        with inject(folder, number, "error") as happened:
            try:
                write_three(folder, 2)
            except OSError:
                assert content(folder) == content(tmp_path / "old")
        if not happened():
            break
    assert number > 6


def test_permissions_follow_the_umask(tmp_path):
    before = os.umask(0o027)
    try:
        write_atomically(tmp_path / "record.json", "{}")
    finally:
        os.umask(before)
    assert (tmp_path / "record.json").stat().st_mode & 0o777 == 0o640


def test_a_folder_is_replaced_as_a_whole(tmp_path):
    write_folder(tmp_path / "last", {"a": b"1", "b": b"1"})
    write_folder(tmp_path / "last", {"a": b"2"})
    assert content(tmp_path) == {"last/a": b"2"}
