"""The graph of a fitted precision matrix: networkx export and plots."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from .covariances import Array

if TYPE_CHECKING:
    import networkx
    from matplotlib.axes import Axes


class GraphMixin:
    """Methods of estimators with ``partial_correlation_``."""

    precision_: Array
    partial_correlation_: Array
    _variable_names: Callable[[], list[str]]

    def to_networkx(self) -> "networkx.Graph":
        """Return the graph of the nonzero partial correlations, without self-loops.

        Nodes have the names of the columns of X, or their numbers. Edges have the attributes
        ``weight``, the partial correlation, and ``precision``.

        Example:
            >>> import numpy as np
            >>> from isice.estimator import SparsePrecision
            >>> x = np.random.default_rng(0).normal(size=(50, 3))
            >>> x[:, 1] += x[:, 0]
            >>> list(SparsePrecision(0.3).fit(x).to_networkx().edges)
            [(0, 1)]
        """
        check_is_fitted(self, "partial_correlation_")
        matrix, names = getattr(self, "sparse_", self.precision_), getattr(self, "feature_names_in_", None)
        return network(matrix, self.partial_correlation_, names)

    def plot_graph(self, **options: Any) -> "Axes":
        """Draw the graph on a circle; options of :func:`isice.graph_plots.plot_graph`."""
        from ..graph_plots import plot_graph

        check_is_fitted(self, "partial_correlation_")
        return plot_graph(self.partial_correlation_, **{"labels": self._variable_names(), **options})


def network(precision: Array, partial_correlation: Array, names: Sequence[str] | None) -> "networkx.Graph":
    """Return the graph of the nonzero entries of a precision matrix (D, D) off the diagonal."""
    import networkx

    nodes: list[Any] = list(range(len(precision)) if names is None else names)
    graph = networkx.Graph()
    graph.add_nodes_from(nodes)
    for i, j in np.argwhere(np.triu(precision, 1)):
        weight = float(partial_correlation[i, j])
        graph.add_edge(nodes[i], nodes[j], weight=weight, precision=float(precision[i, j]))
    return graph
