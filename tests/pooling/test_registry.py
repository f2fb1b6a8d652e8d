import re

import pytest
import torch

from isice._specs import format_spec, parse_spec
from isice.pooling import Pooling, SPDPooling, create_pooling, list_poolings, pooling_class

PAPER_TABLE = {
    "gap", "netvlad", "netfv", "bilinear", "compact_bilinear", "low_rank_bilinear", "kernel_pooling", "hihca",
    "improved_bilinear", "smso", "mpn_cov", "isqrt_cov", "deep_cov", "deep_kspd", "run", "fcbn", "tkpf",
    "precision", "isice",
}  # fmt: skip


def test_the_paper_s_table_is_whole():
    beyond = {"covariance", "isice_mlp", "isice_mlp_star", "partial_correlation", "log_euclidean", "dropcov", "sice"}
    assert PAPER_TABLE | beyond <= set(list_poolings())


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("gap", ("gap", {})),
        ("gap()", ("gap", {})),
        (" isice(n_iter=5, sparsity=1e-2) ", ("isice", {"n_iter": 5, "sparsity": 0.01})),
        ("x(a='b', c=None, d=-1, e=(1, 2))", ("x", {"a": "b", "c": None, "d": -1, "e": (1, 2)})),
    ],
)
def test_specs(spec, expected):
    assert parse_spec(spec) == expected
    assert parse_spec(format_spec(*expected)) == expected


@pytest.mark.parametrize(
    "spec", ["", "a b", "isice(5)", "isice(n=f())", "isice(**x)", "a.b(c=1)", "isice(n=__import__('os'))"]
)
def test_bad_specs(spec):
    with pytest.raises(ValueError, match="spec: expected 'name' or"):
        parse_spec(spec)


def test_a_spec_that_is_no_string():
    with pytest.raises(TypeError, match=r"spec: expected .*, got 5; pass a string"):
        parse_spec(5)


def test_unknown_names_and_options_come_with_a_suggestion():
    with pytest.raises(
        ValueError, match=r"create_pooling: expected one of .*, got 'isqrt_conv'\. Did you mean 'isqrt_cov'"
    ):
        create_pooling("isqrt_conv", 8)
    with pytest.raises(TypeError, match=r"isice: expected options among .*, got 'n_iters'\. Did you mean 'n_iter'"):
        create_pooling("isice(n_iters=3)", 8)


def test_options_of_a_parent_are_options_of_the_child():
    defaults = pooling_class("isice_mlp_star").option_defaults()
    assert list(defaults)[-1] == "summary"
    assert {"sparsity", "n_iter", "tau", "gamma"} <= set(defaults)


def test_unfinished_subclasses_say_what_is_missing():
    class Nothing(Pooling):
        pass

    class NoTransform(SPDPooling):
        pass

    with pytest.raises(TypeError, match=r"Nothing: expected a subclass that defines pool\(\)"):
        Nothing(2)(torch.ones(1, 2, 1, 1))
    with pytest.raises(TypeError, match=r"NoTransform: expected a subclass that defines transform\(\)"):
        NoTransform(2)(torch.ones(1, 2, 1, 1))
    with pytest.raises(ValueError, match="expected in_channels ≥ 1, got 0"):
        create_pooling("gap", 0)


def test_layers_without_a_public_implementation_are_not_called_verified():
    words = {name: pooling_class(name).fidelity for name in list_poolings()}
    assert {name for name, word in words.items() if word == "original"} == {
        "partial_correlation",
        "sice",
        "spectral_map",
    }
    for name in ("isice_mlp", "hihca", "low_rank_bilinear"):
        assert words[name] == "reconstructed"
    for name in (name for name, word in words.items() if word == "verified"):
        sources = re.sub(r"tests/\S+", "", pooling_class(name).evidence)
        assert re.search(r"\w/\w", sources), f"{name}: no implementation is named"


def test_a_new_layer_is_not_verified_by_default():
    assert Pooling.fidelity == "original"
