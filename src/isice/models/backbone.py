"""② Backbones: networks of timm and torchvision, adapted to return a feature map (B, C, H, W)."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import timm
import torch
from torch import Tensor, nn

from .._checks import check_images, check_int, suggestion
from .feature_maps import (
    call,
    call_forward_features,
    drop_head,
    is_map,
    is_timm,
    is_torchvision,
    remove_bypassed_head,
    to_map,
)
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
_SIZE_ERRORS = (AssertionError, IndexError, RuntimeError)  # what networks raise for a wrong image size


class Backbone(nn.Module):
    """A network without pooling and classifier: images → feature maps (B, C, H, W).

    The network is modified in place: the classifier is removed and the final norm kept. VGG also
    loses its last max-pooling and its fully connected layers. A forward pass of one blank image
    determines the number of channels and detects unsupported networks.

    Args:
        model: A classification model of timm or torchvision, or any module: images → (B, C, H, W).
        name: Name in messages and records; by default that of timm, or of the class.
        img_size: Height and width of the blank image; by default that of the network, or 224.

    Attributes:
        model: The network.
        out_channels: Channels C of the feature map.
        in_chans: Channels of the images.
        built_for: Height and width of the blank image.
        config: The arguments of :func:`create_backbone` that rebuild it; None unless it is of timm.
        fixed_size: The only height and width that the network accepts, or None.

    Example:
        >>> Backbone(timm.create_model("test_resnet"))(torch.rand(2, 3, 96, 64)).shape
        torch.Size([2, 96, 3, 2])
    """

    def __init__(self, model: nn.Module, *, name: str | None = None, img_size: ImageSize = None) -> None:
        super().__init__()
        check_module("Backbone", model)
        cfg: dict[str, Any] = getattr(model, "pretrained_cfg", None) or {}
        self.name = name or ".".join(filter(None, (cfg.get("architecture"), cfg.get("tag")))) or type(model).__name__
        convolutions = (module.in_channels for module in model.modules() if isinstance(module, nn.Conv2d))
        self.in_chans: int = getattr(model, "in_chans", None) or next(convolutions, 3)
        self.fixed_size = _fixed_size(model)
        self.built_for = _own_size(model) if img_size is None else _pair(img_size)
        self.config: dict[str, Any] | None = None
        if is_timm(model):
            size = self.built_for if img_size is not None or self.fixed_size is not None else None
            self.config = {"name": self.name, "in_chans": self.in_chans, "img_size": size}
        self.model = model
        with evaluating(model):
            self._extract = drop_head(self.name, model)
            self.out_channels = self._probe(asked=img_size is not None)
        self.training = model.training

    def forward(self, x: Tensor) -> Tensor:
        """Map images (B, in_chans, H, W) to features (B, out_channels, H', W')."""
        check_images(self.name, x, self.in_chans)
        if self.fixed_size is not None and tuple(x.shape[-2:]) != self.fixed_size:
            raise ValueError(
                f"{self.name}: expected images of {_size(self.fixed_size)} pixels, got {_size(x.shape[-2:])}; "
                f"resize them, or create the model with img_size=({x.shape[-2]}, {x.shape[-1]})."
            )
        if torch.compiler.is_compiling():
            return self._features(x)
        try:
            return self._features(x)
        except torch.OutOfMemoryError:
            raise
        except _SIZE_ERRORS as error:
            if self._accepts(_pair(tuple(x.shape[-2:]))) or not self._accepts(self.built_for):
                raise  # the size is not the cause
            raise _wrong_size(self.name, x.shape[-2:], error) from error

    def _features(self, x: Tensor) -> Tensor:
        return to_map(self.name, self.model, self._extract(self.model, x), (x.shape[-2], x.shape[-1]))

    def _accepts(self, size: tuple[int, int]) -> bool:
        """Return whether a blank image of this size passes through the network."""
        try:
            with evaluating(self.model), torch.no_grad():
                self._features(self._blank(size))
        except _SIZE_ERRORS:
            return False
        return True

    def _blank(self, size: tuple[int, int]) -> Tensor:
        like = next(self.model.parameters(), torch.empty(0))
        return torch.zeros(1, self.in_chans, *size, dtype=like.dtype, device=like.device)

    def _probe(self, *, asked: bool) -> int:
        """Return the channels of a feature map, and find out whether to bypass the timm head."""
        blank = self._blank(self.built_for)
        try:
            with torch.no_grad():
                # Some timm heads pool even with global_pool=""; then use the features before them.
                if is_timm(self.model):
                    if self._extract is call and is_map(found := call(self.model, blank)):
                        return to_map(self.name, self.model, found, self.built_for).shape[1]
                    self._extract = call_forward_features
                    remove_bypassed_head(self.model)
                return self._features(blank).shape[1]
        except _SIZE_ERRORS as error:
            own = _own_size(self.model)
            if asked and (own == self.built_for or self._accepts(own)):
                raise _wrong_size(self.name, self.built_for, error) from error
            if is_timm(self.model):
                raise
            raise ValueError(
                f"{self.name}: expected a module that maps images {tuple(blank.shape)} to (B, C, H, W), but it raised "
                f"{type(error).__name__}: {error}; pass img_size=(height, width) if it needs another size."
            ) from error

    def extra_repr(self) -> str:
        return f"{self.name}, in_chans={self.in_chans}, out_channels={self.out_channels}"


def check_module(who: str, model: Any) -> None:
    """Raise TypeError unless ``model`` is a torch module."""
    if not isinstance(model, nn.Module):
        raise TypeError(
            f"{who}: expected a torch module, got {type(model).__name__}; make one with timm.create_model(name) or "
            "torchvision.models.get_model(name)."
        )


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
    backbone.config = {**(backbone.config or {}), **sourced, **backbone_kwargs}
    return backbone


def _timm_name(name: str) -> str:
    if not isinstance(name, str):
        raise TypeError(f"create_model: expected a name, got {type(name).__name__}; attach() takes a model you have.")
    timm_name = PAPER_BACKBONES.get(name, name)
    if ":" in timm_name:  # timm resolves names with a source ("hf-hub:…", "local-dir:…")
        return timm_name
    if not timm.is_model(timm_name):
        hint = suggestion(name, [*PAPER_BACKBONES, "small_cnn", "identity", *timm.list_models()])
        raise ValueError(
            f"create_model: expected 'small_cnn', 'identity', one of {', '.join(PAPER_BACKBONES)} or a timm name, "
            f"got {name!r}."
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
        raise OSError(
            f"create_model: expected pretrained weights of {timm_name!r}, but they could not be downloaded or loaded "
            f"({type(error).__name__}: {error}); pass checkpoint_path= with a local file (isice train: --weights-root "
            "with its folder), or pretrained=False."
        ) from error


def _fixed_size(model: nn.Module) -> tuple[int, int] | None:
    """Return the only image size that a transformer accepts."""
    if is_torchvision(model):
        size = getattr(model, "image_size", None)
    else:
        embed = getattr(model, "patch_embed", None)
        size = getattr(embed, "img_size", None) if getattr(embed, "strict_img_size", False) else None
    return _pair(size) if size else None


def _own_size(model: nn.Module) -> tuple[int, int]:
    """Return the image size a network was built for, or 224×224."""
    size = getattr(getattr(model, "patch_embed", None), "img_size", None) or _fixed_size(model)
    return _pair(size or (getattr(model, "pretrained_cfg", None) or {}).get("input_size", (3, 224, 224))[1:])


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Set eval mode within the context, then restore all modes; new modules take the model's."""
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
        raise ValueError(f"Backbone: expected img_size to be a positive integer or (height, width), got {size!r}.")
    return pair[0], pair[1]


def _wrong_size(who: str, size: Sequence[int], error: Exception) -> ValueError:
    return ValueError(
        f"{who}: expected images of a size that this backbone accepts, got {_size(size)} pixels ({error}); "
        "resize the images, or pass another img_size when creating the model."
    )


def _size(size: Sequence[int]) -> str:
    return f"{size[0]}×{size[1]}"
