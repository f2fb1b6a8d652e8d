"""The graphical lasso in the covariance's own unit and to the tolerance of a layer."""

from functools import partial

from isice.ops import graphical_lasso as solver

graphical_lasso = partial(solver.graphical_lasso, scale="raw", tol=1e-4)
graphical_lasso_path = partial(solver.graphical_lasso_path, scale="raw")
sparsity_max = partial(solver.sparsity_max, scale="raw")
