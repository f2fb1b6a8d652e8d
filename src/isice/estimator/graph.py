"""The graph of a fitted precision matrix: networkx export and plots."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

if TYPE_CHECKING:
    import networkx
    from matplotlib.axes import Axes


class GraphMixin:
    """Methods of estimators with ``partial_correlation_``."""

    precision_: NDArray[np.float64]
    partial_correlation_: NDArray[np.float64]
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
        import networkx

        check_is_fitted(self, "partial_correlation_")
        matrix = getattr(self, "sparse_", self.precision_)
        names = list(getattr(self, "feature_names_in_", range(len(matrix))))
        graph = networkx.Graph()
        graph.add_nodes_from(names)
        for i, j in np.argwhere(np.triu(matrix, 1)):
            weight = float(self.partial_correlation_[i, j])
            graph.add_edge(names[i], names[j], weight=weight, precision=float(matrix[i, j]))
        return graph

    def plot_graph(self, **options: Any) -> "Axes":
        """Draw the graph on a circle; options of :func:`isice.graph_plots.plot_graph`."""
        from ..graph_plots import plot_graph

        check_is_fitted(self, "partial_correlation_")
        return plot_graph(self.partial_correlation_, **{"labels": self._variable_names(), **options})
