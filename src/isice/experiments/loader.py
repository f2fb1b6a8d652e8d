"""Experiment files: a recipe, settings and axes, expanded to a grid of runs.

::

    [experiment]
    title = "What a head sees"
    recipe = "small"                      # a file in recipes/, or a path
    seeds = [0, 1, 2]

    [config]                              # fixed for all runs, overrides the recipe
    data.name = "digits"

    [grid]                                # one run for every combination and seed
    model.pooling = ["gap", "isice"]

Axes with named values are described in :mod:`isice.experiments.axes`, published numbers to compare
with in :mod:`isice.experiments.published_numbers`.
"""

import itertools
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any

from .._checks import check_choice, check_int, suggestion
from .._specs import format_spec, parse_spec
from .._tables import flatten, nest
from ..config import RunConfig, config_hash, from_dict, override, read_toml, split_assignment
from .axes import Axis, Value, read_axes, without_settings
from .job_configs import choose_identities, find_job, job_kinds
from .published_numbers import METRIC, Aggregate, Metric, PublishedTable, read_aggregates, read_metrics, read_published
from .weight_files import find_all, with_weights

_HERE = Path(str(files(__package__)))
_EXPERIMENT_KEYS = ("title", "description", "recipe", "seeds", "kind", "expand", "after", "images")
_EXCEPTION_KEYS = ("at", "config", "why")
_PLOT_KEYS = ("x", "lines", "panels", "metric", "log", "caption")
# Most runs of one experiment: the whole grid is validated when its file is loaded.
_MAX_CELLS = 100_000
# Renamed settings keep their former word in run names, so that existing folders are found.
_RUN_WORDS = {"data.partition": "split"}


@dataclass(frozen=True)
class Cell:
    """One run of an experiment."""

    name: str  # also the name of its folder
    label: str
    config: Any
    hash: str
    at: dict[str, str] = field(default_factory=dict)  # axis → value
    kind: str = "train"
    identity: str = ""  # of the finished runs that count as this one, see job_configs

    def find_finished(self, folders: Mapping[str, Path]) -> Path | None:
        """Return the folder of a finished run of this cell, by identity, or None."""
        return folders.get(self.hash) or folders.get(self.identity)


@dataclass(frozen=True)
class Experiment:
    """A grid of runs; :meth:`cells` lists them."""

    name: str
    title: str
    description: str
    base: Any  # the config of all cells, before those of the axes
    axes: tuple[Axis, ...]
    seeds: tuple[int, ...]
    kind: str = "train"  # of job, see job_configs.job_kinds
    expand: str = "product"  # or "rows": only the rows of the published table
    assignments: tuple[str, ...] = ()  # overrides a.b=c, applied last
    changed: tuple[str, ...] = ()  # the assignments that change results
    fixed: dict[str, Any] = field(default_factory=dict)  # the table [config]
    exceptions: tuple[Mapping[str, Any], ...] = ()  # settings ("config") of single cells ("at"), after the axes
    metrics: tuple[Metric, ...] = ()
    aggregates: tuple[Aggregate, ...] = ()
    published: PublishedTable | None = None
    plot: dict[str, Any] = field(default_factory=dict)  # the axes of the figure of results
    after: str = ""  # text for the report on what to do with the finished runs
    images: int = 0  # test images in the heat maps of the report
    weights: dict[str, Path | None] = field(default_factory=dict)  # by backbone, see weight_files
    adapt: Callable[[RunConfig], RunConfig] | None = None  # completes the config of a training run

    def with_weights_from(self, root: str | Path | None, cells: Iterable[Cell]) -> "Experiment":
        """Take the weights of the backbones of ``cells`` from a folder."""
        files = find_all(root, (cell.config for cell in cells))
        return replace(self, weights=files) if files else self

    def with_settings(self, assignments: Iterable[str] = (), seeds: Iterable[int] | None = None) -> "Experiment":
        """Apply overrides ``a.b=c``; a setting that the grid varies becomes fixed."""
        assignments = tuple(assignments)
        base = override_recipe(self.base, assignments)
        fixed = {split_assignment(assignment)[0] for assignment in assignments}
        chosen = self.seeds if seeds is None else _check_seeds(list(seeds))
        varied = {key for axis in self.axes for value in axis.values for key in value.settings | value.repeat}
        changed = tuple(a for a in assignments if self._changes(a, varied))
        return replace(
            self,
            base=base,
            axes=without_settings(self.axes, fixed),
            seeds=(base.seed,) if "seed" in fixed else chosen,
            assignments=self.assignments + assignments,
            changed=self.changed + changed,
        )

    def _changes(self, assignment: str, varied: set[str]) -> bool:
        """Return whether an override changes results, apart from the seed."""
        key = split_assignment(assignment)[0]
        return key != "seed" and (
            key in varied or config_hash(override(self.base, [assignment])) != config_hash(self.base)
        )

    def cells(self) -> list[Cell]:
        """Return every combination of the axes with every seed, in the order of the file."""
        return list(self._cells)

    @cached_property
    def _cells(self) -> tuple[Cell, ...]:
        count = math.prod(len(axis.values) for axis in self.axes) * len(self.seeds)
        if count > _MAX_CELLS:
            raise ValueError(
                f"{self.name}: expected at most {_MAX_CELLS:,} runs, got {count:,} combinations of "
                f"{', '.join(axis.name for axis in self.axes)} and seeds; split the grid into several files."
            )
        found: dict[str, Cell] = {}
        for values in itertools.product(*(axis.values for axis in self.axes)):
            at = {axis.name: value.name for axis, value in zip(self.axes, values, strict=True)}
            if self.expand == "rows" and not self._is_published_row(at):
                continue
            for cell in self._cells_at(at, values):
                if cell.hash in found:
                    raise ValueError(
                        f"{self.name}: expected different runs, got {found[cell.hash].label!r} and {cell.label!r}, "
                        "which are the same; override fewer settings, or remove one of them from the file."
                    )
                found[cell.hash] = cell
        chosen = choose_identities(cell.config for cell in found.values())
        return tuple(replace(cell, identity=own) for cell, own in zip(found.values(), chosen, strict=True))

    def _cells_at(self, at: dict[str, str], values: tuple[Value, ...]) -> Iterator[Cell]:
        repeats = {key: options for value in values for key, options in value.repeat.items()}
        bare = getattr(getattr(self.base, "model", self.base), "pooling", self.name)  # of a grid without axes
        label = " ".join(value.name for value in values) or bare
        kind = next((value.kind for value in reversed(values) if value.kind), self.kind)
        several = len(self.seeds) > 1 or bool(repeats)
        for options in itertools.product(*repeats.values()):
            repeated = dict(zip(repeats, options, strict=True))
            config = _as_config_of(kind, self._config(at, values, repeated))
            if isinstance(config, RunConfig):
                config = with_weights(config, self.weights)
                config = self.adapt(config) if self.adapt else config
            words = "".join(
                f" {_RUN_WORDS.get(key, key.rsplit('.', 1)[-1])} {option}" for key, option in repeated.items()
            )
            for seed in self.seeds:
                seeded = replace(config, seed=seed)
                # The hash distinguishes overrides and specs that differ only in punctuation.
                key = config_hash(seeded)
                name = f"{_slug(label + words)}-seed{seed}-{key[:8]}"
                yield Cell(name, f"{label}{words} seed {seed}" if several else label, seeded, key, at, kind)

    def _config(self, at: dict[str, str], values: tuple[Value, ...], repeated: dict[str, Any]) -> Any:
        recipes = [value.recipe for value in values if value.recipe]
        base = self.base
        if recipes:
            base = override_recipe(from_dict(self.fixed, load_recipe(recipes[-1])), self.assignments)
        settings: dict[str, Any] = {}
        for value in values:
            settings |= value.settings
        for exception in self.exceptions:
            if exception["at"].items() <= at.items():
                settings |= flatten(exception["config"])
        overridden = {split_assignment(assignment)[0] for assignment in self.assignments}
        config = from_dict(nest({k: v for k, v in (settings | repeated).items() if k not in overridden}), base)
        options = {option: value[option] for value in (v.pooling for v in values) for option in value}
        return config if "model.pooling" in overridden else _with_pooling_options(config, options)

    def _is_published_row(self, at: dict[str, str]) -> bool:
        if self.published is None:
            return True
        axes = [(index, name) for index, name in enumerate(self.published.rows) if name in at]
        return any(all(key[index] == at[name] for index, name in axes) for key in self.published.row_keys)


def _as_config_of(kind: str, config: Any) -> Any:
    """Convert a config to the class of a kind of job, if it is another with the same fields."""
    cls = find_job(kind).config
    return config if type(config) is cls else cls(**{f.name: getattr(config, f.name) for f in fields(config)})


def _with_pooling_options(config: Any, options: Mapping[str, Any]) -> Any:
    if not options:
        return config
    name, given = parse_spec(config.model.pooling)
    return from_dict({"model": {"pooling": format_spec(name, {**given, **options})}}, config)


def list_experiments() -> list[str]:
    """Return the names of the experiments in the package."""
    names = [path.stem for path in [*_HERE.glob("*.toml"), *_HERE.glob("paper/*.toml")]]
    return sorted(names, key=lambda name: [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)])


def load_experiment(name_or_path: str | Path) -> Experiment:
    """Load an experiment by its name in the package (``"digits"``, ``"table3"``) or from a file.

    Example:
        >>> [cell.label for cell in load_experiment("digits").cells()]
        ['gap', 'isqrt_cov', 'precision', 'isice']
    """
    path = _find(name_or_path, ("", "paper"), list_experiments(), "experiment")
    content = read_toml(path)
    known = ("experiment", "config", "axes", "grid", "exceptions", "metrics", "aggregates", "printed", "plot")
    _check_keys(content, known, f"{path.name}: ")
    about = content.get("experiment", {})
    _check_keys(about, _EXPERIMENT_KEYS, f"{path.name}: experiment.")
    experiment = _build(path.stem, about, content)
    experiment.cells()  # validate the whole grid at load time
    return experiment


def _build(name: str, about: Mapping[str, Any], content: Mapping[str, Any]) -> Experiment:
    kind, expand = about.get("kind", "train"), about.get("expand", "product")
    check_choice(name, "experiment.kind", kind, job_kinds())
    check_choice(name, "experiment.expand", expand, ("product", "rows"))
    if "recipe" in about and kind != "train":
        raise ValueError(f"{name}: expected no recipe for the kind {kind!r}, got {about['recipe']!r}; use [config].")
    check_int(name, "experiment.images", about.get("images", 0), minimum=0)
    base = load_recipe(about["recipe"]) if "recipe" in about else find_job(kind).config()
    base = from_dict(content.get("config", {}), base)
    axes = read_axes(content.get("axes", {}), content.get("grid", {}))
    metrics = read_metrics(content.get("metrics", {}))
    aggregates = read_aggregates(content.get("aggregates", ()), axes)
    words = {axis.name: {value.name for value in axis.values} for axis in axes}
    for aggregate in aggregates:
        words[aggregate.axis].add(aggregate.name)
    for exception in content.get("exceptions", ()):
        _check_keys(exception, _EXCEPTION_KEYS, f"{name}: exceptions.")
        _check_exception(name, exception)
        for axis, value in exception["at"].items():
            check_choice(name, f"exceptions.at.{axis}", value, sorted(words.get(axis, set())))
    plot = {key: tuple(value) if isinstance(value, list) else value for key, value in content.get("plot", {}).items()}
    _check_keys(plot, _PLOT_KEYS, f"{name}: plot.")
    return Experiment(
        name=name,
        title=about.get("title", name),
        description=" ".join(about.get("description", "").split()),
        base=base,
        axes=axes,
        seeds=_check_seeds(about.get("seeds", [base.seed])),
        kind=kind,
        expand=expand,
        fixed=dict(content.get("config", {})),
        exceptions=tuple(content.get("exceptions", ())),
        metrics=metrics,
        aggregates=aggregates,
        published=read_published(content.get("printed", {}), words | {METRIC: {metric.name for metric in metrics}}),
        plot=plot,
        after=" ".join(about.get("after", "").split()),
        images=about.get("images", 0),
    )


def list_recipes() -> list[str]:
    """Return the names of the recipes in the package."""
    return sorted(path.stem for path in (_HERE / "recipes").glob("*.toml"))


def override_recipe(recipe: Any, assignments: Iterable[str]) -> Any:
    """Apply overrides ``a.b=c``; if they reduce the epochs, record those of the recipe.

    They are recorded in ``optim.recipe_epochs``.

    Example:
        >>> override_recipe(RunConfig(), ["optim.epochs=32"]).optim.recipe_epochs
        50
    """
    config = override(recipe, assignments)
    if not isinstance(config, RunConfig) or config.optim.epochs >= recipe.optim.epochs:
        return config
    whole = recipe.optim.recipe_epochs or recipe.optim.epochs
    return replace(config, optim=replace(config.optim, recipe_epochs=whole))


def load_recipe(name_or_path: str | Path) -> RunConfig:
    """Load a recipe (a training config) by name (``"small"``) or from a TOML file."""
    return from_dict(read_toml(_find(name_or_path, ("recipes",), list_recipes(), "recipe")))


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


def _check_exception(name: str, exception: Mapping[str, Any]) -> None:
    for key in ("at", "config"):
        if not isinstance(exception.get(key), Mapping):
            raise ValueError(
                f"{name}: expected every entry of [[exceptions]] to have a table {key!r}, got {exception!r}; write "
                'at = { axis = "value" } and config = { setting = value }.'
            )


def _slug(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.]+", "-", text).strip("-")[:80]
