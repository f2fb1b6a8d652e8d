"""An experiment file: a title, a recipe, fixed settings and a grid of settings. It expands to runs.

::

    [experiment]
    title = "What a head sees"
    recipe = "small"                      # a file in recipes/, or a path
    seeds = [0, 1, 2]

    [config]                              # fixed for all runs, laid over the recipe
    data.name = "digits"

    [grid]                                # one run for every combination and seed
    model.pooling = ["gap", "isice"]
"""

import itertools
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from .._checks import check_int, suggestion
from ..config import RunConfig, config_hash, from_dict, load_config, override, read_toml, set_value, split_assignment

_HERE = Path(str(files(__package__)))


@dataclass(frozen=True)
class Cell:
    """One run of an experiment: its name (also its folder) and its config."""

    name: str
    label: str
    config: RunConfig


@dataclass(frozen=True)
class Experiment:
    """A grid of runs; :meth:`cells` lists them."""

    name: str
    title: str
    description: str
    base: RunConfig
    grid: dict[str, tuple[Any, ...]]
    seeds: tuple[int, ...]

    def with_settings(self, assignments: Iterable[str] = (), seeds: Iterable[int] | None = None) -> "Experiment":
        """The experiment with ``a.b=c`` overrides; a setting that the grid varies is fixed to the given value."""
        assignments = list(assignments)
        base = override(self.base, assignments)
        fixed = {split_assignment(assignment)[0] for assignment in assignments}
        grid = {key: values for key, values in self.grid.items() if key not in fixed}
        chosen = self.seeds if seeds is None else _check_seeds(list(seeds))
        return Experiment(
            self.name, self.title, self.description, base, grid, (base.seed,) if "seed" in fixed else chosen
        )

    def cells(self) -> list[Cell]:
        """Every combination of the grid with every seed, in the order of the file."""
        found = []
        for values in itertools.product(*self.grid.values()):
            config = self.base
            for key, value in zip(self.grid, values, strict=True):
                config = set_value(config, key, value)
            label = " ".join(str(value) for value in values) or config.model.pooling
            for seed in self.seeds:
                seeded = set_value(config, "seed", seed)
                # The hash keeps apart what the readable part cannot: overrides, and specs that differ in punctuation.
                name = f"{_slug(label)}-seed{seed}-{config_hash(seeded)[:8]}"
                found.append(Cell(name, label if len(self.seeds) == 1 else f"{label} seed {seed}", seeded))
        return found


def list_experiments() -> list[str]:
    """The names of the experiments that come with the package."""
    return sorted(path.stem for path in [*_HERE.glob("*.toml"), *_HERE.glob("paper/*.toml")])


def load_experiment(name_or_path: str | Path) -> Experiment:
    """Loads an experiment by its name in the package (``"demo"``) or from a TOML file.

    Example:
        >>> [cell.label for cell in load_experiment("demo").cells()]
        ['gap', 'isqrt_cov', 'precision', 'isice']
    """
    path = _find(name_or_path, ("", "paper"), list_experiments(), "experiment")
    content = read_toml(path)
    _check_keys(content, ("experiment", "config", "grid"), f"{path.name}: ")
    about = content.get("experiment", {})
    _check_keys(about, ("title", "description", "recipe", "seeds"), f"{path.name}: experiment.")
    base = load_recipe(about["recipe"]) if "recipe" in about else RunConfig()
    base = from_dict(content.get("config", {}), base)
    experiment = Experiment(
        name=path.stem,
        title=about.get("title", path.stem),
        description=" ".join(about.get("description", "").split()),
        base=base,
        grid=_flatten_grid(content.get("grid", {})),
        seeds=_check_seeds(about.get("seeds", [base.seed])),
    )
    experiment.cells()  # a wrong key or value in the grid is an error now, not in the middle of the night
    return experiment


def load_recipe(name_or_path: str | Path) -> RunConfig:
    """Loads a recipe — how to train — by its name in the package (``"small"``) or from a TOML file.

    Example:
        >>> load_recipe("small").optim.schedule
        'cosine'
    """
    known = sorted(path.stem for path in (_HERE / "recipes").glob("*.toml"))
    return load_config(_find(name_or_path, ("recipes",), known, "recipe"))


def _find(name_or_path: str | Path, folders: tuple[str, ...], known: list[str], what: str) -> Path:
    if Path(name_or_path).suffix == ".toml":
        return Path(name_or_path)
    for folder in folders:
        path = _HERE / folder / f"{name_or_path}.toml"
        if path.is_file():
            return path
    raise FileNotFoundError(
        f"{what}: expected a .toml file or one of {', '.join(known)}, got {str(name_or_path)!r}."
        f"{suggestion(str(name_or_path), known)}"
    )


def _flatten_grid(table: Mapping[str, Any], prefix: str = "") -> dict[str, tuple[Any, ...]]:
    flat: dict[str, tuple[Any, ...]] = {}
    for key, values in table.items():
        if isinstance(values, Mapping):
            flat |= _flatten_grid(values, f"{prefix}{key}.")
        elif isinstance(values, list) and values:
            flat[f"{prefix}{key}"] = tuple(values)
        else:
            raise TypeError(f"experiment: expected grid.{prefix}{key} to be a list of values, got {values!r}.")
    if prefix == "" and "seed" in flat:
        raise ValueError("experiment: expected seeds under [experiment], got grid.seed; write seeds = [0, 1, 2] there.")
    return flat


def _check_seeds(seeds: Any) -> tuple[int, ...]:
    if not isinstance(seeds, list) or not seeds or len(set(map(str, seeds))) != len(seeds):
        raise ValueError(f"experiment: expected seeds to be a list of distinct integers, got {seeds!r}.")
    for seed in seeds:
        check_int("experiment", "every seed", seed, minimum=0)
    return tuple(seeds)


def _check_keys(table: Mapping[str, Any], known: tuple[str, ...], where: str) -> None:
    for key in table:
        if key not in known:
            raise ValueError(f"{where}{key}: unknown key; expected {', '.join(known)}.{suggestion(key, known)}")


def _slug(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.]+", "-", text).strip("-")[:80]
