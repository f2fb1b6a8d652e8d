"""Arguments of a network that are read from a file: a closed list with checked types.

A file may describe a network, but not choose other files or addresses. timm's ``checkpoint_path``,
``pretrained``, ``pretrained_cfg``, ``pretrained_cfg_overlay`` and ``cache_dir`` are not in the
list, and the backbone is a registered name, without a source such as ``hf-hub:``.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

from .._checks import is_number

# Larger sizes are not those of a network and would only exhaust the memory.
_MAX_SIZE = 1_000_000
_MAX_LENGTH = 64


def _is_size(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MAX_SIZE


def _is_sizes(value: Any) -> bool:
    several = isinstance(value, list | tuple) and 0 < len(value) <= _MAX_LENGTH and all(map(_is_size, value))
    return several or _is_size(value)


def _is_image_size(value: Any) -> bool:
    return value is None or (_is_sizes(value) and (isinstance(value, int) or len(value) == 2))


def _is_text(pattern: str) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, str) and re.fullmatch(pattern, value, re.DOTALL) is not None


_Check = tuple[Callable[[Any], bool], str]
_SIZES: _Check = (_is_sizes, "an integer or a list of integers")
_NUMBER: _Check = (is_number, "a finite number")
_BOOL: _Check = (lambda value: isinstance(value, bool), "true or false")
_WORD: _Check = (_is_text(r"\w{0,40}"), "a word")
_HEAD: dict[str, _Check] = {
    "name": (_is_text(r"\w[\w.]{0,99}"), "the registered name of a backbone, without a source or path"),
    "pooling": (_is_text(".*"), "a spec string"),
    "num_classes": (_is_size, "an integer"),
    "reduce": (lambda value: value is None or _is_size(value), "an integer or null"),
    "in_chans": (_is_size, "an integer"),
}
_BACKBONE: dict[str, _Check] = {
    "img_size": (_is_image_size, "an integer, two integers or null"),
    **dict.fromkeys((
        "widths", "depth", "depths", "dims", "embed_dim", "num_heads", "patch_size", "window_size", "layers",
        "channels", "output_stride", "cardinality", "base_width", "stem_width", "reg_tokens", "kernel_sizes",
    ), _SIZES),
    **dict.fromkeys((
        "drop_rate", "drop_path_rate", "attn_drop_rate", "proj_drop_rate", "pos_drop_rate", "patch_drop_rate",
        "drop_block_rate", "mlp_ratio", "init_values", "ls_init_value",
    ), _NUMBER),
    **dict.fromkeys((
        "qkv_bias", "qk_norm", "class_token", "no_embed_class", "pre_norm", "final_norm", "strict_img_size",
        "dynamic_img_size", "dynamic_img_pad", "always_partition", "conv_mlp", "use_grn", "avg_down", "conv_bias",
    ), _BOOL),
    **dict.fromkeys(("global_pool", "act_layer", "norm_layer", "stem_type", "pos_embed"), _WORD),
}  # fmt: skip


def check_arguments(arguments: Any, where: str) -> dict[str, Any]:
    """Return the arguments of a network in the file ``where``, once names and types are checked.

    Example:
        >>> network = {"name": "small_cnn", "pooling": "gap", "num_classes": 2}
        >>> network |= {"reduce": None, "in_chans": 3}
        >>> check_arguments(network, "config.json") == network
        True
    """
    if not isinstance(arguments, Mapping):
        raise ValueError(f"create_model: expected the arguments of a network in {where!r}, got {arguments!r}.")
    missing = [name for name in _HEAD if name not in arguments]
    if missing:
        raise ValueError(
            f"create_model: expected {', '.join(_HEAD)} of the network in {where!r}, got none of "
            f"{', '.join(missing)}; the file is damaged."
        )
    _check(arguments, _HEAD | _BACKBONE, where)
    return dict(arguments)


def check_backbone_arguments(config: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return ``architecture`` (as ``name``) and ``model_args`` of timm's config, checked."""
    arguments = config.get("model_args") or {}
    if not isinstance(arguments, Mapping):
        raise ValueError(f"create_model: expected a table of model_args in {where!r}, got {arguments!r}.")
    _check(arguments, _BACKBONE, where)
    _check({"name": config.get("architecture")}, _HEAD, where)
    return {"name": config["architecture"], **arguments}


def _check(arguments: Mapping[str, Any], known: Mapping[str, _Check], where: str) -> None:
    for name, value in arguments.items():
        if name not in known:
            raise ValueError(
                f"create_model: expected only known arguments of a network in {where!r}, got {name!r}; a file may not "
                "set it. If you trust the file, call create_model() with this argument and load the weights with "
                "checkpoint_path=."
            )
        is_valid, expected = known[name]
        if not is_valid(value):
            raise ValueError(
                f"create_model: expected {name} to be {expected} in {where!r}, got {value!r}; a file may not choose "
                "anything else. If you trust the file, call create_model() yourself."
            )
