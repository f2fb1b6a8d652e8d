"""Which configurations differ: a paired test on the test images that they share."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .results import Group

LEVEL = 0.05
_FLIPS = 10_000
TEST_NOTE = (
    "Intervals: 95 %, of Wilson, for the number of test images. “Against the best” compares a row with the most "
    "accurate row on the same test images: two-sided paired permutation test over the images "
    f"({_FLIPS:,} random sign flips of the difference in correctness, averaged over the runs of a row), with "
    f"Holm's correction. n.s.: not significant, p ≥ {LEVEL}."
)


@dataclass(frozen=True)
class Verdict:
    """How a configuration compares with the best one; ``p`` is None for the best itself."""

    p: float | None

    @property
    def significant(self) -> bool:
        """Whether the configuration is significantly worse than the best."""
        return self.p is not None and self.p < LEVEL

    @property
    def text(self) -> str:
        """The verdict in words, for a table."""
        if self.p is None:
            return "best"
        p = "p < 0.001" if self.p < 0.001 else f"p = {self.p:.2g}"
        return f"lower, {p}" if self.significant else f"n.s., {p}"


def compare_with_best(groups: Sequence[Group]) -> list[Verdict | None]:
    """Compare every configuration with the best one on the same test images.

    None stands for a configuration without stored predictions, or alone on its test images.
    """
    correct = [_correct(group) for group in groups]
    verdicts: list[Verdict | None] = [None] * len(groups)
    for key in {found[0] for found in correct if found is not None}:
        members = [(index, found[1]) for index, found in enumerate(correct) if found is not None and found[0] == key]
        if len(members) < 2:
            continue
        best, reference = max(members, key=lambda member: float(member[1].mean()))
        others = [(index, permutation_test(reference - values)) for index, values in members if index != best]
        verdicts[best] = Verdict(None)
        adjusted = holm([p for _, p in others])
        for (index, _), p in zip(others, adjusted, strict=True):
            verdicts[index] = Verdict(p)
    return verdicts


def permutation_test(differences: np.ndarray) -> float:
    """Return the two-sided p-value of paired differences (N,) whose signs are exchangeable.

    Example:
        >>> permutation_test(np.ones(20)) < 0.001, permutation_test(np.array([1.0, -1.0, 0.0]))
        (True, 1.0)
    """
    values = differences[differences != 0]
    if len(values) == 0:
        return 1.0
    rng, reached, observed = np.random.default_rng(0), 0, abs(values.sum()) - 1e-9
    for _ in range(_FLIPS // 1000):
        signs = rng.integers(0, 2, size=(1000, len(values)), dtype=np.int8) * 2.0 - 1.0
        reached += int((np.abs(signs @ values) >= observed).sum())
    return (1 + reached) / (1 + _FLIPS)


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values adjusted for multiple tests (Holm 1979).

    Example:
        >>> [round(p, 6) for p in holm([0.01, 0.04, 0.03])]
        [0.03, 0.06, 0.06]
    """
    order = np.argsort(p_values)
    adjusted, largest = [0.0] * len(p_values), 0.0
    for rank, index in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = largest
    return adjusted


def _correct(group: Group) -> tuple[tuple[object, ...], np.ndarray] | None:
    """Return the test images' identity, and the share of runs that classify each correctly."""
    found = [evaluation for evaluation in group.evaluations if evaluation.get("predicted")]
    if not found or any(evaluation["targets"] != found[0]["targets"] for evaluation in found):
        return None
    data = found[0]["data"]
    key = (data["name"], data.get("partition"), tuple(found[0]["classes"]), tuple(found[0]["targets"]))
    targets = np.array(found[0]["targets"])
    return key, np.mean([np.array(evaluation["predicted"]) == targets for evaluation in found], axis=0)
