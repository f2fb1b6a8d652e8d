"""Poolings from scripts, notebooks and installed packages, and the contract for them."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from isice.models import create_model
from isice.pooling import Pooling, create_pooling, pooling_class, register_pooling
from isice.pooling import _registry as registry
from isice.testing import check_pooling

ROOT = Path(__file__).parents[2]
PLUGIN = ROOT / "examples" / "plugin"


@pytest.fixture(autouse=True)
def _same_registry_afterwards(monkeypatch):
    registry.list_poolings()
    monkeypatch.setattr(registry, "_POOLINGS", dict(registry._POOLINGS))


def largest(name, **members):
    def pool(self, x):
        return x.amax(dim=(-2, -1))

    def __init__(self, in_channels):
        Pooling.__init__(self, in_channels)
        self.out_features = in_channels

    return type(name, (Pooling,), {"__init__": __init__, "pool": pool, "__module__": "__main__", **members})


def test_several_names_in_a_script():
    register_pooling("one_name")(largest("One"))
    register_pooling("another_name")(largest("Another"))
    assert repr(create_pooling("one_name + another_name", 4)) == "one_name + another_name"
    check_pooling(create_pooling("another_name", 4), trace=False)


def test_a_script_must_name_its_pooling():
    with pytest.raises(ValueError, match=r"expected a name for One, .* script or notebook; write @register_pooling"):
        register_pooling(largest("One"))
    with pytest.raises(ValueError, match="expected an identifier, got 'my head'"):
        register_pooling("my head")(largest("One"))
    with pytest.raises(TypeError, match=r"expected a subclass of isice\.Pooling, got <class 'int'>"):
        register_pooling("number")(int)


def test_a_taken_name_is_an_error_that_names_both_places():
    with pytest.raises(ValueError, match=r"got 'gap' for __main__\.One.*which isice\.pooling\.gap\.\w+ \(.*gap\.py\)"):
        register_pooling("gap")(largest("One"))
    register_pooling("one_name")(largest("One"))
    again = largest("One")
    register_pooling("one_name")(again)  # a notebook cell that is run twice
    assert type(create_pooling("one_name", 2)) is again


def test_check_pooling_lists_what_fails():
    def pool(self, x):
        return x.half().amax(dim=(-2, -1)) / x.var(dim=(0, 2, 3), correction=0).half()

    register_pooling("broken")(largest("Broken", pool=pool))
    with pytest.raises(AssertionError) as caught:
        check_pooling(create_pooling("broken", 4), trace=False)
    message = str(caught.value)
    assert re.search(r"expected broken to pass \d+ checks, \d+ failed", message)
    for check in ("one image alone as in a batch", "finite on degenerate features", "float32 under autocast"):
        assert f"- {check}: " in message
    assert "- shape for any" not in message
    with pytest.raises(TypeError, match=r"check_pooling: expected a layer, got <class"):
        check_pooling(Pooling)


def with_option(*, stored):
    def __init__(self, in_channels, *, power=2.0):
        Pooling.__init__(self, in_channels)
        self.out_features = in_channels
        if stored:
            self.power = power

    return __init__


def test_a_layer_that_is_not_registered_has_its_own_name(tmp_path):
    for parent, spec in ((Pooling, "Mine(power=2.0)"), (pooling_class("gap"), "Mine(power=2.0)")):
        mine = type("Mine", (parent,), {**vars(largest("Mine")), "__init__": with_option(stored=True)})
        layer = mine(8)
        assert layer.spec == spec
        with pytest.raises(ValueError, match=r"Mine: expected a feature map"):
            layer(torch.rand(2, 8))
        model = create_model("small_cnn", pooling=layer, num_classes=2, reduce=8)
        with pytest.raises(ValueError, match=r"got 'Mine'.*isice\.register_pooling"):
            model.save_pretrained(tmp_path / "model")  # it would come back with the parent's pooling


def test_options_that_a_spec_would_lose():
    forgetful = register_pooling("forgetful")(largest("Forgetful", __init__=with_option(stored=False)))
    with pytest.raises(TypeError, match=r"forgetful: expected an attribute power .*; set self\.power"):
        repr(forgetful(4))
    with pytest.raises(AssertionError, match=r"expected forgetful to pass (.*\n)*- spec: TypeError: .*set self\.power"):
        check_pooling(forgetful(4), trace=False)

    def __init__(self, in_channels, power=2.0):
        Pooling.__init__(self, in_channels)

    with pytest.raises(TypeError, match=r"expected keyword-only options, got power in Positional\.__init__"):
        register_pooling("positional")(largest("Positional", __init__=__init__))


def test_a_missing_or_wrong_length_is_named():
    register_pooling("endless")(largest("Endless", __init__=Pooling.__init__))
    with pytest.raises(TypeError, match=r"endless: expected an attribute out_features, .* got none; set it"):
        create_pooling("endless", 4)

    def pool(self, x):
        return x.mean(dim=(-2, -1))[:, 1:]

    register_pooling("shorter")(largest("Shorter", pool=pool))
    with pytest.raises(AssertionError, match=r"- empty batch: AssertionError: expected \(0, 4\), got \(0, 3\)"):
        check_pooling(create_pooling("shorter", 4), trace=False)


def python(code, path):
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(path), str(ROOT / "src")]), "OMP_NUM_THREADS": "1"}
    return subprocess.run([sys.executable, "-W", "default", "-c", code], env=env, capture_output=True, text=True)


def test_an_installed_package_is_found(tmp_path):
    copied = tmp_path / "source"
    copied.mkdir()
    for file in PLUGIN.iterdir():
        if file.is_file():
            (copied / file.name).write_text(file.read_text())
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*pip, "--target", str(tmp_path / "site"), str(copied)], check=True, capture_output=True)
    code = """
import isice
assert "power_mean" in isice.list_poolings()
layer = isice.create_pooling("power_mean(power=1.0)", 8)
isice.testing.check_pooling(layer, trace=False)
import torch
x = torch.rand(2, 8, 4, 4)
torch.testing.assert_close(layer(x), x.mean(dim=(-2, -1)))
"""
    done = python(code, tmp_path / "site")
    assert done.returncode == 0, done.stderr


def test_a_broken_package_is_a_warning(tmp_path):
    info = tmp_path / "broken_poolings-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: broken-poolings\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[isice.poolings]\nlost = no_such_module:Lost\n")
    taken = "isice.register_pooling('gap')(type('Gap', (isice.Pooling,), {}))"
    done = python(f"import isice; print(len(isice.list_poolings()), flush=True); {taken}", tmp_path)
    assert int(done.stdout) > 20
    assert "which isice.pooling.gap.GAP" in done.stderr
    assert "expected the pooling 'lost' of the package 'broken-poolings'" in done.stderr


def test_the_page_shows_the_package():
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "plugins.md").read_text(), flags=re.DOTALL)
    assert blocks[0] == (PLUGIN / "isice_power_mean.py").read_text()
    torch.manual_seed(0)
    namespace = {"__name__": "a_page"}
    for block in blocks:
        exec(block, namespace)
    assert namespace["model"].head_hidden_size == 64 + 64 * 65 // 2
