"""Run folders with hand-written records: all that reports need."""

import json

import numpy as np
import pytest

from isice.config import RunConfig, config_hash, override, to_dict


def _write_run(folder, pooling, seed, accuracy, status="finished"):
    config = override(RunConfig(), [f"model.pooling={pooling}", f"seed={seed}"])
    record = {
        "schema": 1,
        "status": status,
        "hash": config_hash(config),
        "config": to_dict(config),
        "seed": seed,
        "started": f"2026-01-01T00:00:{seed:02}+00:00",
        "commit": "0123456789ab",
        "versions": {"torch": "2.15.0"},
        "hardware": {"device": "cpu", "cores": 2},
    }
    if status == "failed":
        record |= {"error": "FloatingPointError: <b>nan</b>", "traceback": ""}
    else:
        rows = [
            {"epoch": e, "train_loss": 1 / e, "train_accuracy": 0.8, "val_accuracy": 0.7, "seconds": 2.0}
            for e in (1, 2, 3)
        ]
        record |= {
            "epochs": rows,
            "accuracy": {"val": accuracy - 0.1, "test": accuracy},
            "images": {"train": 100, "test": 50},
            "parameters": {"total": 12345, "classifier": 678},
        }
    run = folder / f"{pooling}-{seed}"
    run.mkdir(parents=True)
    (run / "record.json").write_text(json.dumps(record))
    if status == "finished":
        rng = np.random.default_rng(seed)
        key = "vectors" if pooling == "gap" else "matrices"
        values = rng.normal(size=(3, 4) if pooling == "gap" else (3, 4, 4))
        np.savez(
            run / "arrays.npz", classes=np.array(["a", "b", "c"]), images=rng.random((3, 8, 8, 1)), **{key: values}
        )
    return config


@pytest.fixture(scope="session")
def write_run():
    """Return a function that writes one run folder, as training does, and returns its config."""
    return _write_run


@pytest.fixture(scope="session")
def write_runs():
    """Return a function that writes two runs of gap, and a finished and a failed run of isice."""

    def write(folder):
        _write_run(folder, "gap", 0, 0.5)
        _write_run(folder, "gap", 1, 0.7)
        _write_run(folder, "isice", 0, 0.9)
        _write_run(folder, "isice", 1, 0.0, status="failed")
        return folder

    return write


@pytest.fixture
def runs(tmp_path, write_runs):
    return write_runs(tmp_path)
