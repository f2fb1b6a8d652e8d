"""Metrics against values worked out by hand or by another library."""

import math
import statistics

import numpy as np
import pytest
import torch
from sklearn.metrics import accuracy_score, confusion_matrix, recall_score, top_k_accuracy_score

from isice.metrics import ScoreKeeper, mean_std, wilson_interval


def test_mean_std():
    values = [0.25, 0.5, 1.0, 4.0]
    assert mean_std(values) == pytest.approx((statistics.mean(values), statistics.stdev(values), 4))
    assert math.isnan(mean_std([1.0]).std)
    with pytest.raises(ValueError, match="at least one"):
        mean_std([])


@pytest.mark.parametrize(("accuracy", "n"), [(0.0, 10), (0.3, 40), (0.97, 450), (1.0, 450)])
def test_wilson_ends_solve_its_equation(accuracy, n):
    z = 1.96
    for end in wilson_interval(accuracy, n, z):
        assert abs(accuracy - end) == pytest.approx(z * math.sqrt(end * (1 - end) / n), abs=1e-7)


def drawn():
    generator = torch.Generator().manual_seed(0)
    target = torch.randint(0, 5, (400,), generator=generator)  # the last class has no images
    logits = torch.randn(400, 6, generator=generator) + torch.nn.functional.one_hot(target, 6)
    return logits.softmax(dim=1), target


def kept(probabilities, target):
    keeper = ScoreKeeper(probabilities.shape[1])
    for chunk in range(0, len(target), 150):  # a ragged last batch
        keeper.update(probabilities[chunk : chunk + 150], target[chunk : chunk + 150])
    return keeper.scores()


def test_scores_agree_with_sklearn():
    probabilities, target = drawn()
    scores = kept(probabilities, target)
    predicted, true = probabilities.argmax(dim=1).numpy(), target.numpy()
    assert scores.images == 400
    assert scores.top1 == accuracy_score(true, predicted)
    expected = top_k_accuracy_score(true, probabilities.numpy(), k=5, labels=range(6))
    assert scores.top5 == pytest.approx(expected, abs=1e-6)
    matrix = confusion_matrix(true, predicted, labels=range(6))
    assert np.array_equal(scores.confusion.numpy(), matrix)
    recalls = recall_score(true, predicted, labels=range(5), average=None)
    assert scores.per_class[:5] == pytest.approx(recalls)
    assert scores.per_class[5] is None


def test_calibration_error_is_its_definition():
    probabilities, target = drawn()
    confidence, predicted = (part.double().numpy() for part in probabilities.max(dim=1))
    right = predicted == target.numpy()
    expected = 0.0
    for low in np.arange(15) / 15:
        inside = (confidence > low) & (confidence <= low + 1 / 15)
        if inside.any():
            expected += inside.mean() * abs(right[inside].mean() - confidence[inside].mean())
    assert kept(probabilities, target).ece == pytest.approx(expected, abs=1e-6)


def test_confused_pairs_are_the_most_frequent_mistakes():
    predicted = torch.tensor([0, 0, 0, 1, 1, 1, 2, 0])
    target = torch.tensor([0, 1, 1, 1, 0, 1, 2, 2])
    scores = kept(torch.nn.functional.one_hot(predicted, 3).float(), target)
    assert scores.confused_pairs(2) == [(1, 0, 2), (0, 1, 1)] or scores.confused_pairs(2) == [(1, 0, 2), (2, 0, 1)]
    assert len(scores.confused_pairs(9)) == 3
    assert scores.top5 is None


def test_score_keeper_errors():
    keeper = ScoreKeeper(3)
    with pytest.raises(ValueError, match=r"expected probabilities \(B, 3\), got \(2, 4\)"):
        keeper.update(torch.rand(2, 4), torch.zeros(2))
    with pytest.raises(FloatingPointError, match="got others for 1 of 2 images"):
        keeper.update(torch.tensor([[0.1, 0.2, 0.7], [math.nan, 0.5, 0.5]]), torch.zeros(2))
    with pytest.raises(ValueError, match="at least one image"):
        keeper.scores()
    with pytest.raises(ValueError, match="num_classes ≥ 2"):
        ScoreKeeper(1)
