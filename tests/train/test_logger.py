"""metrics.jsonl and TensorBoard agree with the epochs of the checkpoint."""

import builtins

import pytest

from isice.train.logger import MetricsLogger, read_metrics

ROWS = [{"epoch": epoch, "train_loss": 1.0 / epoch} for epoch in (1, 2, 3)]


def scalars(folder):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder / "tensorboard"))
    events.Reload()
    return [(event.step, event.value) for event in events.Scalars("train_loss")]


def test_lines_are_appended(tmp_path):
    logger = MetricsLogger(tmp_path, [], tensorboard=False)
    for row in ROWS:
        logger.append(row)
    assert read_metrics(tmp_path) == ROWS
    assert not (tmp_path / "tensorboard").exists()


def test_resuming_drops_rows_after_the_checkpoint(tmp_path):
    for known in ([], ROWS[:1]):
        logger = MetricsLogger(tmp_path, known)
        for row in ROWS[len(known) :]:
            logger.append(row)
        logger.close()
    assert read_metrics(tmp_path) == ROWS
    assert scalars(tmp_path) == [(row["epoch"], pytest.approx(row["train_loss"])) for row in ROWS]


def test_a_truncated_line_is_ignored(tmp_path):
    MetricsLogger(tmp_path, ROWS, tensorboard=False)
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"epoch": 4, "train_')
    assert read_metrics(tmp_path) == ROWS


def test_without_tensorboard_there_is_a_warning(tmp_path, monkeypatch):
    real = builtins.__import__

    def missing(name, *args, **kwargs):
        if name.startswith("torch.utils.tensorboard"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.warns(UserWarning, match="tensorboard is not installed"):
        MetricsLogger(tmp_path, ROWS).append(ROWS[0])
