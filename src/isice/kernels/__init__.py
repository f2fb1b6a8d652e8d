"""GPU kernels in Triton; nothing else in the package imports Triton.

Launchers are twins of the operations of the same names: ``covariance``, ``newton_schulz``,
``isice``. Their building blocks are ``schedule`` (stages of the iteration), ``gemm`` (one stage on
one tile), ``epilogue`` (what precedes and follows the iteration), ``layout`` (storage of matrices)
and ``occupancy`` (sizes of a launch). ``hopper`` is the iteration kernel for Hopper GPUs.
docs/internals/kernels.md explains all of them.
"""
