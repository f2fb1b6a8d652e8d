"""Networks: backbone ② → reduction ③ → pooling ④–⑥ → classifier ⑦, with timm's interface."""

import warnings
from typing import Any

import torch
from torch import Tensor, nn

from .._checks import check_int
from .._specs import parse_spec, split_sum
from ..pooling import Pooling, create_pooling, pooling_class
from .backbone import Backbone
from .classifier import create_classifier
from .hub import HubModel
from .identity import Identity
from .reduce import Reduce
from .small_cnn import SmallCNN
from .timm_interface import TimmInterface
from .weights import LoadReport

DEFAULT_POOLING = "partial_correlation"
"""Default of :func:`create_model` and :func:`attach`: the most accurate in the CUB-200 records."""


class Network(TimmInterface, HubModel):
    """An image classifier with a choice of pooling, made by :func:`create_model` or :func:`attach`.

    Args:
        backbone: Module that returns feature maps (B, C, H, W).
        pooling: A spec string such as ``"isice(n_iter=5)"``, or a pooling for the reduced channels.
        num_classes: Number of classes; 0 returns the pooled vectors.
        reduce: Channels after the reduction; None for no reduction.

    Attributes:
        backbone, reduce, pooling, classifier: The four modules, in the order of use.
        num_features: Channels of :meth:`forward_features`.
        head_hidden_size: Length of the pooled vector.
        load_report: Which tensors of a weight file were loaded; None without a file.
        about: Metadata saved with the weights: ``classes``, ``input`` and ``training``, if known.
    """

    def __init__(
        self,
        backbone: Backbone | SmallCNN | Identity,
        *,
        pooling: str | Pooling = DEFAULT_POOLING,
        num_classes: int,
        reduce: int | None = 256,
    ) -> None:
        super().__init__()
        check_options("Network", pooling, num_classes, reduce)
        channels = backbone.out_channels if reduce is None else reduce
        self.backbone = backbone
        self.reduce = nn.Identity() if reduce is None else Reduce(backbone.out_channels, reduce)
        self.pooling = _make_pooling(pooling, channels, num_classes)
        self.classifier = create_classifier(self.pooling, num_classes)
        self.num_classes = num_classes
        self.num_features = channels
        self._positions_checked = False
        self.load_report: LoadReport | None = None
        self.about: dict[str, Any] = {}

    def forward_features(self, x: Tensor) -> Tensor:
        """Map images (B, in_chans, H, W) to the input (B, num_features, H', W') of the pooling."""
        features: Tensor = self.reduce(self.backbone(x))
        return features

    def forward_head(self, x: Tensor, pre_logits: bool = False) -> Tensor:
        """Map features to logits (B, K), or to vectors (B, head_hidden_size) if ``pre_logits``."""
        self._check_positions(x)
        vector: Tensor = self.pooling(x)
        return vector if pre_logits else self.classifier(vector)

    def forward(self, x: Tensor, return_loss: bool = False) -> Tensor | tuple[Tensor, Tensor]:
        """Map images to logits (B, K); with ``return_loss`` also return the auxiliary loss."""
        features = self.forward_features(x)
        if return_loss:
            self._check_positions(features)
            vector, loss = self.pooling(features, return_loss=True)
            return self.classifier(vector), loss
        return self.forward_head(features)

    def _check_positions(self, x: Tensor) -> None:
        """Warn once if a pooling gets fewer positions than it needs, one per channel."""
        if torch.compiler.is_compiling() or self._positions_checked or x.ndim != 4:
            return
        self._positions_checked = True
        channels, height, width = x.shape[1:]
        power_of_two = 1 << ((height * width).bit_length() - 1)
        if height * width < channels and any(getattr(m, "needs_positions", False) for m in self.pooling.modules()):
            warnings.warn(
                f"Network: expected at least as many positions as channels for {self.pooling.name}, got "
                f"{height} × {width} = {height * width} positions and {channels} channels: the covariances are "
                f"singular. Use larger images, reduce={power_of_two} or less, or a pooling with a ridge, such as "
                "'partial_correlation'.",
                stacklevel=3,
            )

    @property
    def head_hidden_size(self) -> int:
        """Length of the pooled vector."""
        return self.pooling.out_features

    def get_classifier(self) -> nn.Module:
        """Return the module that computes the logits: the classifier, or else the pooling."""
        return self.pooling if self.pooling.needs_num_classes else self.classifier

    def reset_classifier(self, num_classes: int, pooling: str | Pooling | None = None) -> None:
        """Replace the classifier, and the pooling if one is given or depends on the classes.

        Args:
            num_classes: Number of classes; 0 returns the pooled vectors.
            pooling: A spec string or a pooling for the same channels; None keeps the present one.
        """
        check_options("reset_classifier", self.pooling if pooling is None else pooling, num_classes, None)
        if pooling is not None or self.pooling.needs_num_classes:
            self.pooling = _make_pooling(pooling or self.pooling.spec, self.num_features, num_classes)
        self.classifier = create_classifier(self.pooling, num_classes)
        self.num_classes = num_classes
        self.about.pop("classes", None)
        self.follow_backbone()

    def follow_backbone(self) -> "Network":
        """Move the head to the device and dtype of the backbone, and set its mode."""
        like = next(self.backbone.parameters(), None)
        for module in (self.reduce, self.pooling, self.classifier):
            (module if like is None else module.to(like)).train(self.training)
        return self

    @property
    def config(self) -> dict[str, Any]:
        """The arguments of :func:`create_model` that rebuild this network, without its weights.

        Raises:
            ValueError: The backbone is not of timm, or the pooling is not registered: no name
                rebuilds it.
        """
        if self.backbone.config is None:
            raise ValueError(
                f"Network: expected a backbone of timm, which a name rebuilds, got {self.backbone.name}; build it in "
                "your code, attach the head, and load model.state_dict()."
            )
        check_options("Network", self.pooling.spec, self.num_classes, None)  # is it registered?
        reduce = self.reduce.out_channels if isinstance(self.reduce, Reduce) else None
        head = {"pooling": self.pooling.spec, "num_classes": self.num_classes, "reduce": reduce}
        return {**self.backbone.config, **head}

    def summary(self) -> str:
        """Return four lines: backbone, reduction, pooling and classifier with their sizes.

        Example:
            >>> from isice import create_model
            >>> model = create_model("small_cnn", pooling="gap", num_classes=3, reduce=None)
            >>> print(model.summary())
            backbone: small_cnn, 3 → 64 channels, 56,480 parameters
            reduce: none
            pooling: gap → 64 features, 0 parameters
            classifier: 64 → 3 classes, 195 parameters
        """
        channels, length = self.backbone.out_channels, self.head_hidden_size
        parts = [
            f"backbone: {self.backbone.name}, {self.backbone.in_chans} → {channels} channels, {_count(self.backbone)}",
            f"reduce: {channels} → {self.num_features} channels, {_count(self.reduce)}"
            if isinstance(self.reduce, Reduce)
            else "reduce: none",
            f"pooling: {self.pooling!r} → {length} features, {_count(self.pooling)}",
            f"classifier: {length} → {self.num_classes} classes, {_count(self.classifier)}"
            if isinstance(self.classifier, nn.Linear)
            else f"classifier: none, {'the pooling returns logits' if self.num_classes else 'vectors are returned'}",
        ]
        return "\n".join(parts)


def check_options(who: str, pooling: Any, num_classes: Any, reduce: Any) -> None:
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
        return create_pooling(pooling, channels, num_classes=num_classes)
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
