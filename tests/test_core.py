"""The core works without the packages of the extras; the command says which extra to install."""

import subprocess
import sys

import pytest

from isice._extras import EXTRAS, missing_package

# timm requires these two packages itself, and importing timm imports
# torchvision, which imports Pillow.
INSTALLED_WITH_TIMM = {"torchvision", "PIL", "huggingface_hub"}
STUDIO = {package for packages in EXTRAS.values() for package in packages} - INSTALLED_WITH_TIMM | {
    "scipy",
}

# Replaces the finder of installed packages by one that does not find some of them, as if
# they were not installed.
HIDE = """
import sys
from importlib.machinery import PathFinder

class Hiding(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.split(".")[0] in {hidden!r} else super().find_spec(name, path, target)

sys.meta_path[sys.meta_path.index(PathFinder)] = Hiding
"""


def run_without(hidden, code):
    command = [sys.executable, "-c", HIDE.format(hidden=sorted(hidden)) + code]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_core_needs_no_package_of_the_studio():
    code = """
import isice, isice.functional, torch
for name in isice.list_poolings():
    isice.create_pooling(name, 16, num_classes=2)
model = isice.create_model("small_cnn", pooling="isice", num_classes=5, reduce=8)
assert model(torch.rand(2, 3, 8, 8)).shape == (2, 5)
model = isice.create_model("test_resnet", pooling="sice", num_classes=5, reduce=8)
assert model.eval()(torch.rand(2, 3, 64, 64)).shape == (2, 5)
loaded = {name.split(".")[0] for name in sys.modules}
assert not any(name.startswith(("isice.train", "isice.data", "isice.config")) for name in sys.modules)
print(sorted(loaded & set(HIDDEN)))
""".replace("HIDDEN", repr(sorted(STUDIO)))
    done = run_without(STUDIO, code)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"


def test_submodules_resolve_after_a_plain_import():
    code = """
import isice
for name in ("config", "data", "estimator", "functional", "models", "pooling", "report", "train"):
    assert getattr(isice, name).__name__ == f"isice.{name}"
    assert name in dir(isice)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("hidden", "arguments", "extra"),
    [({"typer"}, ["--help"], "train"), (STUDIO, [], "train"), ({"matplotlib"}, ["report", "."], "report")],
)
def test_command_without_its_extra_says_what_to_install(hidden, arguments, extra):
    code = f"sys.argv = ['isice', *{arguments!r}]\nfrom isice.__main__ import main\nmain()"
    done = run_without(hidden, code)
    assert done.returncode == 2
    assert f"pip install 'isice[{extra}]'" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_other_missing_modules_are_no_missing_extra():
    assert missing_package(ModuleNotFoundError(name="isice.nothing")) is None
    assert missing_package(ModuleNotFoundError(name=None)) is None
