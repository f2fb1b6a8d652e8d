"""Weights that are not finite: never a finished record, a percentage or invalid JSON."""

import json

import pytest
import torch
from torch import nn

from isice.config import override
from isice.inference import evaluate_run, load_predictor
from isice.train import load_trained, train_run
from isice.train.anomaly import first_nonfinite_weights
from isice.train.checkpoint import save_checkpoint

from ._birds import config, make_pictures, make_untrained
from ._tiny import TINY, Linear


class BreaksAtTheEnd(Linear):
    """The gradient of step ``last`` is infinite, so that only its update breaks the weights."""

    def __init__(self, last: int) -> None:
        super().__init__()
        self.calls, self.last = 0, last

    def forward(self, x, return_loss=False):
        if return_loss:
            self.calls += 1
            if self.calls == self.last:
                self.classifier.weight.register_hook(lambda grad: grad * float("inf"))
        return super().forward(x, return_loss)


@pytest.mark.parametrize("select_on", ["last", "val"])
def test_weights_that_break_in_the_last_step(tmp_path, select_on):
    settings = override(TINY, ["optim.epochs=1", "optim.optimizer=sgd", f"select_on={select_on}"])

    def build(config, splits):
        return BreaksAtTheEnd(last=len(splits.train) // config.data.batch_size)

    with pytest.raises(FloatingPointError, match=r"finite weights after epoch 1, got others in classifier\.weight"):
        train_run(settings, tmp_path, build=build)
    assert json.loads((tmp_path / "record.json").read_text())["status"] == "failed"
    assert not (tmp_path / "checkpoints" / "best").exists()


@pytest.fixture
def broken(tmp_path):
    """A run with NaN in its weights, as earlier versions could leave it."""
    run = make_untrained(tmp_path / "run", "folder", in_chans=3, num_classes=5)
    trained = load_trained(run)
    nn.init.constant_(trained.model.classifier.bias, float("nan"))
    data = config(make_pictures(tmp_path / "pictures"))
    save_checkpoint(run, "best", config=data, classes=trained.classes, model=trained.model, epoch=1, step=0)
    return run, tmp_path / "pictures" / "test" / "crow" / "0.png"


def test_eval_predict_and_json(broken):
    from typer.testing import CliRunner

    from isice.cli import app

    run, picture = broken
    with pytest.raises(FloatingPointError, match=r"expected finite weights .*got others in classifier\.bias"):
        evaluate_run(run)
    for command in (["eval", str(run), "--json"], ["predict", str(run), str(picture), "--json"]):
        result = CliRunner().invoke(app, command)
        assert result.exit_code != 0
        assert "nan" not in result.stdout.lower()


def test_predictions_that_are_not_finite_are_errors(broken, tmp_path):
    run = make_untrained(tmp_path / "whole", "folder", in_chans=3, num_classes=5)
    predictor = load_predictor(run, device="cpu")
    nn.init.constant_(predictor.model.classifier.bias, float("inf"))
    (found,) = predictor.predict([broken[1]])
    assert found.error == "the network's output is not finite"
    json.dumps(found.to_dict(), allow_nan=False)


def test_first_nonfinite_weights():
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    assert first_nonfinite_weights(model) is None
    model[1].running_var.fill_(torch.inf)
    assert first_nonfinite_weights(model) == "1.running_var"
