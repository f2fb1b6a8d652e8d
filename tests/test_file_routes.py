"""Files of a run or an experiment cannot choose folders, downloads or code.

Other routes have their tests beside their subject: docs/internals/file_routes.md lists all.
"""

import json
import os

import numpy as np
import pytest
import torchvision.datasets

from isice.config import RunConfig, override, to_toml
from isice.experiments.loader import load_experiment
from isice.experiments.manifest import describe, read_manifest, write_manifest
from isice.experiments.runner import run_experiment
from isice.explain import explain_samples
from isice.inference.evaluate import evaluate_run
from isice.models import create_model
from isice.records import find_records, write_record
from isice.report.descriptor_plots import descriptors_figure
from isice.report.results import load_results
from isice.train import load_trained
from isice.train.checkpoint import save_checkpoint

from .report.conftest import _write_run

DOWNLOADING = override(RunConfig(), ["data.name=aircraft", "data.download=true"])


@pytest.mark.parametrize("pool", ["/", "../..", "elsewhere", "../other", "./", "", None, 3])
def test_an_experiment_file_chooses_no_folder_of_records(tmp_path, pool):
    folder = tmp_path / "runs" / "demo"
    write_manifest(describe(load_experiment("demo")), folder)
    path = folder / "experiment.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"pool": pool}))
    with pytest.raises(ValueError, match=r"expected pool to be one of '\.', '\.\.', got"):
        load_results(folder)


@pytest.mark.parametrize("runs_root", [".", ".."])
def test_an_experiment_reads_its_own_records_or_those_beside_it(tmp_path, runs_root):
    folder = tmp_path / "runs" / "demo"
    write_manifest(describe(load_experiment("demo"), runs_root), folder)
    assert read_manifest(folder).runs_root == runs_root


def test_another_pool_is_refused_before_a_run(tmp_path):
    with pytest.raises(ValueError, match="expected pool to be one of"):
        run_experiment(load_experiment("demo"), tmp_path / "a", lambda *_: None, runs_root=tmp_path / "b")
    assert not list(tmp_path.iterdir())


def test_a_record_does_not_choose_its_folder(tmp_path):
    write_record(tmp_path / "run", {"status": "started", "hash": "0", "started": "2026", "folder": "/etc"})
    assert [record["folder"] for record in find_records(tmp_path)] == [str(tmp_path / "run")]


class Payload:
    """A pickle that makes a folder when it is executed."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return os.mkdir, (self.path,)


def test_arrays_execute_nothing(tmp_path):
    content = np.array([Payload(tmp_path / "executed")], dtype=object)
    _write_run(tmp_path, "isice", 0, 0.9)
    np.savez(tmp_path / "isice-0" / "arrays.npz", images=content, classes=content, matrices=content)
    with pytest.warns(UserWarning, match=r"arrays\.npz"):
        assert descriptors_figure(load_results(tmp_path)) is None
    assert not (tmp_path / "executed").exists()


@pytest.fixture
def downloading(tmp_path, monkeypatch):
    """A run whose files ask for a download; starting one fails the test."""
    for name in ("FGVCAircraft", "DTD"):
        dataset = getattr(torchvision.datasets, name)
        monkeypatch.setattr(dataset, "_download", lambda self: pytest.fail("a download was started"))
    config = override(DOWNLOADING, [f"data.root={tmp_path / 'data'}"])
    (tmp_path / "data").mkdir()
    model = create_model("small_cnn", pooling="gap", num_classes=100, reduce=4)
    classes = tuple(map(str, range(100)))
    run = tmp_path / "run"
    save_checkpoint(run, "best", config=config, classes=classes, model=model, epoch=1, step=0)
    (run / "config.toml").write_text(to_toml(config))
    return run


def test_a_saved_run_starts_no_download(downloading):
    assert load_trained(downloading).config.data.download is False
    for use in (lambda: evaluate_run(downloading), lambda: explain_samples([downloading])):
        with pytest.raises(FileNotFoundError, match="data: expected 'aircraft' in"):
            use()


def test_a_saved_run_downloads_when_the_user_asks(downloading, monkeypatch):
    asked = []
    monkeypatch.setattr(torchvision.datasets.FGVCAircraft, "_download", lambda self: asked.append(self.root))
    with pytest.raises(FileNotFoundError):
        evaluate_run(downloading, settings=["data.download=true"])
    assert asked
