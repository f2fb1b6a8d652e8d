"""The guide to experiments is true: its file loads, its table counts right."""

import re
from pathlib import Path

from isice.experiments.loader import list_experiments, load_experiment

GUIDE = (Path(__file__).parents[2] / "docs" / "experiments.md").read_text(encoding="utf-8")


def test_the_file_of_ones_own(tmp_path):
    (tmp_path / "mine.toml").write_text(re.search(r"```toml\n(.*?)```", GUIDE, flags=re.DOTALL)[1])
    experiment = load_experiment(tmp_path / "mine.toml")
    assert len(experiment.cells()) == 2 * 2 * 3
    assert dict(experiment.published.numbers)["sparse", "0.0003"] == "74.0"


def test_the_table_of_files():
    rows = re.findall(r"^\| (`.*?`) \| .*? \| ([\d, ]+).*? \| ([\d, ]*)", GUIDE, flags=re.MULTILINE)
    told = {}
    for names, runs, numbers in rows:
        words = re.findall(r"`(\w+)`", names)
        counts = [int(number) for number in numbers.replace(" ", "").split(",") if number] or [0] * len(words)
        told |= dict(zip(words, zip(map(int, runs.replace(" ", "").split(",")), counts, strict=True), strict=True))
    assert len(told) == 22
    for name, counts in told.items():
        experiment = load_experiment(name)
        assert counts == (len(experiment.cells()), len(experiment.published.numbers) if experiment.published else 0), (
            name
        )
    assert told.keys() <= set(list_experiments())
