"""Names and shapes in state dicts do not change between versions, so saved checkpoints load."""

import json
from pathlib import Path

import pytest

import isice

SAVED = json.loads((Path(__file__).parent / "state_dicts.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("pooling", SAVED)
def test_state_dict_has_the_saved_names_and_shapes(pooling):
    model = isice.create_model("small_cnn", pooling=pooling, num_classes=3, reduce=16, widths=(8, 8))
    assert {name: list(value.shape) for name, value in model.state_dict().items()} == SAVED[pooling]
