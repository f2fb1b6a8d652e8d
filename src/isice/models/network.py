"""Networks: backbone ② → reduction ③ → pooling ④–⑥ → classifier ⑦."""

from pathlib import Path
from typing import Any

from torch import Tensor, nn

from .._checks import check_int
from .._specs import parse_spec, split_sum
from ..pooling import Pooling, create_pooling, pooling_class
from .backbone import Backbone, ImageSize, check_timm, create_backbone
from .classifier import create_classifier
from .hub import HubModel, find_shared
from .reduce import Reduce
from .small_cnn import SmallCNN
from .weights import LoadReport, check_file, load_weights


class Network(nn.Module, HubModel):
    """An image classifier with a choice of pooling, made by :func:`create_model` or :func:`attach`.

    Args:
        backbone: Module that returns feature maps (B, C, H, W).
        pooling: A spec string such as ``"isice(n_iter=5)"``, or a pooling for the reduced channels.
        num_classes: Number of classes; 0 returns the pooled vectors.
        reduce: Channels after the reduction; None for no reduction.

    Attributes:
        backbone, reduce, pooling, classifier: The four modules, in the order of use.
        num_features: Length of the pooled vector.
        load_report: Which tensors of a weight file were loaded; None without a file.
        about: Metadata saved with the weights: ``classes``, ``input`` and ``training``, if known.
    """

    def __init__(
        self,
        backbone: Backbone | SmallCNN,
        *,
        pooling: str | Pooling = "isice",
        num_classes: int,
        reduce: int | None = 256,
    ) -> None:
        super().__init__()
        _check_options("Network", pooling, num_classes, reduce)
        channels = backbone.out_channels if reduce is None else reduce
        self.backbone = backbone
        self.reduce = nn.Identity() if reduce is None else Reduce(backbone.out_channels, reduce)
        self.pooling = _make_pooling(pooling, channels, num_classes)
        self.classifier = create_classifier(self.pooling, num_classes)
        self.num_classes = num_classes
        self.num_features = self.pooling.out_features
        self.load_report: LoadReport | None = None
        self.about: dict[str, Any] = {}

    def forward_features(self, x: Tensor) -> Tensor:
        """Map images (B, in_chans, H, W) to the input (B, C, H', W') of the pooling."""
        features: Tensor = self.reduce(self.backbone(x))
        return features

    def forward(self, x: Tensor, return_loss: bool = False) -> Tensor | tuple[Tensor, Tensor]:
        """Map images to logits (B, K); with ``return_loss`` also return the auxiliary loss."""
        features = self.forward_features(x)
        if return_loss:
            vector, loss = self.pooling(features, return_loss=True)
            return self.classifier(vector), loss
        logits: Tensor = self.classifier(self.pooling(features))
        return logits

    @property
    def config(self) -> dict[str, Any]:
        """The arguments of :func:`create_model` that rebuild this network, without its weights."""
        reduce = self.reduce.out_channels if isinstance(self.reduce, Reduce) else None
        head = {"pooling": self.pooling.spec, "num_classes": self.num_classes, "reduce": reduce}
        return {**self.backbone.config, **head}

    def __repr__(self) -> str:
        channels = self.backbone.out_channels
        parts = [
            f"backbone: {self.backbone.name}, {self.backbone.in_chans} → {channels} channels, {_count(self.backbone)}",
            f"reduce: {channels} → {self.reduce.out_channels} channels, {_count(self.reduce)}"
            if isinstance(self.reduce, Reduce)
            else "reduce: none",
            f"pooling: {self.pooling!r} → {self.num_features} features, {_count(self.pooling)}",
            f"classifier: {self.num_features} → {self.num_classes} classes, {_count(self.classifier)}"
            if isinstance(self.classifier, nn.Linear)
            else f"classifier: none, {'the pooling returns logits' if self.num_classes else 'vectors are returned'}",
        ]
        return "Network(\n" + "".join(f"  {part}\n" for part in parts) + ")"


def create_model(
    name: str,
    *,
    pooling: str | Pooling = "isice",
    num_classes: int | None = None,
    reduce: int | None = 256,
    pretrained: bool = False,
    checkpoint_path: str | Path | None = None,
    in_chans: int = 3,
    img_size: ImageSize = None,
    **backbone_kwargs: Any,
) -> Network:
    """Create a network from the name of a backbone, or load a shared network.

    Args:
        name: One of :data:`PAPER_BACKBONES`, any timm name with or without a tag
            (``"resnet50.a1_in1k"``), or ``"small_cnn"`` for tiny images. ``"hf-hub:owner/name"``,
            ``"local-dir:folder"`` and paths that begin with ``.``, ``/`` or ``~`` load a network
            shared by ``isice push``, with its weights and in eval mode. If the config found there
            is in the format of timm, they name a backbone.
        pooling: A spec string such as ``"isice(n_iter=5)"``, or a pooling for the reduced channels.
        num_classes: Number of classes; 0 returns the pooled vectors. Required unless the network is
            shared.
        reduce: Channels after the reduction (1×1 convolution, BatchNorm, ReLU); None for no
            reduction.
        pretrained: Download the ImageNet weights of the backbone, unless ``checkpoint_path`` is
            given.
        checkpoint_path: A local safetensors or ``.pth`` file for the backbone or the whole network.
            What matched is logged and kept as ``model.load_report``.
        in_chans: Channels of the images.
        img_size: Height and width of the images, for backbones built for one size (Swin, ViT).
        **backbone_kwargs: More arguments of ``timm.create_model`` (for ``"small_cnn"``:
            ``widths``).

    Example:
        >>> import torch
        >>> model = create_model("small_cnn", pooling="gap", num_classes=10, reduce=None, in_chans=1)
        >>> model(torch.rand(2, 1, 8, 8)).shape
        torch.Size([2, 10])
    """
    head: dict[str, Any] = {"pooling": pooling, "num_classes": num_classes, "reduce": reduce}
    images: dict[str, Any] = {"in_chans": in_chans, "img_size": img_size}
    shared = find_shared(name) if isinstance(name, str) else None
    if shared is not None:
        return _read_shared(*shared, {**head, **images, "checkpoint_path": checkpoint_path, **backbone_kwargs})
    _check_options("create_model", pooling, num_classes, reduce)
    file = None if checkpoint_path is None else check_file(checkpoint_path)
    model = build_network(name, pretrained=pretrained and file is None, **head, **images, **backbone_kwargs)
    if file is not None:
        load_weights(model, file)
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
    backbone: Backbone | SmallCNN
    if name == SmallCNN.name:
        if pretrained:
            raise ValueError("create_model: expected pretrained=False for 'small_cnn', got True; it has no weights.")
        backbone = SmallCNN(in_chans, **backbone_kwargs)
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
    pooling: str | Pooling = "isice",
    *,
    num_classes: int | None = None,
    reduce: int | None = 256,
    img_size: ImageSize = None,
) -> Network:
    """Replace the head of an existing timm model; the weights of its backbone are kept.

    The model is modified in place and becomes part of the network, so do not use it afterwards. The
    new modules are created on its device, in its dtype and in its mode (train or eval).

    Args:
        model: A model made by ``timm.create_model``, or a :class:`Network`.
        pooling: A spec string such as ``"isice(n_iter=5)"``, or a pooling for the reduced channels.
        num_classes: Number of classes; by default that of the model.
        reduce: Channels after the reduction; None for no reduction.
        img_size: Height and width of the images the model was built for, if the model does not
            record them.

    Example:
        >>> import timm
        >>> attach(timm.create_model("test_resnet", num_classes=5), "gap", reduce=None).classifier.out_features
        5
    """
    if not isinstance(model, Network):
        check_timm("attach", model)
    classes = int(model.num_classes) if num_classes is None else num_classes  # type: ignore[arg-type]
    if num_classes is None and classes == 0:
        raise ValueError("attach: expected num_classes, got None and a model without a classifier; pass num_classes.")
    _check_options("attach", pooling, classes, reduce)
    backbone = model.backbone if isinstance(model, Network) else Backbone(model, img_size=img_size)
    network = Network(backbone, pooling=pooling, num_classes=classes, reduce=reduce)
    return _follow(network, training=model.training)


def _follow(network: Network, *, training: bool) -> Network:
    """Move the head to the device and dtype of the backbone, and set its mode."""
    for module in (network.reduce, network.pooling, network.classifier):
        module.to(next(network.backbone.parameters())).train(training)
    network.training = training
    return network


def _check_options(who: str, pooling: Any, num_classes: Any, reduce: Any) -> None:
    """Validate options before a backbone is built or downloaded."""
    check_int(who, "num_classes", num_classes, minimum=0)
    if reduce is not None:
        check_int(who, "reduce", reduce, minimum=1)
    if isinstance(pooling, str):
        for _, part in split_sum(pooling):
            pooling_class(parse_spec(part)[0])
    elif not isinstance(pooling, Pooling):
        raise TypeError(
            f"{who}: expected pooling to be a spec string or a Pooling, got {type(pooling).__name__}; "
            "write for example pooling='isice(n_iter=5)'."
        )


def _make_pooling(pooling: str | Pooling, channels: int, num_classes: int) -> Pooling:
    if isinstance(pooling, str):
        return create_pooling(pooling, channels, num_classes=num_classes or None)
    if pooling.in_channels != channels:
        raise ValueError(
            f"Network: expected a pooling for {channels} channels, got one for {pooling.in_channels}; "
            f"make it with in_channels={channels}, or set reduce={pooling.in_channels}."
        )
    if pooling.needs_num_classes and pooling.out_features != num_classes:
        raise ValueError(
            f"Network: expected a pooling for {num_classes} classes, got one for {pooling.out_features}; "
            f"make it with num_classes={num_classes}."
        )
    return pooling


def _count(module: nn.Module) -> str:
    return f"{sum(parameter.numel() for parameter in module.parameters()):,} parameters"
