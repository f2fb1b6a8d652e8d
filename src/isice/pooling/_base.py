"""Base classes of pooling layers: the interface that models, training and reports rely on."""

import inspect
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from .._checks import check_feature_map, check_int, is_half
from .._specs import format_spec
from ..ops._numerics import to_float32
from ..ops.correlation import partial_correlation
from ..ops.covariance import covariance
from ..ops.vectorize import vectorize


class Pooling(nn.Module):
    """Base class of pooling layers: feature maps (B, C, H, W) → vectors (B, out_features).

    A subclass stores its options under the names of its keyword-only constructor arguments, sets
    ``out_features`` and defines :meth:`pool`. It computes in float32, also under autocast, or in
    float64 for float64 input. Gradients of float16 features saturate at the largest float16 number.

    Args:
        in_channels: Channels of the feature map, C or D in formulas.

    Attributes:
        name: Registry name, given to :func:`register_pooling` or that of the file; the name of a
            class that is not registered.
        reference: The publication.
        fidelity: ``"verified"`` if the definition was read in the authors' or another public
            implementation, ``"reconstructed"`` if parts of it are assumed, ``"original"`` if the
            layer is not published elsewhere.
        evidence: What the definition was checked with: the implementation, text or test.
        assumed: Assumptions of a reconstruction; otherwise empty.
        needs_num_classes: Whether the layer takes ``num_classes`` and returns logits.
    """

    name: ClassVar[str] = ""
    reference: ClassVar[str] = ""
    fidelity: ClassVar[str] = "original"
    evidence: ClassVar[str] = ""
    assumed: ClassVar[str] = ""
    needs_num_classes: ClassVar[bool] = False

    out_features: int

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.name = vars(cls).get("name", cls.__name__)  # not that of a registered parent

    def __init__(self, in_channels: int) -> None:
        super().__init__()
        check_int(self.name, "in_channels", in_channels, minimum=1)
        self.in_channels = in_channels

    def pool(self, x: Tensor) -> Tensor:
        """Map float32 or float64 features (B, C, H, W) to (B, out_features)."""
        raise TypeError(f"{type(self).__name__}: expected a subclass that defines pool(); define it.")

    def pool_with_loss(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the result of :meth:`pool` and an auxiliary loss, a scalar (zero by default)."""
        return self.pool(x), x.new_zeros(())

    @property
    def needs_positions(self) -> bool:
        """Whether fewer positions than channels harm the output.

        Their covariance has zero eigenvalues, which matter to an inverse, a root or a logarithm
        without a ridge. A network then warns.
        """
        return False

    @property
    def wants_data(self) -> bool:
        """Whether training starts with :meth:`init_from`; :func:`isice.initialize` calls it."""
        return False

    def init_from(self, x: Tensor) -> None:
        """Set initial values from training features (B, C, H, W); no change by default."""

    def matrix(self, x: Tensor) -> Tensor | None:
        """Return the symmetric matrix (B, C, C) behind the output, or None if there is none."""
        return None

    def partial_correlations(self, x: Tensor) -> Tensor | None:
        """Return the estimated partial correlations (B, C, C), or None if there are none."""
        return None

    def forward(self, x: Tensor, return_loss: bool = False) -> Tensor | tuple[Tensor, Tensor]:
        """Pool features (B, C, H, W); with ``return_loss`` also return the auxiliary loss."""
        check_feature_map(self.name, x, self.in_channels)
        with torch.autocast(x.device.type, enabled=False):
            x = to_float32(x) if is_half(x.dtype) else x
            return self.pool_with_loss(x) if return_loss else self.pool(x)

    @classmethod
    def option_defaults(cls) -> dict[str, Any]:
        """Return the keyword-only options and defaults, with those that ``**options`` passes on."""
        defaults: dict[str, Any] = {}
        for owner in cls.__mro__:
            if "__init__" not in vars(owner):
                continue
            parameters = inspect.signature(vars(owner)["__init__"]).parameters.values()
            own = {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY and p.name != "num_classes"}
            defaults = {**own, **defaults}
            if not any(p.kind is p.VAR_KEYWORD for p in parameters):
                break
        return defaults

    @property
    def options(self) -> dict[str, Any]:
        """The options of this layer and their values."""
        defaults = self.option_defaults()
        for name in defaults:
            if not hasattr(self, name):
                # An AttributeError of a property would be reported by torch as one of the property.
                raise TypeError(f"{self.name}: expected an attribute {name} for the option, got none; set self.{name}.")
        return {name: getattr(self, name) for name in defaults}

    @property
    def spec(self) -> str:
        """The spec string from which :func:`create_pooling` recreates this layer."""
        return format_spec(self.name, self.options)

    def __repr__(self) -> str:
        return self.spec


class SPDPooling(Pooling):
    """Base class of SPD pooling: upper triangle of a function of the covariance (paper, Fig. 2).

    A subclass defines :meth:`transform`.

    Attributes:
        estimates_precision: Whether the matrix estimates the inverse covariance, up to a factor.
    """

    estimates_precision: ClassVar[bool] = False

    def __init__(self, in_channels: int) -> None:
        super().__init__(in_channels)
        self.out_features = in_channels * (in_channels + 1) // 2

    @property
    def needs_positions(self) -> bool:
        """True; a subclass for which singular covariances are harmless overrides it."""
        return True

    def transform(self, cov: Tensor) -> Tensor:
        """Map covariance matrices (B, C, C) to symmetric matrices (B, C, C)."""
        raise TypeError(f"{type(self).__name__}: expected a subclass that defines transform(); define it.")

    def matrix(self, x: Tensor) -> Tensor:
        """Return the symmetric matrix (B, C, C) that :meth:`pool` vectorizes."""
        return self.transform(covariance(x))

    def partial_correlations(self, x: Tensor) -> Tensor | None:
        return partial_correlation(self.matrix(x)) if self.estimates_precision else None

    def pool(self, x: Tensor) -> Tensor:
        return vectorize(self.matrix(x))
