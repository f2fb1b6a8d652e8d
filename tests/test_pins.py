"""Pinned versions: each dependency has one with hashes; constraints-lowest.txt has the lowest."""

import re
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[1]


def requirements():
    """Return the direct dependencies of all extras by name, without isice itself."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    texts = [*project["dependencies"], *(text for extra in project["optional-dependencies"].values() for text in extra)]
    found = [Requirement(text) for text in texts]
    return {canonicalize_name(one.name): one for one in found if one.name != project["name"]}


def pins(name):
    lines = re.findall(r"^([\w.-]+)==([^\s;]+)([^#]*?)(?=^\S|\Z)", (ROOT / name).read_text(encoding="utf-8"), re.M)
    return {canonicalize_name(package): (Version(version), rest) for package, version, rest in lines}


def test_every_dependency_is_pinned_by_hash():
    pinned = pins("constraints.txt")
    for name, requirement in requirements().items():
        assert pinned[name][0] in requirement.specifier
    assert all(re.search(r"--hash=sha256:[0-9a-f]{64}", rest) for _, rest in pinned.values())


def test_the_lowest_versions_are_the_lower_bounds():
    lowest = pins("constraints-lowest.txt")
    tools = {"mkdocs-material", "mkdocstrings", "ruff", "mypy", "hatchling"}  # not part of the tests
    for name, requirement in requirements().items():
        bound = next(Version(one.version) for one in requirement.specifier if one.operator == ">=").release
        assert name in tools or lowest[name][0].release[: len(bound)] == bound
