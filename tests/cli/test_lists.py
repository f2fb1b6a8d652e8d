"""``isice list`` and ``isice doctor``: what they print, without torch where it is not needed."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from unittest import mock

import pytest
from typer.testing import CliRunner

from isice import __version__, cli
from isice._extras import EXTRAS
from isice.ops import _dispatch

from ._invoke import invoke


def test_version():
    assert invoke("--version").strip() == f"isice {__version__}"


def test_list_shows_the_registry():
    from isice.pooling import list_poolings

    text = invoke("list")
    names = [line.split()[0] for line in text.splitlines() if not line.startswith(" ")]
    assert names == list_poolings()
    whole = " ".join(text.split())
    assert [summary for summary in cli.lists.pooling_summaries().values() if summary not in whole] == []


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
    assert "backend: " not in text  # of the function, not of the layer
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
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
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
