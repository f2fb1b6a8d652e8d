"""The commands ``isice run``, ``report`` and ``bench``: output, files and errors."""

import json
import re
import shutil

import pytest
from PIL import Image
from typer.testing import CliRunner

from isice import cli
from isice.cli._app import console

from ..cli._invoke import QUICK as SMALL
from ..cli._invoke import invoke
from ..train._birds import make_pictures

pytestmark = pytest.mark.usefixtures("half_digits")


@pytest.fixture(autouse=True)
def here(monkeypatch, tmp_path):
    monkeypatch.setattr(console, "_width", 300)
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def finished_demo(tmp_path_factory):
    """A folder with ``runs/digits`` and what the command printed."""
    folder = tmp_path_factory.mktemp("finished")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(console, "_width", 300)
        patch.chdir(folder)
        return folder, invoke("run", "digits", *SMALL)


@pytest.fixture
def one_run(finished_demo, tmp_path):
    """A copy of the demo's first run, without figures."""
    (source,) = finished_demo[0].glob("runs/digits/gap-*")
    run = shutil.copytree(source, tmp_path / "runs/digits" / source.name)
    shutil.copy(source.parent / "experiment.json", run.parent)
    return run


def test_dry_run_lists_the_runs_of_a_table(tmp_path):
    text = invoke("run", "table3", "--limit", "dataset=cub", "--seeds", "0,1,2", "--dry-run")
    assert len(re.findall(r"cub200 \w+ seed \d\s+[0-9a-f]{12}\s+unknown\s+no data", text)) == 48
    assert "48 to run, 0 finished; time unknown" in text
    assert not (tmp_path / "runs").exists()


def test_runs_without_a_published_number_need_all():
    limits = ["--limit", "backbone=vgg16", "--limit", "dataset=mit"]
    text, everything = (invoke("run", "table1", *limits, *more, "--dry-run") for more in ((), ("--all",)))
    assert "11 to run, 0 finished" in text
    assert "8 more runs have no published number; --all adds them." in text
    assert "19 to run, 0 finished" in everything
    assert "no published number" not in everything


def test_a_sweep_says_which_runs_it_leaves_out():
    text = invoke("run", "table9", "--limit", "head=1", "--limit", "dataset=cub")
    assert "2 more runs have no published number; --all adds them." in text


def test_missing_data_is_reported_before_anything_runs(tmp_path, monkeypatch):
    monkeypatch.setenv("ISICE_DATA", "data")
    (tmp_path / "data" / "cub200").mkdir(parents=True)
    result = CliRunner().invoke(cli.app, ["run", "table3"])
    assert isinstance(result.exception, FileNotFoundError)
    assert "missing: mit_indoor67 (data/mit_indoor67 does not exist), aircraft" in str(result.exception)
    assert "cub200 (expected images.txt" in str(result.exception)
    assert not (tmp_path / "runs").exists()
    text = invoke("run", "table3", "--limit", "dataset=cars", "--dry-run")
    assert len(re.findall(r"cars \w+ +[0-9a-f]{12} +unknown +no data", text)) == 16
    assert "No data for 16 runs on cars: data/cars does not exist." in text


def test_data_root_is_searched_by_dataset_name(tmp_path):
    for name in ("train/a", "train/b", "test/a", "test/b"):
        (tmp_path / "data" / "folder" / name).mkdir(parents=True)
        for number in range(4):
            Image.new("RGB", (16, 16)).save(tmp_path / "data" / "folder" / name / f"{number}.png")
    (tmp_path / "mine.toml").write_text(
        "[experiment]\nrecipe = 'small'\n[config]\ndata.name = 'folder'\ndata.image_size = 16\n"
        "[grid]\nmodel.pooling = ['gap', 'isqrt_cov']\n"
    )
    text = invoke("run", "mine.toml", *SMALL, "--data-root", "data", "--set", "data.val_fraction=0", "--images", "1")
    assert re.search(r"isqrt_cov\s+\d+\.\d", text)
    records = [json.loads(path.read_text()) for path in tmp_path.glob("runs/mine/*/record.json")]
    assert {record["config"]["data"]["root"] for record in records} == {"data/folder"}
    assert (tmp_path / "runs" / "mine" / "heat_maps" / "01-test-0-maps.png").is_file()


def test_the_demo_grid_end_to_end(finished_demo):
    folder, text = finished_demo
    for head in ("gap", "isqrt_cov", "precision", "isice"):
        assert re.search(rf"{head}\s+\d+\.\d\s+\d+\.\d – \d+\.\d\s+(best|lower|n\.s\.).*\s1\s", text)
    records = [json.loads(path.read_text()) for path in folder.glob("runs/digits/*/record.json")]
    assert [record["status"] for record in records] == ["finished"] * 4
    pictures = {path.stem for path in folder.glob("runs/digits/figures/*.png")}
    assert pictures == {n + t for n in ("accuracy", "curves", "confusion", "descriptors") for t in ("", "-dark")}
    page = (folder / "runs" / "digits" / "report.html").read_text(encoding="utf-8")
    assert page.count("<img") == 6
    assert "Heat maps of test image 112, true class" in page
    assert len(list(folder.glob("runs/digits/heat_maps/*-maps.png"))) == 2
    assert "Settings changed from the file: optim.epochs=1, model.reduce=4." in page


def test_a_grid_in_two_shards_then_its_report(tmp_path):
    for shard in ("0/2", "1/2"):
        arguments = ["run", "digits", "--limit", "pooling=gap,precision", *SMALL]  # a part of a sweep draws nothing
        assert "1 run, 0 skipped; after the last shard: isice report runs/digits" in invoke(
            *arguments, "--shard", shard
        )
    assert not (tmp_path / "runs/digits/report.md").exists()
    text = invoke("report", "runs/digits")
    assert re.search(r"gap\s+\d+\.\d", text)
    assert re.search(r"precision\s+\d+\.\d", text)
    assert "isqrt_cov" not in text  # outside the limits
    plan = invoke("run", "digits", *SMALL, "--dry-run")
    assert plan.count("skip: finished in runs/digits/") == 2
    assert re.search(r"isice\s+[0-9a-f]{12}\s+\d+ s\s+run", plan)  # estimated from the runs with other heads
    assert re.search(r"2 to run, 2 finished; about \d+ s on one device", plan)


def test_report_of_one_run_draws_its_heat_maps(one_run):
    run = one_run
    invoke("report", str(run))
    assert [path.name for path in sorted(run.glob("heat_maps/*-maps.png"))] == [
        "01-test-0-maps.png", "02-test-112-maps.png",
    ]  # fmt: skip
    invoke("report", str(run), "--images", "1")
    assert [path.name for path in run.glob("heat_maps/*-maps.png")] == ["01-test-0-maps.png"]
    assert "heat_maps/01-test-0-maps.png" in (run / "report.md").read_text(encoding="utf-8")
    shutil.rmtree(run / "checkpoints")
    shutil.rmtree(run / "heat_maps")
    invoke("report", str(run))  # records are enough for the rest
    assert not (run / "heat_maps").exists()
    result = CliRunner().invoke(cli.app, ["report", str(run), "--images", "1"])
    assert "expected finished training runs with their checkpoints" in str(result.exception)


def test_report_of_a_folder_of_several_experiments(one_run, tmp_path):
    invoke("run", "table6", "--limit", "dataset=mit", "--data-root", str(miniature(tmp_path)))
    result = CliRunner().invoke(cli.app, ["report", "runs"])
    assert "'runs', which holds runs/digits, runs/table6; name one of them" in str(result.exception)
    shutil.copytree(one_run, tmp_path / "runs" / "loose")
    text = invoke("report", "runs")
    assert re.search(r"gap\s+\d+\.\d .* 1 ", text)
    assert "Experiments in this folder have their own reports: runs/digits, runs/table6." in text
    (mit,) = tmp_path.glob("runs/table6/mit_indoor67-*")
    shutil.copytree(mit, tmp_path / "runs" / "facts")
    result = CliRunner().invoke(cli.app, ["report", "runs"])
    assert "expected runs of one kind in 'runs', got dataset and train" in str(result.exception)


@pytest.mark.usefixtures("one_run")
def test_experiments_share_finished_runs(tmp_path):
    (tmp_path / "mine.toml").write_text('[experiment]\nrecipe = "small"\n[axes.head]\nA = { model.pooling = "gap" }\n')
    text = invoke("run", "mine.toml", *SMALL, "--set", "data.name=digits")
    assert re.search(r"A: skipped, finished in runs/digits/gap-\S+", text)
    assert re.search(r"A\s+\d+\.\d", text)
    apart = invoke("run", "mine.toml", *SMALL, "--set", "data.name=digits", "--dry-run", "--out", "elsewhere")
    assert "1 to run" in apart


def test_report_of_the_paper_without_runs(tmp_path):
    text = invoke("report", "table4", "--limit", "dataset=cub")
    assert re.search(r"iSICE\+MLP\s+86\.1ᵃ / — / —", text)
    assert "Airplane" not in text
    for name in ("report.md", "report.tex", "report.html"):
        assert (tmp_path / "runs" / "table4" / name).is_file()


def miniature(folder):
    """A folder with a miniature of MIT Indoor: one image each for training and testing."""
    root = folder / "data" / "mit_indoor67"
    for name in ("Train", "Test"):
        (root / "Images" / "bar").mkdir(parents=True, exist_ok=True)
        (root / f"{name}Images.txt").write_text(f"bar/{name}.png")
        Image.new("RGB", (12, 10), "green").save(root / "Images" / "bar" / f"{name}.png")
    return root.parent


def test_datasets_against_the_paper(tmp_path):
    text = invoke("run", "table6", "--data-root", str(miniature(tmp_path)))
    assert re.search(r"MIT Indoor\s+67 / 1 / −66\s+6,700 / 2 /", text)
    assert re.search(r"Birds\s+200 / — / —\s+11,788 / — / —", text)
    assert f"cub200 is left out: {tmp_path}/data/cub200 does not exist" in text


def test_sample_images(tmp_path):
    invoke("run", "samples", "--data-root", str(miniature(tmp_path)))
    folder = tmp_path / "runs" / "samples"
    assert (folder / "figures" / "samples.png").is_file()
    assert "accuracy" not in (folder / "report.md").read_text(encoding="utf-8")  # nothing was measured


def test_devices_run_in_their_own_processes(tmp_path):
    text = invoke(
        "run", "table6", "--limit", "dataset=mit", "--devices", "cpu", "--data-root", str(miniature(tmp_path))
    )
    assert "mit_indoor67: started on cpu, output in runs/table6/mit_indoor67-seed0-" in text
    assert re.search(r"MIT Indoor\s+67 / 1 / −66", text)


def test_the_normalisation_of_a_run_follows_its_backbone(tmp_path):
    make_pictures(tmp_path / "pictures", train=2, test=1)
    (tmp_path / "vits.toml").write_text(
        """
        [experiment]
        title = "A backbone that wants images in -1 … 1"
        recipe = "small"
        [config]
        data = { name = "folder", root = "pictures", image_size = 32, batch_size = 10, val_fraction = 0.0 }
        model = { backbone = "test_vit", reduce = 4 }
        [grid]
        model.pooling = ["gap"]
        """
    )
    command = ["run", "vits.toml", "--set", "optim.epochs=1", "--set", "device=cpu"]
    invoke(*command)
    (path,) = tmp_path.glob("runs/vits/*/record.json")
    record = json.loads(path.read_text())
    assert record["config"]["data"]["mean"] == record["config"]["data"]["std"] == [0.5, 0.5, 0.5]
    assert "skip: finished" in invoke(*command, "--dry-run")
    assert "gap" in invoke("report", "runs/vits")


def test_bench(tmp_path):
    common = ["--limit", "method=gap,isice", "--limit", "channels=64", "--limit", "batch=8", "--repeats", "1"]
    small = ["--model", "small_cnn", "--image-size", "16", "--batch-size", "2", "--device", "cpu"]
    text = invoke("bench", *common, *small)
    assert re.search(r"GAP\s+29\.0ᵃ / 0\.\d{3} / −\d+\.\d{3}.* 1\.00 / 1\.00 / \+0\.00", text)
    assert re.search(r"iSICE\s+64\s+\d+\.\d\d", text)
    assert "SICE+MLP" not in text
    records = [json.loads(path.read_text()) for path in tmp_path.glob("runs/bench/*/*/record.json")]
    assert sorted((r["config"]["what"], r["config"]["pooling"]) for r in records) == [
        ("layer", "gap"), ("layer", "isice"), ("step", "gap"), ("step", "isice"),
    ]  # fmt: skip
    for part in ("steps", "layers"):
        assert (tmp_path / "runs" / "bench" / part / "figures" / "grid.png").is_file()
