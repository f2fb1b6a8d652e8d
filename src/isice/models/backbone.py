"""② Backbones: any timm network, adapted to return a feature map (B, C, H, W)."""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import timm
import torch
from timm.models.vgg import VGG
from torch import Tensor, nn

from .._checks import check_floating, check_int, suggestion
from .hub import timm_arguments

PAPER_BACKBONES = {
    "vgg16": "vgg16.tv_in1k",
    "vgg19": "vgg19.tv_in1k",
    "resnet50": "resnet50.tv_in1k",
    "resnet101": "resnet101.tv_in1k",
    "resnext101": "resnext101_32x8d.tv_in1k",
    "convnext_tiny": "convnext_tiny.fb_in1k",
    "swin_tiny": "swin_tiny_patch4_window7_224.ms_in1k",
    "swin_base": "swin_base_patch4_window7_224.ms_in1k",
}
"""Short names of the paper's eight backbones → timm names with ImageNet-1k weights.

The paper used the weights of torchvision 0.13. timm has those of VGG, ResNet and ResNeXt
(``tv_in1k``), but not those of ConvNeXt and Swin: here their authors' ImageNet-1k weights are used
(``fb_in1k``, ``ms_in1k``).
"""

ImageSize = int | Sequence[int] | None


class Backbone(nn.Module):
    """A timm network without pooling and classifier: images → feature maps (B, C, H, W).

    The network is modified in place: the classifier is removed and the final norm kept. VGG also
    loses its last max-pooling and its fully connected layers. A forward pass of one blank image
    determines the number of channels and detects unsupported networks.

    Args:
        model: A network made by ``timm.create_model``.
        name: Name in messages and records; by default that of timm.
        img_size: Height and width of the blank image; by default the size the network was built
            for.

    Attributes:
        model: The timm network.
        out_channels: Channels C of the feature map.
        in_chans: Channels of the images.
        built_for: Height and width of the blank image.
        config: The arguments of :func:`create_backbone` that rebuild it.
        fixed_size: The only height and width that the network accepts, or None.

    Example:
        >>> Backbone(timm.create_model("test_resnet"))(torch.rand(2, 3, 96, 64)).shape
        torch.Size([2, 96, 3, 2])
    """

    def __init__(self, model: nn.Module, *, name: str | None = None, img_size: ImageSize = None) -> None:
        super().__init__()
        check_timm("Backbone", model)
        cfg: dict[str, Any] = getattr(model, "pretrained_cfg", None) or {}
        embed = getattr(model, "patch_embed", None)
        embed_size = getattr(embed, "img_size", None)
        self.name = name or ".".join(filter(None, (cfg.get("architecture"), cfg.get("tag")))) or type(model).__name__
        self.in_chans = _in_chans(model)
        self.config: dict[str, Any] = {"name": self.name, "in_chans": self.in_chans, "img_size": None}
        self.fixed_size = _pair(embed_size) if getattr(embed, "strict_img_size", False) and embed_size else None
        known_size = (embed_size or cfg.get("input_size", (3, 224, 224))[1:]) if img_size is None else img_size
        self.built_for = _pair(known_size)
        if img_size is not None or self.fixed_size is not None:
            self.config["img_size"] = self.built_for
        self.model = model
        with _evaluating(model):
            self._by_head = _drop_head(model)
            self.out_channels = self._probe()
        self.training = model.training

    def forward(self, x: Tensor) -> Tensor:
        """Map images (B, in_chans, H, W) to features (B, out_channels, H', W')."""
        self._check_images(x)
        if torch.compiler.is_compiling():
            return self._features(x)
        try:
            return self._features(x)
        except torch.OutOfMemoryError:
            raise
        except (AssertionError, IndexError, RuntimeError) as error:
            if tuple(x.shape[-2:]) == self.built_for:
                raise
            raise _wrong_size(self.name, x.shape[-2:], error) from error

    def _features(self, x: Tensor) -> Tensor:
        out = self.model(x) if self._by_head else self.model.forward_features(x)  # type: ignore[operator]
        return _to_map(self.name, self.model, out, (x.shape[-2], x.shape[-1]))

    def _probe(self) -> int:
        """Return the channels of a feature map, and find out whether to bypass the timm head."""
        parameter = next(self.model.parameters())
        blank = torch.zeros(1, self.in_chans, *self.built_for, dtype=parameter.dtype, device=parameter.device)
        try:
            with torch.no_grad():
                # Some timm heads pool even with global_pool=""; then use the features before the
                # head.
                self._by_head = self._by_head and _is_map(self.model(blank))
                if not self._by_head:
                    _remove_head(self.model)
                return self._features(blank).shape[1]
        except (AssertionError, IndexError, RuntimeError) as error:
            raise _wrong_size(self.name, self.built_for, error) from error

    def _check_images(self, x: Any) -> None:
        check_floating(self.name, x)
        if x.ndim != 4 or x.shape[1] != self.in_chans:
            raise ValueError(
                f"{self.name}: expected images (B, {self.in_chans}, H, W), got {tuple(x.shape)}; "
                "pass a batch of channels-first images, or create the model with another in_chans."
            )
        if self.fixed_size is not None and tuple(x.shape[-2:]) != self.fixed_size:
            raise ValueError(
                f"{self.name}: expected images of {_size(self.fixed_size)} pixels, got {_size(x.shape[-2:])}; "
                f"resize them, or create the model with img_size=({x.shape[-2]}, {x.shape[-1]})."
            )

    def extra_repr(self) -> str:
        return f"{self.name}, in_chans={self.in_chans}, out_channels={self.out_channels}"


def create_backbone(
    name: str, *, pretrained: bool = False, in_chans: int = 3, img_size: ImageSize = None, **backbone_kwargs: Any
) -> Backbone:
    """Create a timm backbone.

    Args:
        name: A key of :data:`PAPER_BACKBONES`, or a timm name with or without a tag
            (``"resnet50.a1_in1k"``).
        pretrained: Download the weights of that name.
        in_chans: Channels of the images.
        img_size: Height and width of the images. Swin and ViT are built for one size; a
            convolutional network accepts any size, and is only tested with this one.
        **backbone_kwargs: More arguments of ``timm.create_model``.

    Example:
        >>> create_backbone("test_vit", img_size=(64, 96))(torch.rand(1, 3, 64, 96)).shape
        torch.Size([1, 64, 4, 6])
    """
    timm_name = _timm_name(name)
    # Read from a file, and saved with the network, which is then rebuilt without its source.
    sourced = timm_arguments(timm_name) if ":" in timm_name else {}
    if "image_size" in backbone_kwargs:
        raise TypeError("create_model: expected img_size, got image_size; write img_size=(height, width).")
    check_int("create_model", "in_chans", in_chans, minimum=1)
    size = None if img_size is None else _pair(img_size)
    kwargs = {"num_classes": 0, "in_chans": in_chans, **backbone_kwargs}
    try:
        model = _build(timm_name, pretrained, kwargs if size is None else {"img_size": size, **kwargs})
    except TypeError as error:
        if size is None or "img_size" not in str(error):
            raise TypeError(f"create_model: expected arguments of {name}, got an unknown one ({error}).") from error
        # Convolutional networks accept any size and have no such argument.
        model = _build(timm_name, pretrained, kwargs)
    backbone = Backbone(model, name=name, img_size=size)
    backbone.config.update(sourced | backbone_kwargs)
    return backbone


def _timm_name(name: str) -> str:
    if not isinstance(name, str):
        raise TypeError(f"create_model: expected a name, got {type(name).__name__}; attach() takes a model you have.")
    timm_name = PAPER_BACKBONES.get(name, name)
    if ":" in timm_name:  # timm resolves names with a source ("hf-hub:…", "local-dir:…")
        return timm_name
    if not timm.is_model(timm_name):
        hint = suggestion(name, [*PAPER_BACKBONES, "small_cnn", *timm.list_models()])
        raise ValueError(
            f"create_model: expected 'small_cnn', one of {', '.join(PAPER_BACKBONES)} or a timm name, got {name!r}."
            f"{hint or ' timm.list_models() lists them.'}"
        )
    tagged = timm.list_pretrained(timm_name.split(".")[0] + ".*") if "." in timm_name else []
    if tagged and timm_name not in tagged:
        raise ValueError(f"create_model: expected one of {', '.join(tagged)}, got {name!r}; choose one of these tags.")
    return timm_name


def _build(timm_name: str, pretrained: bool, kwargs: dict[str, Any]) -> nn.Module:
    if not pretrained:
        try:
            return timm.create_model(timm_name, pretrained=False, **kwargs)
        except (AssertionError, RuntimeError) as error:
            if "img_size" not in kwargs:
                raise
            raise _wrong_size(timm_name, kwargs["img_size"], error) from error
    try:
        return timm.create_model(timm_name, pretrained=True, **kwargs)
    except TypeError:
        raise
    except Exception as error:  # download errors have no common base class
        raise RuntimeError(
            f"create_model: expected pretrained weights of {timm_name!r}, but they could not be downloaded or loaded "
            f"({type(error).__name__}: {error}); pass checkpoint_path= with a local file, or pretrained=False."
        ) from error


def check_timm(who: str, model: Any) -> None:
    """Raise TypeError unless ``model`` is a timm network with a removable classifier."""
    missing = [name for name in ("forward_features", "reset_classifier") if not hasattr(model, name)]
    if not isinstance(model, nn.Module) or missing:
        raise TypeError(
            f"{who}: expected a timm classification model, got {type(model).__name__}"
            f"{' without ' + ' and '.join(missing) if missing else ''}; make it with timm.create_model(name), "
            "or feed your own features to isice.create_pooling(spec, in_channels)."
        )


def _in_chans(model: nn.Module) -> int:
    known = getattr(model, "in_chans", None)
    return known or next((m.in_channels for m in model.modules() if isinstance(m, nn.Conv2d)), 3)


def _drop_head(model: nn.Module) -> bool:
    """Remove pooling and classifier; return False if the timm head always pools."""
    if isinstance(model, VGG):
        if isinstance(model.features[-1], nn.MaxPool2d):
            model.features = model.features[:-1]
        model.pre_logits = nn.Identity()  # type: ignore[assignment]
    try:
        model.reset_classifier(0, "")  # type: ignore[operator]
    except (AssertionError, TypeError, ValueError):
        model.reset_classifier(0)  # type: ignore[operator]
        return False
    return True


def _remove_head(model: nn.Module) -> None:
    """Remove the bypassed timm head: distributed training fails on parameters without gradients."""
    classifiers = (getattr(model, "pretrained_cfg", None) or {}).get("classifier") or ()
    for name in (classifiers,) if isinstance(classifiers, str) else classifiers:
        setattr(model, name.split(".")[0], nn.Identity())


def _is_map(out: Any) -> bool:
    return isinstance(out, Tensor) and out.ndim > 2


def _to_map(who: str, model: nn.Module, out: Any, image_size: tuple[int, int]) -> Tensor:
    """Convert NCHW maps, NHWC maps and token sequences to (B, C, H, W)."""
    if isinstance(out, Tensor) and out.ndim == 4:
        nhwc = str(getattr(model, "output_fmt", "NCHW")).endswith("NHWC")
        return out.permute(0, 3, 1, 2) if nhwc else out
    if isinstance(out, Tensor) and out.ndim == 3:
        prefix = getattr(model, "num_prefix_tokens", None)
        if prefix is None:
            prefix = 0 if getattr(model, "cls_token", None) is None else 1
        grid = _grid(model, out.shape[1] - prefix, image_size)
        if grid is not None:
            tokens: Tensor = out[:, prefix:].transpose(1, 2)
            return torch.unflatten(tokens, 2, grid)
    got = f"an output of shape {tuple(out.shape)}" if isinstance(out, Tensor) else f"a {type(out).__name__}"
    raise ValueError(
        f"{who}: expected a backbone with a spatial feature map, got {got}; second-order pooling needs positions: "
        "choose for example resnet50, convnext_tiny, swin_tiny or a plain ViT."
    )


def _grid(model: nn.Module, n_tokens: int, image_size: tuple[int, int]) -> tuple[int, int] | None:
    """Infer the grid of a token sequence from the stride or the aspect ratio of the image."""
    height, width = image_size
    info = getattr(model, "feature_info", None)
    stride = info[-1].get("reduction", 0) if isinstance(info, list) and info else 0
    if stride:
        candidates = [(height // stride, width // stride), (math.ceil(height / stride), math.ceil(width / stride))]
    else:
        rows = max(1, round(math.sqrt(n_tokens * height / width)))
        candidates = [(rows, n_tokens // rows)]
    return next((grid for grid in candidates if grid[0] * grid[1] == n_tokens > 0), None)


@contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    """Switch to eval mode; afterwards restore each mode, new modules taking the model's."""
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for module in model.modules():
            module.training = modes.get(module, modes[model])


def _pair(size: Any) -> tuple[int, int]:
    pair = (size, size) if isinstance(size, int) else tuple(size) if isinstance(size, Sequence) else ()
    if len(pair) != 2 or not all(isinstance(side, int) and side > 0 for side in pair):
        raise ValueError(f"create_model: expected img_size to be a positive integer or (height, width), got {size!r}.")
    return pair[0], pair[1]


def _wrong_size(who: str, size: Sequence[int], error: Exception) -> ValueError:
    return ValueError(
        f"{who}: expected images of a size that this backbone accepts, got {_size(size)} pixels ({error}); "
        "resize the images, or pass another img_size when creating the model."
    )


def _size(size: Sequence[int]) -> str:
    return f"{size[0]}×{size[1]}"
