"""docs/data.md says what the table and the record say."""

import json
import re
from pathlib import Path

from isice.data import DATASETS

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "data.md").read_text(encoding="utf-8")


def test_every_dataset_with_its_counts():
    for name, info in DATASETS.items():
        row = next(line for line in TEXT.splitlines() if re.match(rf"\| .*`{name}`", line))
        for count in (info.num_classes, info.train_size, info.test_size):
            assert ("any" if count is None else f"{count:,}") in row, name


def test_speeds_are_those_of_the_record():
    record = json.loads((ROOT / "benchmarks" / "results" / "input_pipeline_h200.json").read_text(encoding="utf-8"))
    speeds = TEXT[TEXT.index("## Speed") :]
    by_path: dict[str, list[int]] = {}
    for row in record["rows"]:
        by_path.setdefault(row["path"], []).append(round(row["images_per_second"]))
    for path, numbers in by_path.items():
        if len(numbers) > 1:
            assert f"| {path} | {' | '.join(map(str, numbers))} |" in speeds
        else:
            assert re.search(rf"\b{numbers[0]}\b", speeds), path
