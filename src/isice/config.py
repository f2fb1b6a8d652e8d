"""Configuration of a run: frozen dataclasses, TOML files, ``a.b=c`` overrides and a hash.

An unknown key is an error with a suggestion; a wrong type is an error that names the key. TOML has
no null, so ``"none"`` stands for ``None`` where a field allows it.
"""

import ast
import dataclasses
import functools
import hashlib
import json
import tomllib
import types
import typing
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ._augment_config import AugmentConfig as AugmentConfig
from ._checks import check_choice, check_int, check_number, suggestion
from ._tables import nest

TRANSFORMS = ("none", "paper", "center", "crop", "randaugment")
# Execution settings, excluded from the hash.
_EXECUTION = {"hashed": False}
# Settings hashed only where they differ from their default, so that earlier runs keep their hash.
_ADDED = {"hashed_if_set": True}
# Renamed fields. Former names are still read, and still hashed, so that a run keeps its hash.
_RENAMED = {"data.split": "data.partition"}


@dataclass(frozen=True)
class ModelConfig:
    """The network ②–⑦: arguments of :func:`isice.create_model`.

    ``img_size`` defaults to ``data.image_size``. ``strict`` refuses a ``checkpoint_path`` that
    lacks most of the backbone. ``drop_path`` is the rate of stochastic depth in a timm backbone
    that has it. ``weights`` is the SHA-256 (first 16 digits) of the file ``checkpoint_path``. A run
    is then identified by this content, not by the path.
    """

    backbone: str = "small_cnn"
    pooling: str = "isice"
    reduce: int | None = 256
    pretrained: bool = False
    checkpoint_path: str | None = None
    img_size: int | None = None
    strict: bool = field(default=True, metadata=_ADDED)
    drop_path: float = field(default=0.0, metadata=_ADDED)
    weights: str | None = field(default=None, metadata=_ADDED)

    def __post_init__(self) -> None:
        _check_fields(self, "model.", _check_fraction, "drop_path")
        _check_fields(self, "model.", check_int, "reduce", "img_size", minimum=1)


@dataclass(frozen=True)
class DataConfig:
    """The data ①: dataset, location, image size, transform and validation split.

    ``partition`` numbers the train/test partition of a dataset that has several (DTD: 1 … 10),
    or seeds a random one (mini-ImageNet). ``val_fraction`` of the training images, chosen by
    ``split_seed``, is held out for validation, unless the dataset has a validation split.
    ``transform``, ``mean`` and ``std`` default to those of the dataset. ``on_bad_image`` stops
    at an unreadable image or skips and counts it. ``cache`` keeps decoded images in memory,
    with identical results, or on the GPU, whose decoder and resizing differ slightly.
    ``balanced`` draws all classes equally often, with replacement.
    """

    name: str = "digits"
    root: str | None = field(default=None, metadata=_EXECUTION)
    download: bool = field(default=False, metadata=_EXECUTION)
    image_size: int | None = None
    batch_size: int = 64
    workers: int = field(default=0, metadata=_EXECUTION)
    partition: int = field(default=1, metadata={"hashed_as": "split"})
    val_fraction: float = 0.0
    split_seed: int = 0
    transform: str = "auto"
    color_jitter: float = 0.0
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    on_bad_image: str = "stop"
    cache: str = "none"
    balanced: bool = field(default=False, metadata=_ADDED)

    def __post_init__(self) -> None:
        _check_fields(self, "data.", check_int, "batch_size", "partition", "image_size", minimum=1)
        _check_fields(self, "data.", check_int, "workers", "split_seed", minimum=0)
        _check_fields(self, "data.", _check_fraction, "val_fraction")
        _check_fields(self, "data.", check_number, "color_jitter")
        check_choice("config", "data.transform", self.transform, ("auto", *TRANSFORMS))
        check_choice("config", "data.on_bad_image", self.on_bad_image, ("stop", "skip"))
        check_choice("config", "data.cache", self.cache, ("none", "ram", "gpu"))


@dataclass(frozen=True)
class OptimConfig:
    """Optimizer, learning-rate schedule and training stages.

    ``optimizer`` is ``"adamw"``, ``"sgd"``, or one of timm's, such as ``"timm:lamb"``. After
    ``warmup_epochs`` of linear warmup the learning rate follows ``schedule``: ``step`` multiplies
    it by ``gamma`` at each milestone, ``cosine`` decays it to zero. The classifier may have its own
    learning-rate factor and weight decay. One optimizer step takes ``data.batch_size`` images in
    ``accumulate`` micro-batches. ``ema_decay`` averages the weights, ``clip_norm`` clips the
    gradient norm. Modules in ``freeze`` are not trained, nor are their BatchNorm statistics
    updated. ``head_epochs`` first trains ``head_parts`` alone at the constant rate ``head_lr``
    (default ``lr``); ``epochs`` with their schedule follow. ``layer_decay`` multiplies the rate of
    a backbone layer once for every layer above it, ``pooling_lr_factor`` that of the pooling
    layer's parameters. ``swa_epochs`` averages the weights of all steps of that many last epochs.
    ``recipe_epochs`` are those of the recipe where fewer are trained, for the record. ``patience``
    stops a run whose accuracy on ``select_on`` has not improved for that many epochs.
    """

    optimizer: str = "adamw"
    lr: float = 1.2e-4
    weight_decay: float = 0.01
    momentum: float = 0.9
    epochs: int = 50
    schedule: str = "step"
    milestones: tuple[int, ...] = (15, 30)
    gamma: float = 0.1
    warmup_epochs: int = 0
    classifier_lr_factor: float = 1.0
    classifier_weight_decay: float | None = None
    label_smoothing: float = 0.0
    accumulate: int = 1
    clip_norm: float | None = None
    ema_decay: float | None = None
    freeze: tuple[str, ...] = ()
    head_epochs: int = 0
    head_lr: float | None = None
    head_parts: tuple[str, ...] = ("reduce", "pooling", "classifier")
    layer_decay: float = field(default=1.0, metadata=_ADDED)
    pooling_lr_factor: float = field(default=1.0, metadata=_ADDED)
    swa_epochs: int = field(default=0, metadata=_ADDED)
    recipe_epochs: int | None = field(default=None, metadata=_EXECUTION)
    patience: int | None = field(default=None, metadata=_ADDED)

    def __post_init__(self) -> None:
        if not self.optimizer.startswith("timm:"):
            check_choice("config", "optim.optimizer", self.optimizer, ("adamw", "sgd", "timm:NAME"))
        check_choice("config", "optim.schedule", self.schedule, ("constant", "step", "cosine"))
        _check_fields(self, "optim.", check_number, "lr", "clip_norm", "head_lr", strict=True)
        _check_fields(self, "optim.", check_number, "weight_decay", "classifier_weight_decay", "gamma")
        _check_fields(self, "optim.", check_number, "classifier_lr_factor", "pooling_lr_factor")
        _check_fields(self, "optim.", check_int, "epochs", "accumulate", "patience", minimum=1)
        _check_fields(self, "optim.", check_int, "warmup_epochs", "head_epochs", "swa_epochs", minimum=0)
        _check_fields(self, "optim.", _check_fraction, "momentum", "label_smoothing", "ema_decay")
        if not 0.0 < self.layer_decay <= 1.0:
            raise ValueError(f"config: expected 0 < optim.layer_decay ≤ 1, got {self.layer_decay}.")
        if self.swa_epochs and (self.ema_decay or self.patience) is not None:
            other = "ema_decay" if self.ema_decay is not None else "patience"
            raise ValueError(f"config: expected optim.swa_epochs or optim.{other}, got both; choose one.")


@dataclass(frozen=True)
class RunConfig:
    """One training run.

    The same config, seed and package versions give the same result up to rounding, and with
    ``deterministic`` bit for bit on one machine.

    ``select_on`` is the split on which the reported epoch is selected: ``"val"``, ``"test"`` (noted
    in the record), ``"last"`` for the last epoch, or ``"auto"`` for ``"val"`` if there is a
    validation split, else ``"last"``. ``eval_flip`` averages the predicted probabilities of every
    image and its mirror image in evaluation. ``devices`` and ``nodes`` count the processes to
    start; torchrun and SLURM set them instead. ``data.batch_size`` is the global batch size, summed
    over all processes. ``wandb`` names a project of Weights & Biases to log every epoch to.

    Example:
        >>> config = override(RunConfig(), ["model.pooling=gap", "optim.lr=0.01"])
        >>> config.model.pooling, config.optim.lr
        ('gap', 0.01)
    """

    model: ModelConfig = field(default_factory=ModelConfig)
    data: DataConfig = field(default_factory=DataConfig)
    optim: OptimConfig = field(default_factory=OptimConfig)
    augment: AugmentConfig = field(default_factory=AugmentConfig, metadata=_ADDED)
    seed: int = 0
    precision: str = "fp32"
    select_on: str = "auto"
    sync_bn: bool = False
    eval_flip: bool = field(default=False, metadata=_ADDED)
    device: str = field(default="auto", metadata=_EXECUTION)
    devices: int = field(default=1, metadata=_EXECUTION)
    nodes: int = field(default=1, metadata=_EXECUTION)
    threads: int | None = field(default=None, metadata=_EXECUTION)
    channels_last: bool = field(default=False, metadata=_EXECUTION)
    compile: bool = field(default=False, metadata=_EXECUTION)
    deterministic: bool = field(default=False, metadata=_EXECUTION)
    checkpoint_every_steps: int | None = field(default=None, metadata=_EXECUTION)
    tensorboard: bool = field(default=True, metadata=_EXECUTION)
    wandb: str | None = field(default=None, metadata=_EXECUTION)

    def __post_init__(self) -> None:
        check_int("config", "seed", self.seed, minimum=0)
        check_choice("config", "precision", self.precision, ("fp32", "bf16", "fp16"))
        check_choice("config", "select_on", self.select_on, ("auto", "val", "last", "test"))
        _check_fields(self, "", check_int, "devices", "nodes", "threads", "checkpoint_every_steps", minimum=1)


def _check_fields(config: Any, prefix: str, check: Callable[..., None], *names: str, **bounds: Any) -> None:
    """Check fields of a table that are not None."""
    for name in names:
        if getattr(config, name) is not None:
            check("config", f"{prefix}{name}", getattr(config, name), **bounds)


def _check_fraction(who: str, name: str, value: float) -> None:
    if not 0.0 <= value < 1.0:
        raise ValueError(f"{who}: expected 0 ≤ {name} < 1, got {value}.")


def to_dict(config: Any) -> dict[str, Any]:
    """Return the config as nested dictionaries of JSON values."""
    values: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(config)))
    return values


def from_dict(values: Mapping[str, Any], base: RunConfig | None = None) -> RunConfig:
    """Return ``base`` (default ``RunConfig()``) updated by nested values from TOML or JSON.

    Example:
        >>> from_dict({"optim": {"epochs": 3}}).optim.epochs
        3
    """
    config: RunConfig = _merge(base if base is not None else RunConfig(), values, "")
    return config


def load_config(path: str | Path) -> RunConfig:
    """Read a config that :func:`to_toml` wrote, or part of one. Former keys are renamed."""
    return from_dict(_parse_toml(path))


def read_toml(path: str | Path) -> dict[str, Any]:
    """Read a TOML file written by a user. Former keys are renamed, with a warning."""
    return _with_current_keys(_parse_toml(path))


def _parse_toml(path: str | Path) -> dict[str, Any]:
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(
            f"config: expected a TOML file, got {str(path)!r}, which does not exist; check the path."
        )
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"config: expected valid TOML in {str(path)!r}: {error}.") from None


def to_toml(config: RunConfig) -> str:
    """Format a config as TOML, from which :func:`load_config` reads an equal config."""
    values = to_dict(config)
    lines = [f"{key} = {_toml_value(value)}" for key, value in values.items() if not isinstance(value, dict)]
    for table, entries in values.items():
        if isinstance(entries, dict):
            lines += ["", f"[{table}]", *(f"{key} = {_toml_value(value)}" for key, value in entries.items())]
    return "\n".join(lines) + "\n"


def override(config: RunConfig, assignments: Iterable[str]) -> RunConfig:
    """Apply ``"a.b=c"`` strings in order, parsing each value by the type of its field."""
    for assignment in assignments:
        config = set_value(config, *split_assignment(assignment))
    return config


def split_assignment(assignment: str) -> tuple[str, str]:
    """Split ``"a.b=c"`` into ``("a.b", "c")``. A former key is renamed, with a warning."""
    key, equals, text = assignment.partition("=")
    if not equals or not key.strip():
        raise ValueError(f"config: expected an override like 'optim.lr=0.01', got {assignment!r}.")
    return _current_key(key.strip()), text.strip()


def set_value(config: RunConfig, key: str, value: Any) -> RunConfig:
    """Return the config with ``key`` (``"optim.lr"``) set; text is parsed by the field's type."""
    changed: RunConfig = _merge(config, nest({key: value}), "", from_text=isinstance(value, str))
    return changed


def config_hash(config: RunConfig) -> str:
    """Return twelve hexadecimal digits that identify what a run computes.

    Execution settings (data root, workers, devices, threads …) are excluded.
    """
    text = json.dumps(_hashed(config), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _hashed(config: Any) -> dict[str, Any]:
    table: Any = type(config)
    default, values = _default(table), {}
    for field_ in dataclasses.fields(config):
        value, how = getattr(config, field_.name), field_.metadata
        is_unset = how.get("hashed_if_set", False) and value == getattr(default, field_.name)
        if how.get("hashed", True) and not is_unset:
            values[how.get("hashed_as", field_.name)] = value
    if isinstance(config, ModelConfig) and config.weights is not None:
        values["checkpoint_path"] = None
    return {name: _hashed(v) if dataclasses.is_dataclass(v) else v for name, v in values.items()}


@functools.cache
def _default(table: type) -> Any:
    return table()


@functools.cache
def _type_hints(table: type) -> dict[str, Any]:
    return typing.get_type_hints(table)


def _current_key(key: str) -> str:
    if key not in _RENAMED:
        return key
    warnings.warn(f"config: {key!r} is deprecated; write {_RENAMED[key]!r}.", FutureWarning, stacklevel=1)
    return _RENAMED[key]


def _with_current_keys(table: Mapping[str, Any], name: str = "") -> dict[str, Any]:
    """Rename former keys at any depth: experiment files nest them, as in ``repeat.data.split``."""
    renamed: dict[str, Any] = {}
    for key, value in table.items():
        current = _current_key(f"{name}.{key}").removeprefix(f"{name}.")
        renamed[current] = _with_current_keys(value, key) if isinstance(value, Mapping) else value
    return renamed


def _merge(config: Any, values: Mapping[str, Any], prefix: str, *, from_text: bool = False) -> Any:
    table: Any = type(config)
    hints = _type_hints(table)
    changes = {}
    for given, value in values.items():
        # No warning: configs saved with a run keep their former keys.
        key = _RENAMED.get(f"{prefix}{given}", f"{prefix}{given}")
        name = key.removeprefix(prefix)
        if name not in hints:
            known = [f"{prefix}{hint}" for hint in hints]
            raise ValueError(f"config: unknown key {key!r}; expected {', '.join(known)}.{_hint(key, known)}")
        current = getattr(config, name)
        if not dataclasses.is_dataclass(current):
            changes[name] = _convert(key, hints[name], _read(value, hints[name]) if from_text else value)
        elif isinstance(value, Mapping):
            changes[name] = _merge(current, value, f"{key}.", from_text=from_text)
        else:
            raise TypeError(f"config: expected {key!r} to be a table, got {value!r}; set one of its fields instead.")
    return dataclasses.replace(config, **changes)


def _hint(key: str, known: list[str]) -> str:
    # Besides misspellings, a field is often given without its table: "lr" for "optim.lr".
    config = RunConfig()
    tables = [f.name for f in dataclasses.fields(config) if dataclasses.is_dataclass(getattr(config, f.name))]
    everything = [f"{t}.{f.name}" for t in tables for f in dataclasses.fields(getattr(config, t))]
    full = [name for name in everything if name.rsplit(".", 1)[-1] == key.rsplit(".", 1)[-1]]
    return f" Did you mean {full[0]!r}?" if full else suggestion(key, [*known, *everything])


def _read(text: str, hint: Any) -> Any:
    """Parse command-line text by the type of its field; strings are not evaluated."""
    if typing.get_origin(hint) is tuple and str in typing.get_args(hint):
        return [part.strip(" '\"") for part in text.strip("[]()").split(",") if part.strip()]
    if hint is str or (str in typing.get_args(hint)):
        return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"" else text
    words = {"true": True, "false": False, "none": None}
    if text.lower() in words:
        return words[text.lower()]
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def _convert(key: str, hint: Any, value: Any) -> Any:
    """Check the type of a value; convert int → float, list → tuple and "none" → None."""
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        if value is None or (isinstance(value, str) and value.lower() == "none"):
            return None
        hint = next(option for option in typing.get_args(hint) if option is not types.NoneType)
    if typing.get_origin(hint) is tuple and isinstance(value, list | tuple):
        return tuple(_convert(key, typing.get_args(hint)[0], item) for item in value)
    if hint is float and type(value) is int:
        return float(value)
    if not isinstance(hint, type) or type(value) is not hint:
        wanted = getattr(hint, "__name__", str(hint)) if typing.get_origin(hint) is None else "list"
        raise TypeError(f"config: expected {key!r} to be of type {wanted}, got {value!r} ({type(value).__name__}).")
    return value


def _toml_value(value: Any) -> str:
    # Strings, numbers, lists and booleans are written alike in JSON and TOML; TOML has no null.
    return '"none"' if value is None else json.dumps(value, ensure_ascii=False)
