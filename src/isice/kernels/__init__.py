"""GPU kernels: ``newton_schulz``, ``sparse_step`` and ``isice`` are the twins of the files of those names in ``ops/``.

So is ``covariance``. The others are their parts: the iteration as a table (``program``), tiles of matrices (``tiles``),
one product (``stage``), a tile before the first and after the last (``borders``), what surrounds the loop of iSICE
(``ends``), and sizes and arguments of a launch (``launch``). ``hopper`` is ``newton_schulz`` for Hopper GPUs, with
products of its own (``hopper_products``). Nothing else in the package imports Triton.
"""
