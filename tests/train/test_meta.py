"""``meta.json`` of a checkpoint: damage is found, earlier versions load, no other file is read."""

import json
from pathlib import Path

import numpy as np
import pytest

from isice.config import RunConfig
from isice.models import create_model
from isice.train import load_trained
from isice.train.checkpoint import read_checkpoint, save_checkpoint


@pytest.fixture
def meta(tmp_path):
    model = create_model("small_cnn", pooling="gap", num_classes=2, reduce=4, in_chans=1)
    place = save_checkpoint(
        tmp_path, "best", config=RunConfig(), classes=("a", "b"), model=model, epoch=1, step=0, state=None
    )
    return place / "meta.json"


def edit(meta, **changes):
    """Write the file as an earlier version did, with changes; ``...`` removes a key."""
    content = json.loads(meta.read_text())
    for name in ("sha256", "data"):  # an earlier version wrote neither
        content.pop(name, None)
    content |= changes
    meta.write_text(json.dumps({key: value for key, value in content.items() if value is not ...}))


def test_every_flipped_bit_is_found(tmp_path, meta):
    original, rng = meta.read_bytes(), np.random.default_rng(0)
    content = json.loads(original)
    for place in rng.integers(0, len(original), 300):
        damaged = bytearray(original)
        damaged[place] ^= 1 << int(rng.integers(0, 8))
        meta.write_bytes(damaged)
        try:
            found = read_checkpoint(tmp_path, "best").meta
        except ValueError as error:
            assert "meta.json" in str(error)  # noqa: PT017
        else:  # white space between the values
            assert found == content


def test_checkpoint_of_an_earlier_version_loads(tmp_path, meta):
    edit(meta)
    assert load_trained(tmp_path).classes == ("a", "b")


@pytest.mark.parametrize("key", ["schema", "hash", "config", "classes", "network", "epoch", "step", "files"])
def test_missing_key(tmp_path, meta, key):
    edit(meta, **{key: ...})
    with pytest.raises(ValueError, match=f"meta.json.*{key}"):
        load_trained(tmp_path)


@pytest.mark.parametrize("content", ["", "{}", "[]", "null", '"text"', "3", "[" * 100_000])
def test_other_content(tmp_path, meta, content):
    meta.write_text(content)
    with pytest.raises(ValueError, match=r"meta\.json"):
        load_trained(tmp_path)


@pytest.mark.parametrize("name", ["../../../secret", "/etc/hostname", "state.pt/../../x", "other.bin"])
def test_files_stay_inside_the_checkpoint(tmp_path, meta, name, monkeypatch):
    files = json.loads(meta.read_text())["files"]
    edit(meta, files=files | {name: "0" * 64})
    monkeypatch.setattr(Path, "read_bytes", lambda path: pytest.fail(f"{path} was read"))
    with pytest.raises(ValueError, match="files outside the checkpoint are not read"):
        read_checkpoint(tmp_path, "best")


def test_weights_must_be_listed(tmp_path, meta):
    edit(meta, files={})
    with pytest.raises(ValueError, match=r"expected model\.safetensors"):
        read_checkpoint(tmp_path, "best")
