"""Create networks: from the name of a backbone, from a model at hand, or from a shared network."""

from pathlib import Path
from typing import Any

from torch import nn

from ..pooling import Pooling
from .backbone import Backbone, ImageSize, check_module, create_backbone
from .feature_maps import is_torchvision
from .hub import find_shared
from .identity import Identity
from .network import DEFAULT_POOLING, Network, check_options
from .small_cnn import SmallCNN
from .weights import check_file, load_weights


def create_model(
    name: str,
    *,
    pooling: str | Pooling = DEFAULT_POOLING,
    num_classes: int | None = None,
    reduce: int | None = 256,
    pretrained: bool = False,
    checkpoint_path: str | Path | None = None,
    strict: bool = True,
    in_chans: int = 3,
    img_size: ImageSize = None,
    **backbone_kwargs: Any,
) -> Network:
    """Create a network from the name of a backbone, or load a shared network.

    Args:
        name: One of :data:`PAPER_BACKBONES`, any timm name with or without a tag
            (``"resnet50.a1_in1k"``), ``"small_cnn"`` for tiny images, or ``"identity"`` to pool the
            images themselves. ``"hf-hub:owner/name"``, ``"local-dir:folder"`` and paths that begin
            with ``.``, ``/`` or ``~`` load a network shared by ``isice push``, with its weights and
            in eval mode. If the config found there is in the format of timm, they name a backbone.
        pooling: A spec string such as ``"isice(n_iter=5)"``, or a pooling for the reduced channels.
        num_classes: Number of classes, 0 for pooled vectors. Required unless the network is shared.
        reduce: Channels after the reduction (1×1 convolution, BatchNorm, ReLU), or None.
        pretrained: Download ImageNet weights of the backbone, unless ``checkpoint_path`` is given.
        checkpoint_path: A local safetensors or ``.pth`` file for the backbone or the whole network.
            What matched is logged and kept as ``model.load_report``.
        strict: Whether it is an error if that file lacks most of the backbone.
        in_chans: Channels of the images.
        img_size: Height and width of the images, for backbones built for one size (Swin, ViT).
        **backbone_kwargs: More arguments of ``timm.create_model`` (for ``"small_cnn"``:
            ``widths``).

    Example:
        >>> model = create_model("small_cnn", pooling="gap", num_classes=10, in_chans=1)
        >>> model(torch.rand(2, 1, 8, 8)).shape
        torch.Size([2, 10])
    """
    head: dict[str, Any] = {"pooling": pooling, "num_classes": num_classes, "reduce": reduce}
    images: dict[str, Any] = {"in_chans": in_chans, "img_size": img_size}
    shared = find_shared(name) if isinstance(name, str) else None
    if shared is not None:
        return _read_shared(*shared, {**head, **images, "checkpoint_path": checkpoint_path, **backbone_kwargs})
    check_options("create_model", pooling, num_classes, reduce)
    file = None if checkpoint_path is None else check_file(checkpoint_path)
    model = build_network(name, pretrained=pretrained and file is None, **head, **images, **backbone_kwargs)
    if file is not None:
        load_weights(model, file, strict=strict)
    return model


def build_network(
    name: str,
    *,
    pooling: str | Pooling,
    num_classes: int,
    reduce: int | None,
    pretrained: bool = False,
    in_chans: int = 3,
    img_size: ImageSize = None,
    **backbone_kwargs: Any,
) -> Network:
    """Build a network from the arguments in :attr:`Network.config`."""
    backbone: Backbone | SmallCNN | Identity
    if name in (SmallCNN.name, Identity.name):
        unknown = [option for option in backbone_kwargs if (name, option) != (SmallCNN.name, "widths")]
        if unknown:
            raise TypeError(f"create_model: expected arguments of {name}, got an unknown one ({unknown[0]}).")
        if pretrained:
            raise ValueError(f"create_model: expected pretrained=False for {name!r}, got True; it has no weights.")
        backbone = (SmallCNN if name == SmallCNN.name else Identity)(in_chans, **backbone_kwargs)
    else:
        backbone = create_backbone(name, pretrained=pretrained, in_chans=in_chans, img_size=img_size, **backbone_kwargs)
    return Network(backbone, pooling=pooling, num_classes=num_classes, reduce=reduce)


def _read_shared(place: str, revision: str | None, asked: dict[str, Any]) -> Network:
    """Load a shared network; options that contradict it are an error."""
    model = Network.from_pretrained(place, revision=revision)
    defaults = create_model.__kwdefaults__ or {}
    for option, value in asked.items():
        own = model.config.get(option)
        if value not in (defaults.get(option), own):
            raise ValueError(
                f"create_model: expected the options of the network shared in {place!r}, with {option}={own!r}, got "
                f"{option}={value!r}; leave it out, or replace the head with attach()."
            )
    return model


def attach(
    model: nn.Module,
    pooling: str | Pooling = DEFAULT_POOLING,
    *,
    num_classes: int | None = None,
    reduce: int | None = 256,
    img_size: ImageSize = None,
) -> Network:
    """Replace the head of an existing model; the weights of its backbone are kept.

    The model is modified in place and becomes part of the network, so do not use it afterwards. The
    new modules are created on its device, in its dtype and in its mode (train or eval).

    Args:
        model: A classification model of timm or torchvision, a :class:`Network`, or any module that
            maps images to feature maps (B, C, H, W).
        pooling: A spec string such as ``"isice(n_iter=5)"``, or a pooling for the reduced channels.
        num_classes: Number of classes; by default that of the model.
        reduce: Channels after the reduction; None for no reduction.
        img_size: Height and width of the images, for a model that does not record them.

    Example:
        >>> import timm
        >>> model = attach(timm.create_model("test_resnet", num_classes=5), "gap", reduce=None)
        >>> model.classifier.out_features
        5
    """
    check_module("attach", model)
    classes = _num_classes(model) if num_classes is None else num_classes
    check_options("attach", pooling, classes, reduce)
    training = model.training
    backbone = model.backbone if isinstance(model, Network) else Backbone(model, img_size=img_size)
    network = Network(backbone, pooling=pooling, num_classes=classes, reduce=reduce)
    network.training = training
    return network.follow_backbone()


def _num_classes(model: nn.Module) -> int:
    """Return the number of classes of a classification model."""
    known = getattr(model, "num_classes", None)
    if known is None and is_torchvision(model):
        layers = [m for m in model.modules() if isinstance(m, nn.Linear | nn.Conv2d)]
        last = layers[-1]
        known = last.out_features if isinstance(last, nn.Linear) else last.out_channels
    if not known:
        raise ValueError("attach: expected num_classes, got None and a model without a classifier; pass num_classes.")
    return int(known)
