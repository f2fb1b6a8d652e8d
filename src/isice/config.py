"""What a run is: frozen dataclasses ⇄ TOML, ``a.b=c`` overrides, and a hash that says whether two runs are the same.

An unknown key is an error with a suggestion, a wrong type is an error that names the key. TOML has no null, so the
word ``"none"`` stands for ``None`` wherever a field allows it.
"""

import ast
import dataclasses
import hashlib
import json
import tomllib
import types
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ._checks import check_choice, check_int, check_number, suggestion

# Fields that say where a run computes and not what: they are no part of the hash.
_WHERE = {"hashed": False}


@dataclass(frozen=True)
class ModelConfig:
    """② – ⑦: the network, as in :func:`isice.create_model`; ``img_size`` follows ``data.image_size`` unless given."""

    backbone: str = "small_cnn"
    pooling: str = "isice"
    reduce: int | None = 256
    pretrained: bool = False
    checkpoint_path: str | None = None
    img_size: int | None = None

    def __post_init__(self) -> None:
        for name in ("reduce", "img_size"):
            if getattr(self, name) is not None:
                check_int("config", f"model.{name}", getattr(self, name), minimum=1)


@dataclass(frozen=True)
class DataConfig:
    """① the data: which, where, at what size, how transformed, and how much of train is held out for validation.

    ``split`` is the number of the dataset's own split (DTD: 1 … 10) or seeded one (mini-ImageNet). ``transform`` and
    ``mean``/``std`` are the dataset's unless given. An unreadable image stops the run, or is left out and counted.
    ``cache`` keeps decoded images: in memory, which changes no result, or on the GPU, which decodes and resizes itself.
    """

    name: str = "digits"
    root: str | None = field(default=None, metadata=_WHERE)
    download: bool = field(default=False, metadata=_WHERE)
    image_size: int | None = None
    batch_size: int = 64
    workers: int = field(default=0, metadata=_WHERE)
    split: int = 1
    val_fraction: float = 0.0
    split_seed: int = 0
    transform: str = "auto"
    color_jitter: float = 0.0
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    on_bad_image: str = "stop"
    cache: str = "none"

    def __post_init__(self) -> None:
        check_int("config", "data.batch_size", self.batch_size, minimum=1)
        check_int("config", "data.workers", self.workers, minimum=0)
        check_int("config", "data.split", self.split, minimum=1)
        check_int("config", "data.split_seed", self.split_seed, minimum=0)
        if self.image_size is not None:
            check_int("config", "data.image_size", self.image_size, minimum=1)
        if not 0.0 <= self.val_fraction < 1.0:
            raise ValueError(f"config: expected 0 ≤ data.val_fraction < 1, got {self.val_fraction}.")
        check_choice("config", "data.transform", self.transform, ("auto", "none", "paper", "crop", "randaugment"))
        check_number("config", "data.color_jitter", self.color_jitter)
        check_choice("config", "data.on_bad_image", self.on_bad_image, ("stop", "skip"))
        check_choice("config", "data.cache", self.cache, ("none", "ram", "gpu"))


@dataclass(frozen=True)
class OptimConfig:
    """How it learns.

    The rate follows ``schedule`` after ``warmup_epochs`` of linear growth: ``step`` multiplies it by ``gamma`` at each
    milestone, ``cosine`` goes to zero. The classifier can have a rate (a factor) and a weight decay of its own.
    ``data.batch_size`` images make one optimizer step, computed in ``accumulate`` portions. ``ema_decay`` averages the
    weights, ``clip_norm`` bounds the gradient. Parts named in ``freeze`` do not learn, BatchNorm statistics included.
    With ``head_epochs`` only ``head_parts`` learn at first, at the constant rate ``head_lr`` (``lr`` unless given); the
    ``epochs`` and their schedule come after.
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

    def __post_init__(self) -> None:
        check_choice("config", "optim.optimizer", self.optimizer, ("adamw", "sgd"))
        check_choice("config", "optim.schedule", self.schedule, ("constant", "step", "cosine"))
        for name in ("lr", "clip_norm", "head_lr"):
            if getattr(self, name) is not None:
                check_number("config", f"optim.{name}", getattr(self, name), strict=True)
        for name in ("weight_decay", "classifier_weight_decay", "gamma", "classifier_lr_factor"):
            if getattr(self, name) is not None:
                check_number("config", f"optim.{name}", getattr(self, name))
        for name, minimum in (("epochs", 1), ("accumulate", 1), ("warmup_epochs", 0), ("head_epochs", 0)):
            check_int("config", f"optim.{name}", getattr(self, name), minimum=minimum)
        for name in ("momentum", "label_smoothing", "ema_decay"):
            value = getattr(self, name)
            if value is not None and not 0.0 <= value < 1.0:
                raise ValueError(f"config: expected 0 ≤ optim.{name} < 1, got {value}.")


@dataclass(frozen=True)
class RunConfig:
    """One training run, complete: the same config, seed and versions give the same result.

    ``select_on`` says where the reported epoch is chosen: on the validation part (``"val"``), not at all (``"last"``),
    on the test part (``"test"``, and the record says so), or ``"auto"``: on validation if there is such a part, else
    the last. ``devices`` and ``nodes`` count processes that this run starts itself; under torchrun or SLURM theirs are
    used. All processes together make one batch of ``data.batch_size``.

    Example:
        >>> config = override(RunConfig(), ["model.pooling=gap", "optim.lr=0.01"])
        >>> config.model.pooling, config.optim.lr
        ('gap', 0.01)
    """

    model: ModelConfig = field(default_factory=ModelConfig)
    data: DataConfig = field(default_factory=DataConfig)
    optim: OptimConfig = field(default_factory=OptimConfig)
    seed: int = 0
    precision: str = "fp32"
    select_on: str = "auto"
    sync_bn: bool = False
    device: str = field(default="auto", metadata=_WHERE)
    devices: int = field(default=1, metadata=_WHERE)
    nodes: int = field(default=1, metadata=_WHERE)
    threads: int | None = field(default=None, metadata=_WHERE)
    channels_last: bool = field(default=False, metadata=_WHERE)
    compile: bool = field(default=False, metadata=_WHERE)
    deterministic: bool = field(default=False, metadata=_WHERE)
    checkpoint_every_steps: int | None = field(default=None, metadata=_WHERE)
    tensorboard: bool = field(default=True, metadata=_WHERE)

    def __post_init__(self) -> None:
        check_int("config", "seed", self.seed, minimum=0)
        check_choice("config", "precision", self.precision, ("fp32", "bf16", "fp16"))
        check_choice("config", "select_on", self.select_on, ("auto", "val", "last", "test"))
        for name in ("devices", "nodes", "threads", "checkpoint_every_steps"):
            if getattr(self, name) is not None:
                check_int("config", name, getattr(self, name), minimum=1)


def to_dict(config: Any) -> dict[str, Any]:
    """The config as plain nested dictionaries, ready for JSON."""
    return json.loads(json.dumps(dataclasses.asdict(config)))


def from_dict(values: Mapping[str, Any], base: RunConfig | None = None) -> RunConfig:
    """Lays nested ``values``, as read from TOML or JSON, over ``base`` (the defaults).

    Example:
        >>> from_dict({"optim": {"epochs": 3}}).optim.epochs
        3
    """
    return _merge(base if base is not None else RunConfig(), values, "")


def load_config(path: str | Path, base: RunConfig | None = None) -> RunConfig:
    """Reads a config from a TOML file and lays it over ``base`` (the defaults)."""
    return from_dict(read_toml(path), base)


def read_toml(path: str | Path) -> dict[str, Any]:
    """Reads a TOML file; a missing or malformed one is an error that names it."""
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"config: expected a TOML file, got {str(path)!r}, which does not exist.")
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"config: expected valid TOML in {str(path)!r}: {error}.") from None


def to_toml(config: RunConfig) -> str:
    """Writes a config as TOML that :func:`load_config` reads back to an equal config."""
    values = to_dict(config)
    lines = [f"{key} = {_toml_value(value)}" for key, value in values.items() if not isinstance(value, dict)]
    for table, entries in values.items():
        if isinstance(entries, dict):
            lines += ["", f"[{table}]", *(f"{key} = {_toml_value(value)}" for key, value in entries.items())]
    return "\n".join(lines) + "\n"


def override(config: RunConfig, assignments: Iterable[str]) -> RunConfig:
    """Applies ``"a.b=c"`` strings in order; the text after ``=`` is read according to the field's type."""
    for assignment in assignments:
        config = set_value(config, *split_assignment(assignment))
    return config


def split_assignment(assignment: str) -> tuple[str, str]:
    """``"a.b=c"`` → ``("a.b", "c")``."""
    key, equals, text = assignment.partition("=")
    if not equals or not key.strip():
        raise ValueError(f"config: expected an override like 'optim.lr=0.01', got {assignment!r}.")
    return key.strip(), text.strip()


def set_value(config: RunConfig, key: str, value: Any) -> RunConfig:
    """The config with the field ``key`` (``"optim.lr"``) set; text is read according to the field's type."""
    nested: Any = value
    for part in reversed(key.split(".")):
        nested = {part: nested}
    return _merge(config, nested, "", from_text=isinstance(value, str))


def config_hash(config: RunConfig) -> str:
    """Twelve hexadecimal digits that are equal for equal runs, wherever they are computed.

    Data root, workers, devices, threads and the like are left out: they say where and how a run computes, not what.
    """
    text = json.dumps(_hashed(config), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _hashed(config: Any) -> dict[str, Any]:
    kept = [f.name for f in dataclasses.fields(config) if f.metadata.get("hashed", True)]
    values = {name: getattr(config, name) for name in kept}
    return {name: _hashed(v) if dataclasses.is_dataclass(v) else v for name, v in values.items()}


def _merge(config: Any, values: Mapping[str, Any], prefix: str, *, from_text: bool = False) -> Any:
    hints = typing.get_type_hints(type(config))
    changes = {}
    for name, value in values.items():
        key = f"{prefix}{name}"
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
    # The likeliest mistake besides a misspelling is a field without its table: "lr" for "optim.lr".
    config = RunConfig()
    tables = [f.name for f in dataclasses.fields(config) if dataclasses.is_dataclass(getattr(config, f.name))]
    everything = [f"{t}.{f.name}" for t in tables for f in dataclasses.fields(getattr(config, t))]
    full = [name for name in everything if name.rsplit(".", 1)[-1] == key.rsplit(".", 1)[-1]]
    return f" Did you mean {full[0]!r}?" if full else suggestion(key, [*known, *everything])


def _read(text: str, hint: Any) -> Any:
    """Command-line text as the value it means; text for a string field stays as it is."""
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
    """``value`` as the type ``hint``; only int → float, list → tuple and "none" → None are converted."""
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
    # JSON's strings, numbers, lists and booleans are TOML's; a null does not exist there.
    return '"none"' if value is None else json.dumps(value, ensure_ascii=False)
