"""The command line: what it prints, what it writes, how it fails."""

import json
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from unittest import mock

import pytest
from typer.testing import CliRunner

from isice import __version__, cli
from isice._extras import EXTRAS
from isice.cli._app import console
from isice.ops import _dispatch

from .train._birds import CLASSES, make_pictures, make_run, make_untrained

QUICK = ["--set", "optim.epochs=1", "--set", "model.reduce=4", "--set", "device=cpu"]


def invoke(*arguments: str) -> str:
    result = CliRunner().invoke(cli.app, list(arguments))
    assert result.exit_code == 0, result.output
    return result.output


def main(monkeypatch, capsys, *arguments: str) -> tuple[int, str, str]:
    """Run the entry point; return its exit status, standard output and standard error."""
    monkeypatch.setattr(sys, "argv", ["isice", *arguments])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    out, err = capsys.readouterr()
    return int(stop.value.code or 0), out, err


@pytest.fixture(autouse=True)
def wide(monkeypatch):
    monkeypatch.setattr(console, "_width", 300)


@pytest.fixture(scope="module")
def birds(tmp_path_factory):
    """A folder with pictures, a run trained on them, and files to predict: a good one and a bad one."""
    folder = tmp_path_factory.mktemp("birds")
    make_run(folder)
    (folder / "bad.png").write_bytes(b"no picture")
    return folder


def test_version():
    assert invoke("--version").strip() == f"isice {__version__}"


def test_list_shows_the_registry():
    from isice.pooling import list_poolings

    text = invoke("list")
    for name in list_poolings():
        assert name in text
    assert len(text.splitlines()) == len(list_poolings())  # one line each
    assert all(len(line.split(maxsplit=1)) == 2 for line in text.splitlines())


def test_list_imports_no_torch():
    command = (
        "import sys; from isice.cli import app; app(['list'], standalone_mode=False); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", command], check=True, capture_output=True)


def test_list_describes_one_pooling():
    text = invoke("list", "isice")
    assert "32,896 features" in text  # 256 · 257 / 2
    assert "sparsity=0.01" in text
    assert "n_iter: " in text
    assert "Did you mean 'isice'?" in str(CliRunner().invoke(cli.app, ["list", "isicee"]).exception)


def test_list_backbones_datasets_recipes_experiments():
    text = invoke("list", "--backbones", "--datasets", "--recipes", "--experiments")
    for part in ("swin_base", "vgg16.tv_in1k", "digits", "1,347", "paper_cnn", "step at 15, 30", "demo"):
        assert part in text


def test_doctor():
    text = invoke("doctor")
    assert "torch" in text
    assert "threads" in text
    assert "Nothing is missing." in text


@pytest.mark.parametrize(("has_one", "which"), [(True, "Hopper kernels above 64"), (False, "generic kernels")])
def test_doctor_tells_which_kernels_are_used(monkeypatch, has_one, which):
    kernel = pytest.importorskip("isice.kernels.newton_schulz")
    monkeypatch.setattr(_dispatch, "kernels_missing", lambda: "")
    monkeypatch.setattr(kernel, "uses_hopper_kernel", lambda device, precision: has_one)
    assert which in cli.doctor._kernels()
    assert "up to 12 Newton-Schulz steps" in cli.doctor._kernels()


def test_doctor_tells_of_kernels_that_do_not_compile(monkeypatch):
    kernel = pytest.importorskip("isice.kernels.newton_schulz")
    monkeypatch.setattr(_dispatch, "kernels_missing", lambda: "")
    monkeypatch.setattr(kernel, "uses_hopper_kernel", mock.Mock(side_effect=RuntimeError("no gcc")))
    assert "do not compile (RuntimeError: no gcc)" in cli.doctor._kernels()


def import_names(lines):
    names = {"scikit-learn": "sklearn", "pillow": "PIL"}
    packages = [re.match(r"[\w-]+", line)[0] for line in lines]
    return {names.get(package, package.replace("-", "_")) for package in packages}


def test_doctor_checks_the_dependencies_of_pyproject(monkeypatch):
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
    assert import_names(project["dependencies"]) == set(cli.doctor.REQUIRED)
    extras = {name: project["optional-dependencies"][name] for name in EXTRAS}
    assert {name: import_names(lines) for name, lines in extras.items()} == {n: set(p) for n, p in EXTRAS.items()}
    monkeypatch.setattr(cli.doctor, "find_spec", lambda name: None if name == "timm" else object())
    result = CliRunner().invoke(cli.app, ["doctor"])
    assert result.exit_code == 1
    assert "missing: timm" in result.output


def test_doctor_reports_missing_extras_without_failing(monkeypatch):
    monkeypatch.setattr(cli.doctor, "find_spec", lambda name: None if name == "onnxscript" else object())
    text = invoke("doctor")
    assert "without onnxscript: pip install 'isice[export]'" in text
    assert "Nothing is missing." in text


def test_dry_run_trains_nothing(tmp_path):
    text = invoke("run", "digits", "--out", str(tmp_path / "runs"), "--dry-run", "--seeds", "0,1")
    assert "8 to run, 0 finished" in text
    assert not (tmp_path / "runs").exists()


def test_run_report_and_skip(tmp_path):
    arguments = ["run", "digits", "--out", str(tmp_path), *QUICK, "--set", "model.pooling=gap"]
    text = invoke(*arguments)
    assert "parameters" in text
    assert (tmp_path / "report.html").is_file()
    (record,) = tmp_path.glob("*/record.json")
    before = record.read_bytes()
    assert "gap: skipped, finished" in invoke(*arguments)
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
    assert f"isice report {tmp_path} adds heat maps" in " ".join(text.split())
    record = json.loads((tmp_path / "record.json").read_text(encoding="utf-8"))
    assert record["config"]["model"] == {**record["config"]["model"], "pooling": "covariance", "reduce": 4}
    (tmp_path / "report.md").unlink()
    assert "covariance" in invoke("report", str(tmp_path))
    assert (tmp_path / "report.md").is_file()
    again = " ".join(invoke("train", "--pooling", "covariance", "--out", str(tmp_path), *QUICK).split())
    assert "is already finished" in again
    assert "heat maps" not in again, "has them now"


def test_train_takes_other_settings_from_the_recipe(tmp_path):
    recipe = tmp_path / "mine.toml"
    recipe.write_text('[model]\npooling = "covariance"\n[data]\nname = "digits"\nbatch_size = 512\n', encoding="utf-8")
    invoke("train", "--recipe", str(recipe), "--out", str(tmp_path / "run"), *QUICK)
    config = json.loads((tmp_path / "run" / "record.json").read_text(encoding="utf-8"))["config"]
    assert (config["model"]["pooling"], config["model"]["backbone"]) == ("covariance", "small_cnn")
    assert (config["data"]["batch_size"], config["model"]["reduce"]) == (512, 4)


def test_resume(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(cli.training, "show_report", lambda folder: None)  # takes longer than the training
    arguments = ["--pooling", "gap", "--set", "data.batch_size=512", "--out", str(tmp_path / "run"), *QUICK]
    status, _, err = main(monkeypatch, capsys, "train", "--resume", *arguments)
    assert status == 2
    assert "expected a run to resume" in err
    invoke("train", *arguments)
    before = (tmp_path / "run" / "record.json").read_bytes()
    invoke("train", "--resume", "--out", str(tmp_path / "run"))  # the settings are the run's own
    assert (tmp_path / "run" / "record.json").read_bytes() == before
    status, _, err = main(monkeypatch, capsys, "train", *arguments, "--set", "optim.lr=0.5")
    assert status == 2
    assert "optim.lr" in err
    invoke("train", "--no-resume", *arguments, "--set", "optim.lr=0.5")
    assert (tmp_path / "run" / "record.json").read_bytes() != before


def test_eval_prints_and_writes(birds):
    text = invoke("eval", str(birds / "run"))
    for part in ("test, 20 images", "top-1 accuracy", "calibration error", *CLASSES, "evaluation.json"):
        assert part in text
    entry = json.loads(invoke("eval", str(birds / "run"), "--split", "val", "--flip", "--which", "last", "--json"))
    assert (entry["split"], entry["flip"], entry["which"], entry["images"]) == ("val", True, "last", 10)
    stored = json.loads((birds / "run" / "evaluation.json").read_text(encoding="utf-8"))["evaluations"]
    assert stored[-1] == entry


def test_predict_table_and_json(birds):
    text = invoke("predict", str(birds / "run"), str(birds / "pictures/test/robin"), "--topk", "2")
    assert len(re.findall(r"robin/\d\.png\s+robin \d", text)) == 4
    found = json.loads(invoke("predict", str(birds / "run"), f"{birds}/pictures/test/*/0.png", "--json", "--topk", "1"))
    assert [one["predictions"][0]["class"] for one in found] == list(CLASSES)


def test_predict_names_bad_images_does_the_others_and_exits_with_one(monkeypatch, capsys, birds):
    arguments = ["predict", str(birds / "run"), str(birds / "bad.png"), f"{birds}/pictures/test/wren/0.png", "no.png"]
    status, out, err = main(monkeypatch, capsys, *arguments)
    assert status == 1
    assert "wren" in out
    assert "error" not in out  # once is enough
    assert err.splitlines() == [
        f"error: {birds / 'bad.png'}: it cannot be read as an image",
        "error: no.png: there is no such file",
    ]
    status, out, err = main(monkeypatch, capsys, *arguments, "--json")
    assert (status, err) == (1, "")
    assert [one.get("error") for one in json.loads(out)] == [
        "it cannot be read as an image",
        None,
        "there is no such file",
    ]


def test_push_to_a_folder_and_use_it(birds, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert "wrote shared" in invoke("push", str(birds / "run"), "./shared")
    card = Path("shared/README.md").read_text(encoding="utf-8")
    record = json.loads((birds / "run" / "record.json").read_text(encoding="utf-8"))
    assert f"| top-1 accuracy, test | {record['accuracy']['test']:.2%} |" in card
    assert record["commit"] is None or record["commit"] in card
    assert str(birds) not in Path("shared/config.json").read_text(encoding="utf-8")
    picture = f"{birds}/pictures/test/heron/1.png"
    assert "heron" in invoke("predict", "local-dir:shared", picture)
    # The record's accuracy is that of the best epoch; the card of other weights must not claim it.
    invoke("push", str(birds / "run"), "./shared", "--which", "last")
    card = Path("shared/README.md").read_text(encoding="utf-8")
    assert "No accuracy is recorded for these weights." in card
    assert "| top-1 accuracy" not in card


def test_push_to_the_hub_fails_clearly(monkeypatch, capsys, birds):
    def refuse(*_, **__):
        raise ConnectionError("no network")

    monkeypatch.setattr("isice.models.Network.push_to_hub", refuse)
    status, _, err = main(monkeypatch, capsys, "push", str(birds / "run"), "owner/birds")
    assert status == 2
    assert "the Hub refused or could not be reached (ConnectionError: no network); log in with hf auth login" in err


def test_every_command_of_the_guide_runs(tmp_path, monkeypatch):
    """Blocks marked sh and python in docs/training.md, in their order, in a folder with some pictures."""
    monkeypatch.chdir(tmp_path)
    shutil.rmtree(make_pictures(tmp_path / "birds") / "val")
    guide = (Path(__file__).parents[1] / "docs" / "training.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```(sh|python)\n(.*?)^```", guide, flags=re.DOTALL | re.MULTILINE)
    assert {kind for kind, _ in blocks} == {"sh", "python"}
    for kind, block in blocks:
        if kind == "python":
            exec(block, {})
            continue
        for line in block.splitlines():
            program, *arguments = shlex.split(line)
            assert program == "isice"
            invoke(*arguments)
    assert json.loads((tmp_path / "runs/birds/record.json").read_text(encoding="utf-8"))["status"] == "finished"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "digitss"], "Did you mean 'digits'?"),
        (["run", "digits", "--set", "optim.lrr=1"], "Did you mean 'optim.lr'?"),
        (["run", "digits", "--set", "optim.lr=x"], "'optim.lr' to be of type float"),
        (["run", "digits", "--seeds", "a"], "expected --seeds like 0,1,2, got 'a'"),
        (["report", "nowhere"], "got 'nowhere', which is none"),
        (["train", "--data", "digit"], "Did you mean 'digits'?"),
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
        (["eval", "untrained", "--set", "data.name=textures"], "the 10 classes of the network, got 4 classes"),
        (["predict", "nowhere", "a.png"], "expected a run folder, got 'nowhere'"),
        (["predict", "untrained", "untrained"], "expected images in 'untrained', got none"),
        (["predict", "untrained", "*.jpg"], "expected images in '*.jpg', got none"),
        (["export", "untrained", "--format", "onx"], "Did you mean 'onnx'?"),
        (["export", "untrained", "--which", "last"], "checkpoints/last', which does not exist; use which='best'"),
        (["push", "nowhere", "./x"], "expected a run folder, got 'nowhere'"),
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


def test_a_deprecated_setting_is_one_line_on_stderr(monkeypatch, capsys):
    status, _, err = main(monkeypatch, capsys, "run", "table3", "--set", "data.split=2", "--dry-run")
    assert status == 0
    assert set(err.splitlines()) == {"warning: config: 'data.split' is deprecated; write 'data.partition'."}


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


@pytest.mark.parametrize("arguments", [["train"], ["run", "digits"]])
def test_ctrl_c_says_how_to_resume(monkeypatch, capsys, tmp_path, arguments):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("isice.train.train_run", interrupt)
    status, out, _ = main(monkeypatch, capsys, *arguments, "--out", str(tmp_path / "runs"))
    assert status == 130
    assert "interrupted; rerun the same command to resume" in out


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


def test_former_options_are_deprecated(birds, tmp_path):
    arguments = ["explain", str(birds / "run"), "test:0", "--out", str(tmp_path / "page")]
    with pytest.warns(FutureWarning, match="--last is deprecated; write --which last"):
        CliRunner().invoke(cli.app, [*arguments, "--last"])
