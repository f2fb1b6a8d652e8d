"""Partial-correlation graph of the channels of an image."""

import torch
from torch import Tensor

from .._checks import check_int
from ..explanations import ChannelGraph
from ..models import Network
from ..models.backbone import evaluating
from ..ops.correlation import partial_correlation
from ..ops.covariance import covariance
from ..ops.regularized_precision import regularized_precision
from ..pooling import Pooling
from .maps import check_network, enlarge


def channel_graphs(model: Network, images: Tensor, *, n_pairs: int = 6) -> list[ChannelGraph]:
    """Compute the channel graph of each image.

    Args:
        model: The network.
        images: Images (B, in_chans, H, W), transformed as in training.
        n_pairs: Number P of pairs; fewer if fewer partial correlations are nonzero.

    Example:
        >>> from isice import create_model
        >>> model = create_model("small_cnn", pooling="isice", num_classes=3, reduce=8)
        >>> graph = channel_graphs(model, torch.rand(1, 3, 16, 16), n_pairs=4)[0]
        >>> graph.pairs.shape, graph.regions.shape
        ((4, 2), (4, 16, 16))
    """
    check_int("channel_graphs", "n_pairs", n_pairs, minimum=1)
    check_network("channel_graphs", model)
    with evaluating(model), torch.no_grad():
        images = images.to(next(model.parameters()))
        features = model.forward_features(images).float()
        matrices = partial_correlations(model.pooling, features)
    return [_graph(matrix, maps, images, n_pairs) for matrix, maps in zip(matrices, features, strict=True)]


def partial_correlations(pooling: Pooling, features: Tensor) -> Tensor:
    """Return the partial correlations (B, C, C) of the channels of feature maps (B, C, H, W).

    They are those that ``pooling`` estimates. For a pooling that estimates none (average pooling,
    iSQRT-COV, …) they come from :func:`isice.functional.regularized_precision`.

    Example:
        >>> from isice import create_pooling
        >>> partial_correlations(create_pooling("isice", 8), torch.rand(2, 8, 7, 7)).shape
        torch.Size([2, 8, 8])
    """
    estimated = pooling.partial_correlations(features)
    return partial_correlation(regularized_precision(covariance(features))) if estimated is None else estimated


def _graph(matrix: Tensor, features: Tensor, images: Tensor, n_pairs: int) -> ChannelGraph:
    rows, columns = torch.triu_indices(len(matrix), len(matrix), offset=1, device=matrix.device)
    values = matrix[rows, columns]
    order = values.abs().argsort(descending=True, stable=True)[:n_pairs]
    order = order[values[order] != 0]
    pairs = torch.stack([rows[order], columns[order]], dim=1)
    active = features.relu()
    active = active / active.amax(dim=(1, 2), keepdim=True).clamp_min(torch.finfo(active.dtype).tiny)
    return ChannelGraph(
        partial_correlation=matrix.cpu().numpy(),
        pairs=pairs.cpu().numpy(),
        strengths=values[order].cpu().numpy(),
        activations=enlarge(active[pairs], images),
    )
