"""Documents: code blocks and docstring examples run, links resolve, generated pages are current."""

import doctest
import importlib.util
import json
import pkgutil
import re
import shutil
import subprocess
import warnings
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import matplotlib.pyplot as plt
import pytest
import torch
from safetensors.torch import save_file
from typer.testing import CliRunner

import isice
from isice.cli import app
from isice.config import RunConfig, override
from isice.experiments import weight_files
from isice.experiments.loader import list_recipes, load_experiment
from isice.experiments.plan import select_cells
from isice.experiments.weight_files import SUFFIXES
from isice.records import new_record, write_record
from isice.report import write_report

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
COLUMN = RESULTS / "table1_vgg16_cub200"
GENERATORS = sorted(path.stem.removeprefix("generate_") for path in (ROOT / "docs").glob("generate_*.py"))
DOCUMENTS = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md")), *RESULTS.rglob("README.md")]
MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(isice.__path__, "isice.")
    if not module.ispkg and ".kernels." not in module.name
)


def run_blocks(page: Path) -> dict[str, object]:
    """Execute the Python blocks of a page in one namespace, without shape warnings."""
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert blocks, f"{page.name} has no Python block"
    namespace: dict[str, object] = {}
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="Network: expected")
        for block in blocks:
            exec(block, namespace)
    return namespace


def test_the_code_of_the_readme_runs():
    namespace = run_blocks(ROOT / "README.md")
    assert namespace["logits"].shape == (2, 200)
    assert namespace["vector"].shape == (8, 2080)


def test_the_code_of_the_graphical_lasso_page_runs():
    torch.manual_seed(0)
    namespace = run_blocks(ROOT / "docs" / "graphical_lasso.md")
    assert namespace["result"].precision.shape == (8, 32, 32)
    assert namespace["model"].precision_.shape == (12, 12)


def test_the_code_of_the_statistics_page_runs():
    plt.switch_backend("Agg")
    namespace = run_blocks(ROOT / "docs" / "statistics.md")
    assert [text.get_text() for text in namespace["axes"].texts] == namespace["wine"].feature_names
    assert namespace["graph"].number_of_nodes() == 13
    assert namespace["tests"].edges.any()
    assert namespace["cultivars"].precision_.shape == (3, 13, 13)
    assert namespace["hidden"].rank_ >= 1
    plt.close("all")


def test_the_code_of_the_timm_page_runs():
    run_blocks(ROOT / "docs" / "timm.md")


def test_getting_started_prints_what_its_comments_say(capsys):
    page = ROOT / "docs" / "getting_started.md"
    run_blocks(page)
    printed = capsys.readouterr().out.splitlines()
    said = re.findall(r"^# (torch.*|.*: .*\d%?)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    assert [line.partition(": ")[0] for line in printed] == [line.partition(": ")[0] for line in said]
    numbers = [[float(text) for text in re.findall(r": ([\d.]+)", "\n".join(lines))] for lines in (printed, said)]
    assert numbers[0] == pytest.approx(numbers[1], rel=0.3)  # of other versions and machines
    assert len(numbers[0]) == 5


def test_the_notebook_runs_and_has_no_outputs():
    plt.switch_backend("Agg")
    notebook = json.loads((ROOT / "examples" / "second_order_pooling.ipynb").read_text(encoding="utf-8"))
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    namespace: dict[str, object] = {}
    for cell in cells:
        assert cell["outputs"] == []
        exec("".join(cell["source"]), namespace)
    accuracy = namespace["accuracy"]
    assert accuracy["gap"] < 0.4 < accuracy["isqrt_cov"]
    assert accuracy["partial_correlation(ridge=0.1, center=True)"] > 0.9
    assert len(plt.get_fignums()) == 2
    plt.close("all")


def test_every_page_with_python_is_executed_by_a_test():
    """The others run in tests/cli/test_training.py and tests/pooling/test_plugins.py."""
    executed = {"README.md", "getting_started.md", "timm.md", "graphical_lasso.md", "statistics.md"}
    executed |= {"training.md", "plugins.md"}
    found = {page.name for page in DOCUMENTS if "```python" in page.read_text(encoding="utf-8")}
    assert found == executed


def test_the_training_page_names_all_recipes_and_weight_files():
    text = (ROOT / "docs" / "training.md").read_text(encoding="utf-8")
    for name in (*list_recipes(), "--weights-root", "ISICE_WEIGHTS", *SUFFIXES):
        assert name in text, name


def test_the_readme_counts_the_poolings():
    text = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    assert len(isice.list_poolings()) > int(re.search(r"has more than (\d+) poolings", text)[1])


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples(name):
    module = importlib.import_module(name)
    torch.manual_seed(0)
    results = doctest.testmod(module, extraglobs={"torch": torch}, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert results.failed == 0


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_resolve(path):
    for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", path.read_text(encoding="utf-8")):
        assert (path.parent / target).exists(), f"{path.name} links to {target}"


def test_there_is_one_version():
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["version"] == isice.__version__
    assert f"version: {isice.__version__}" in (ROOT / "CITATION.cff").read_text()
    assert f"## {isice.__version__}" in (ROOT / "CHANGELOG.md").read_text()


@pytest.fixture(scope="module")
def build() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_build", ROOT / "docs" / "build.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", GENERATORS)
def test_generated_pages_are_up_to_date(name, build, capsys):
    assert build.main(["--check", name]) == 0, capsys.readouterr().err


def test_a_new_training_record_appears_in_the_table_of_choices(build, tmp_path, monkeypatch):
    choosing = importlib.import_module("generate_choosing")
    monkeypatch.setattr(choosing, "RESULTS", tmp_path)
    runs = {"gap": [0.7], "isqrt_cov": [0.74, 0.75], "isqrt_cov(n_iter=3)": [0.5]}
    for pooling, accuracies in runs.items():
        for seed, accuracy in enumerate(accuracies):
            folder = tmp_path / "study" / f"{pooling}-{seed}"
            folder.mkdir(parents=True)
            run = new_record(override(RunConfig(), [f"model.pooling={pooling}", "data.image_size=224"]), {})
            run["config"]["model"] |= {"backbone": "vgg16", "reduce": 256}
            run |= {"status": "finished", "accuracy": {"test": accuracy}, "images": {"train": 100}}
            write_record(folder, run)
    assert choosing.comparisons().splitlines()[2].strip("| ").split(" | ") == ["—"] * 6  # without a README
    (tmp_path / "study" / "README.md").touch()
    _, _, row = choosing.comparisons().splitlines()
    epochs = f"[{RunConfig().optim.epochs} epochs](../benchmarks/results/study/README.md)"
    run = f"vgg16, digits, 224 px, {epochs} of 100 images, flips only"
    assert row == f"| {run} | — | 74.5 ± 0.7 | — | — | 70.0 |"


def test_the_table_of_choices_names_the_dataset_of_a_folder(build):
    choosing = importlib.import_module("generate_choosing")
    assert {setting.data for setting in choosing._by_setting()} == {"cub200"}
    assert choosing._dataset("folder", "study") == "folder"


def test_runs_of_the_column_appear_beside_the_published_numbers(build, tmp_path, monkeypatch):
    column = importlib.import_module("generate_column")
    monkeypatch.setattr(column, "COLUMN", tmp_path)
    table1 = load_experiment("table1").with_settings(["optim.epochs=32", "precision=bf16", "data.cache=gpu"])
    cells = select_cells(table1, ["backbone=vgg16", "dataset=cub200", "method=isice,isqrt_cov"])
    for cell, accuracy in zip(cells, (0.781, 0.8701), strict=True):
        run = replace(cell.config, model=replace(cell.config.model, checkpoint_path="vgg16.pth", weights="0" * 16))
        results = {"accuracy": {"test": accuracy}, "images": {"test": 5794}, "schedule": "32 of 50"}
        results["epochs"] = [{"epoch": 32, "train_accuracy": 1.0, "images_per_second": 929.4}]
        write_record(tmp_path / cell.name, new_record(run, {"gpu": "H200"}) | {"status": "finished"} | results)
    text = column.pages()[tmp_path / "README.md"]
    assert "| iSQRT-COV | 84.5 | 78.1 | 77.0 – 79.1 | −6.4 | 100.0 | 32 |" in text
    assert "| iSICE | 86.5 | 87.0 | 86.1 – 87.9 | +0.5 |" in text
    assert "| GAP" not in text
    assert "Not trained yet: GAP, NetVLAD, NetFV, BCNN, " in text
    assert "Schedule of iSQRT-COV, iSICE: 32 of 50." in text


def test_runs_of_other_epochs_are_no_seeds(build, tmp_path, monkeypatch):
    column = importlib.import_module("generate_column")
    monkeypatch.setattr(column, "COLUMN", tmp_path)
    for epochs, accuracy, methods in ((32, 0.8, "isice"), (17, 0.6, "isice,isqrt_cov")):
        table1 = load_experiment("table1").with_settings([f"optim.epochs={epochs}"])
        for cell in select_cells(table1, ["backbone=vgg16", "dataset=cub200", f"method={methods}"]):
            run = new_record(cell.config, {"gpu": "H200"}) | {"status": "finished", "parameters": {"total": 1}}
            run |= {"accuracy": {"test": accuracy}, "images": {"test": 5794}, "schedule": f"{epochs} of 50"}
            run |= {"started": "2026-01-01T00:00:00+00:00", "seconds": 60}
            run |= {"epochs": [{"epoch": epochs, "train_loss": 1, "train_accuracy": 1, "seconds": 1}]}
            write_record(tmp_path / cell.name, run)
    pages = column.pages()
    text = " ".join(pages[tmp_path / "README.md"].split())
    assert "| iSICE | 86.5 | 80.0 | 79.0 – 81.0 | −6.5 | 100.0 | 32 |" in text
    assert "| iSQRT-COV | 84.5 | 60.0 | 58.7 – 61.3 | −24.5 | 100.0 | 17 |" in text
    assert "so their seconds are not speeds: iSQRT-COV (100 %), iSICE (100 %)." in text
    (tmp_path / "experiment.json").write_text(pages[tmp_path / "experiment.json"], encoding="utf-8")
    report = write_report(tmp_path)["markdown"].read_text(encoding="utf-8")
    assert "86.5 / 80.0 / −6.5" in report
    assert "Schedule of iSQRT-COV: 17 of 50." in report
    assert "Schedule of iSICE: 32 of 50." in report


def test_the_report_of_the_column_shows_every_method_of_the_table(tmp_path):
    folder = shutil.copytree(COLUMN, tmp_path / "column")
    text = write_report(folder)["markdown"].read_text(encoding="utf-8")
    cells = dict(re.findall(r"^\| VGG-16 \| ([^|]+) \| ([^|]+/[^|]+) \|$", text, re.MULTILINE))
    shown = {method: cell.split(" / ")[1].split(" ± ")[0] for method, cell in cells.items()}
    assert len(shown) == 19
    found = defaultdict(lambda: defaultdict(list))  # pooling → epochs → accuracies of the seeds
    for path in COLUMN.glob("*/record.json"):
        record = json.loads(path.read_text(encoding="utf-8"))
        found[record["config"]["model"]["pooling"]][len(record["epochs"])].append(record["accuracy"]["test"])
    table1 = load_experiment("table1")
    methods = next(axis for axis in table1.axes if axis.name == "method")
    for cell in select_cells(table1, ["backbone=vgg16", "dataset=cub200"]):
        longest = max(found[cell.config.model.pooling].items(), default=(0, ()))[1]
        label = methods.find(cell.at["method"]).label
        assert shown[label] == (f"{100 * sum(longest) / len(longest):.1f}" if longest else "—"), label


def test_the_commands_of_the_column_cover_it_and_skip_its_records(tmp_path, monkeypatch):
    text = (COLUMN / "README.md").read_text(encoding="utf-8").partition("## Commands")[2]
    functions, lines, _ = re.findall(r"```\n(.*?)```", text, re.DOTALL)
    told = "isice() { printf '%s\\n' \"$@\" .; }\n" + functions.partition("\n")[2] + lines
    arguments = subprocess.run(["bash", "-ec", told], capture_output=True, text=True, check=True).stdout.split("\n.\n")
    (tmp_path / "weights").mkdir()
    save_file({"x": torch.zeros(1)}, tmp_path / "weights" / "vgg16.safetensors")
    own = json.loads(next(COLUMN.glob("*/record.json")).read_text(encoding="utf-8"))["config"]["model"]["weights"]
    monkeypatch.setattr(weight_files, "content_hash", lambda path: own)
    shutil.copytree(COLUMN, tmp_path / "runs" / "column")
    monkeypatch.chdir(tmp_path)
    plans = [CliRunner().invoke(app, [*words.split("\n"), "--dry-run"]).output for words in arguments if words.strip()]
    counts = [tuple(map(int, re.search(r"(\d+) to run, (\d+) finished", plan).groups())) for plan in plans]
    assert [sum(count) for count in counts] == [6, 3, 3, 12, 5]
    assert counts[3][1] >= 3, "seed 0 of three methods is finished"
    methods = {name for words in arguments for name in re.search(r"method=(.*)|$", words)[0][7:].split(",")}
    assert len(methods - {""}) == 19 - 2, "all but GAP and BCNN, whose runs are finished"


def test_the_check_finds_an_outdated_page(build, monkeypatch, capsys):
    monkeypatch.setattr(build, "rendered", lambda names: {ROOT / "README.md": "other text"})
    assert build.main(["--check", "readme"]) == 1
    assert "README.md is out of date" in capsys.readouterr().err


def test_the_page_of_deviations_quotes_its_record():
    record = json.loads((RESULTS / "what_isice_computes.json").read_text(encoding="utf-8"))
    row = next(row for row in record["rows"] if (row["channels"], row["positions"]) == (256, 14 * 14))
    quoted = [
        f"‖S₀Σ' − I‖/√D is {row['inverse_residual']:.2f}",
        f"2.25⁷ ≈ {row['eigenvalue_cap']:.0f}",
        f"change S₀ by {100 * row['move_by_the_sparse_steps']:.2f} %, and {100 * (1 - row['zeros_at_defaults']):.1f} %",
        f"at D = 256 is {row['mean_abs_entry_divided_by_sqrt_trace']:.0e}".replace("e-02", "e-2"),
        f"against {row['mean_abs_entry_divided_by_trace']:.0e} after".replace("e-05", "e-5"),
    ]
    text = " ".join((ROOT / "docs" / "deviations.md").read_text(encoding="utf-8").split())
    assert [quote for quote in quoted if quote not in text] == []
    assert row["lambda_max_on_sigma_scale"] < 0.002


def test_the_readme_quotes_the_records():
    def tested(pattern: str) -> str:
        (file,) = RESULTS.glob(f"{pattern}/record.json")
        return f"{100 * json.loads(file.read_text(encoding='utf-8'))['accuracy']['test']:.1f} %"

    augmented = [
        tested(f"finegrained_vgg16_cub200_448/small_crops/{name}-*") for name in ("partial_correlation", "isqrt_cov")
    ]
    isice_, isqrt = (tested(f"table1_vgg16_cub200/vgg16-{name}-cub200-seed0-*") for name in ("isice", "isqrt_cov"))
    text = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    tested_at = "with the recipe `finegrained_cnn`, trained at 352 px and tested at 448 px, the two are level"
    assert f"{tested_at}: {' and '.join(augmented)}" in text
    assert f"it reaches {isice_} and iSQRT-COV {isqrt}" in text


def test_the_page_of_accuracy_quotes_the_records():
    (larger,) = (RESULTS / "shrinkage_vgg16_cub200_448" / "recipe").glob("*/record.json")
    accuracy = json.loads(larger.read_text(encoding="utf-8"))["accuracy"]["test"]
    runs = [json.loads(path.read_text(encoding="utf-8")) for path in RESULTS.glob("*cub200_*/*/*/record.json")]
    runs = [run for run in runs if run["config"]["model"]["pooling"] == "partial_correlation"]
    assert (len(runs), {run["status"] for run in runs}) == (13, {"finished"})
    text = " ".join((ROOT / "docs" / "accuracy.md").read_text(encoding="utf-8").split())
    cpu = json.loads((RESULTS / "heads_cpu.json").read_text(encoding="utf-8"))["rows"]
    times = {row["name"]: row["forward_backward_ms"] for row in cpu}
    assert times["partial_correlation"] < times["isqrt_cov"] / 5
    assert "On a CPU it takes less than a fifth of the time of `isqrt_cov`" in text
    assert f"training images of 448 px reached **{100 * accuracy:.1f} %**" in text
    assert "None of the thirteen recorded runs of `partial_correlation`" in text


def test_the_map_shows_the_tree():
    text = (ROOT / "docs" / "map.md").read_text(encoding="utf-8")
    package = ROOT / "src" / "isice"
    named = re.findall(r"`([\w/]+(?:/|\.py|\.toml|\.md))`", text)
    assert [name for name in named if not any((base / name).exists() for base in (ROOT, package, ROOT / "docs"))] == []
    parts = [path for path in package.iterdir() if not path.name.startswith("_") and path.suffix in ("", ".py")]
    assert [path.name for path in parts if f"| `{path.name}{'/' * path.is_dir()}` |" not in text] == []


@pytest.mark.parametrize("page", ["reliability.md", "internals/file_routes.md"])
def test_the_tests_that_a_page_names_exist(page):
    named = re.findall(r"`(?:tests/)?([\w/]+\.py|…)(?:::(\w+))?`", (ROOT / "docs" / page).read_text(encoding="utf-8"))
    assert len(named) > 10
    path = None
    for file, name in named:
        path = path if file == "…" else ROOT / "tests" / file
        assert f"def {name}" in path.read_text(encoding="utf-8")
