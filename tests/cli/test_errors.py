"""How the command line fails: one line, exit status, hints; and how options are spelled."""

import re
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import timm
import torch

from isice import cli

from ..train._birds import make_untrained
from ._invoke import invoke, main


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "digitss"], "Did you mean 'digits'?"),
        (["run", "digits", "--set", "optim.lrr=1"], "Did you mean 'optim.lr'?"),
        (["run", "digits", "--set", "optim.lr=x"], "'optim.lr' to be of type float"),
        (["run", "digits", "--seeds", "a"], "expected --seeds like 0,1,2, got 'a'"),
        (["run", "digits", "--devices", ","], "expected --devices like 0,1 or cpu"),
        (["run", "digits", "--devices", "gpu"], "expected a device like 'auto', 'cpu' or 'cuda:0', got 'gpu'"),
        (["run", "table5", "--limit", "metod=gap,isic"], "Did you mean method=gap,isic?"),
        (["report", "nowhere"], "got 'nowhere', which is none"),
        (["report", "tabel3"], "got 'tabel3', which is none. Did you mean 'table3'?"),
        (["report", ".", "--limit", "a=b"], "expected --limit, --set and --out with an experiment"),
        (["bench", "--what", "step"], "Did you mean 'steps'?"),
        (["bench", "--limit", "methd=gap"], "expected --limit axis=value"),
        (["bench", "--batch-size", "0"], "batch_size ≥ 1, got 0"),
        (["train", "--data", "digit"], "Did you mean 'digits'?"),
        (["train", "--pooling", "gap +"], "got 'gap +'; it cannot be parsed: invalid syntax."),
        (["train", "--recipe", "smal"], "Did you mean 'small'?"),
        (["eval", "nowhere"], "expected a run folder, got 'nowhere', which does not exist"),
        (["eval", "."], "expected a run folder, got '.', which has no checkpoints/; train first"),
        (["predict", ".", "a.png"], "expected a run folder, got '.', which has no checkpoints/"),
        (["export", "."], "expected a run folder, got '.', which has no checkpoints/"),
        (["push", ".", "./x"], "expected a run folder, got '.', which has no checkpoints/"),
        (["eval", "failed"], "got 'failed', a run without weights (status 'failed'); train it"),
        (["eval", "failed/record.json"], "got 'failed/record.json', which is a file; name its folder"),
        (["export", "several"], "got 'several', a folder of runs; name one of them, such as 'several/untrained'"),
        (["eval", "untrained", "--which", "newest"], "expected which to be one of 'best', 'last', got 'newest'"),
        (["eval", "untrained", "--split", "dev"], "expected split to be one of 'test', 'val', 'train', got 'dev'"),
        (["eval", "untrained", "--set", "model.pooling=gap"], "settings of data, device and precision, got 'model.p"),
        (["eval", "untrained", "--set", "data.name=textures"], "there are 4 classes instead of 10"),
        (["predict", "nowhere", "a.png"], "expected a run folder, got 'nowhere'"),
        (["predict", "untrained", "untrained"], "expected images in 'untrained', got none"),
        (["predict", "untrained", "*.jpg"], "expected images in '*.jpg', got none"),
        (["predict", "untrained", "no.jpg", "--batch-size", "0"], "expected batch_size ≥ 1, got 0"),
        (["features", "untrained", "no.jpg", "--batch-size", "0"], "expected batch_size ≥ 1, got 0"),
        (["export", "untrained", "--format", "onx"], "Did you mean 'onnx'?"),
        (["export", "untrained", "--which", "last"], "checkpoints/last', which does not exist; use which='best'"),
        (["push", "nowhere", "./x"], "expected a run folder, got 'nowhere'"),
        (
            ["train", "--data", "digits", "--out", "failed/record.json"],
            "record.json', got 'file exists'; check the path",
        ),
        (["push", "untrained", "a/b/c"], "expected a repository like owner/name, got 'a/b/c'"),
    ],
)
def test_errors_are_one_line_and_status_two(monkeypatch, capsys, tmp_path, arguments, message):
    monkeypatch.chdir(tmp_path)
    if "untrained" in arguments:
        make_untrained(Path("untrained"), "digits", in_chans=1, num_classes=10)
    Path("several/untrained/checkpoints").mkdir(parents=True)
    Path("failed").mkdir()
    Path("failed/record.json").write_text('{"status": "failed", "hash": "", "started": ""}')
    status, _, err = main(monkeypatch, capsys, *arguments)
    assert status == 2
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert message in err


def test_weights_that_cannot_be_downloaded_are_a_user_error(monkeypatch, capsys, tmp_path):
    def download(*_, **__):
        raise ConnectionError("no\nnetwork")

    monkeypatch.setattr(timm, "create_model", download)
    status, _, err = main(monkeypatch, capsys, "train", "--data", "digits", "--model", "vgg16", "--out", str(tmp_path))
    assert status == 2
    assert re.search(
        r"^error: .* of 'vgg16\.tv_in1k', .*\(ConnectionError: no network\); .*--weights-root.*\n$", err, re.M
    )


def test_a_deprecated_setting_is_one_line_on_stderr(monkeypatch, capsys):
    status, _, err = main(monkeypatch, capsys, "run", "table3", "--set", "data.split=2", "--dry-run")
    assert status == 0
    assert set(err.splitlines()) == {"warning: config: 'data.split' is deprecated; write 'data.partition'."}


def test_warnings_for_users_are_one_line(monkeypatch, capsys):
    monkeypatch.setattr(cli.reports, "show_report", lambda *_, **__: warnings.warn("data: skipped.", stacklevel=1))
    status, _, err = main(monkeypatch, capsys, "report", "digits")
    assert (status, err) == (0, "warning: data: skipped.\n")


@pytest.mark.parametrize(
    "arguments",
    [
        ["--recipe", "smal"],
        ["--data", "folder", "--set", "data.root=nowhere"],
        ["--pooling", "isice(n_itr=1)"],
        ["--set", "precision=fp16", "--set", "device=cpu"],
    ],
)
def test_refused_training_leaves_no_folder(monkeypatch, capsys, tmp_path, arguments):
    monkeypatch.chdir(tmp_path)
    assert main(monkeypatch, capsys, "train", *arguments)[0] == 2
    assert list(tmp_path.iterdir()) == []


def test_debug_adds_the_traceback_and_keeps_the_status(monkeypatch, capsys):
    monkeypatch.setenv("ISICE_DEBUG", "1")
    status, _, err = main(monkeypatch, capsys, "report", "nowhere")
    assert status == 2
    assert err.startswith("Traceback (most recent call last)")
    assert err.splitlines()[-1].startswith("error: ")


def test_ctrl_c_is_130(monkeypatch, capsys):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(cli.reports, "show_report", interrupt)
    assert main(monkeypatch, capsys, "report", "digits")[0] == 130


def test_a_full_gpu_is_an_error_that_says_what_to_lower(monkeypatch, capsys):
    def fill(*_):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")

    monkeypatch.setattr(cli.reports, "show_report", fill)
    status, _, err = main(monkeypatch, capsys, "report", "digits")
    assert status == 2
    assert "got out of memory; lower the batch size or the image size" in err


@pytest.mark.parametrize("arguments", [["train"], ["run", "digits"]])
def test_ctrl_c_says_how_to_resume(monkeypatch, capsys, tmp_path, arguments):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("isice.train.train_run", interrupt)
    status, out, _ = main(monkeypatch, capsys, *arguments, "--out", str(tmp_path / "runs"))
    assert status == 130
    assert "interrupted; rerun the same command to resume" in out


@pytest.mark.parametrize("arguments", [["-h"], ["eval", "-h"]])
def test_help_has_a_short_name(arguments):
    assert "Usage" in invoke(*arguments)


@pytest.mark.parametrize("arguments", [["predict", "run"], ["push", "run"], ["eval"], ["export"]])
def test_missing_arguments_are_usage_errors(monkeypatch, capsys, arguments):
    status, _, err = main(monkeypatch, capsys, *arguments)
    assert status == 2
    assert "Missing argument" in err


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
    commands = re.findall(r"^│ (\w+) ", done.stdout, flags=re.MULTILINE)
    words = "list, train, eval, predict, features, export, push, run, report, explain, bench, doctor"
    assert ", ".join(commands) == words


def test_options_are_spelled_alike_in_all_commands():
    for command in ("eval", "predict", "features"):
        text = invoke(command, "--help")
        for option in ("--which", "--device", "--batch-size"):
            assert option in text, (command, option)
    assert "--which" in invoke("explain", "--help")
    assert "--last" not in invoke("explain", "--help")
    assert "--batch-size" in invoke("bench", "--help")
    assert not re.search(r"--batch\s", invoke("bench", "--help"))
