"""The command line: what it prints, what it writes, how it fails."""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from isice import __version__, cli

QUICK = ["--set", "optim.epochs=1", "--set", "model.reduce=4", "--set", "device=cpu"]


def invoke(*arguments: str) -> str:
    result = CliRunner().invoke(cli.app, list(arguments))
    assert result.exit_code == 0, result.output
    return result.output


def main(monkeypatch, capsys, *arguments: str) -> tuple[int, str, str]:
    """Runs the entry point itself; returns its status and what it printed."""
    monkeypatch.setattr(sys, "argv", ["isice", *arguments])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    out, err = capsys.readouterr()
    return int(stop.value.code or 0), out, err


@pytest.fixture(autouse=True)
def wide(monkeypatch):
    monkeypatch.setattr(cli._out, "_width", 300)


def test_version():
    assert invoke("--version").strip() == f"isice {__version__}"


def test_list_shows_the_registry():
    from isice.pooling import list_poolings

    text = invoke("list")
    for name in list_poolings():
        assert name in text
    lines = text.splitlines()
    row = next(index for index, line in enumerate(lines) if re.match(r"\s*isice\s", line))
    assert "32,896" in lines[row]  # 256 · 257 / 2
    assert "sparsity=0.01" in lines[row + 1]


def test_list_backbones_datasets_experiments():
    text = invoke("list", "--backbones", "--datasets", "--experiments")
    for part in ("swin_base", "vgg16.tv_in1k", "digits", "1,347", "demo"):
        assert part in text


def test_doctor():
    text = invoke("doctor")
    assert "torch" in text
    assert "threads" in text
    assert "Nothing is missing." in text


def test_doctor_knows_what_the_package_needs(monkeypatch):
    with (Path(__file__).parents[1] / "pyproject.toml").open("rb") as file:
        lines = tomllib.load(file)["project"]["dependencies"]
    names = {re.match(r"[\w-]+", line)[0].replace("scikit-learn", "sklearn") for line in lines}
    assert names == set(cli._REQUIRED)
    monkeypatch.setattr(cli, "find_spec", lambda name: None if name == "timm" else object())
    result = CliRunner().invoke(cli.app, ["doctor"])
    assert result.exit_code == 1
    assert "missing: timm" in result.output


def test_dry_run_trains_nothing(tmp_path):
    text = invoke("run", "demo", "--out", str(tmp_path / "runs"), "--dry-run", "--seeds", "0,1")
    assert len(re.findall(r"\s10\s+train\s", text)) == 8
    assert not (tmp_path / "runs").exists()


def test_run_report_and_skip(tmp_path):
    arguments = ["run", "demo", "--out", str(tmp_path), *QUICK, "--set", "model.pooling=gap"]
    text = invoke(*arguments)
    assert "parameters" in text
    assert (tmp_path / "report.html").is_file()
    (record,) = tmp_path.glob("*/record.json")
    before = record.read_bytes()
    assert "gap: finished before, skipped" in invoke(*arguments)
    assert record.read_bytes() == before
    assert "skip: finished" in invoke(*arguments, "--dry-run")


def test_failed_cell_is_recorded_and_status_is_one(tmp_path):
    file = tmp_path / "two.toml"
    file.write_text('[experiment]\nrecipe = "small"\n[grid]\nmodel.pooling = ["isice(n_itr=1)", "gap"]\n')
    result = CliRunner().invoke(cli.app, ["run", str(file), "--out", str(tmp_path / "runs"), *QUICK])
    assert result.exit_code == 1
    assert "Did you mean 'n_iter'?" in result.output
    records = [json.loads(path.read_text(encoding="utf-8")) for path in (tmp_path / "runs").glob("*/record.json")]
    assert sorted(record["status"] for record in records) == ["failed", "finished"]


def test_train_one_and_report_it(tmp_path):
    text = invoke("train", "--pooling", "covariance", "--out", str(tmp_path), *QUICK)
    assert "covariance" in text
    record = json.loads((tmp_path / "record.json").read_text(encoding="utf-8"))
    assert record["config"]["model"] == {**record["config"]["model"], "pooling": "covariance", "reduce": 4}
    (tmp_path / "report.md").unlink()
    assert "covariance" in invoke("report", str(tmp_path))
    assert (tmp_path / "report.md").is_file()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "demoo"], "Did you mean 'demo'?"),
        (["run", "demo", "--set", "optim.lrr=1"], "Did you mean 'optim.lr'?"),
        (["run", "demo", "--set", "optim.lr=x"], "'optim.lr' to be of type float"),
        (["run", "demo", "--seeds", "a"], "expected --seeds like 0,1,2, got 'a'"),
        (["report", "nowhere"], "'nowhere', which does not exist"),
        (["train", "--data", "digit"], "Did you mean 'digits'?"),
    ],
)
def test_errors_are_one_line_and_status_two(monkeypatch, capsys, tmp_path, arguments, message):
    monkeypatch.chdir(tmp_path)
    status, _, err = main(monkeypatch, capsys, *arguments)
    assert status == 2
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert message in err


def test_debug_shows_the_traceback(monkeypatch):
    monkeypatch.setenv("ISICE_DEBUG", "1")
    monkeypatch.setattr(sys, "argv", ["isice", "report", "nowhere"])
    with pytest.raises(FileNotFoundError):
        cli.main()


def test_ctrl_c_is_130(monkeypatch, capsys):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "_report", interrupt)
    assert main(monkeypatch, capsys, "report", "anywhere")[0] == 130


def test_unknown_command_is_a_usage_error(monkeypatch, capsys):
    status, _, err = main(monkeypatch, capsys, "lst")
    assert status == 2
    assert "lst" in err


def test_help_is_quick_because_torch_stays_away():
    code = (
        "import sys\nsys.argv = ['isice', '--help']\nfrom isice.cli import main\n"
        "try:\n    main()\nfinally:\n    print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.rstrip().endswith("False")
    assert "doctor" in done.stdout
