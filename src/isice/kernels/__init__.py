"""GPU kernels: ``newton_schulz``, ``sparse_step`` and ``isice`` are the twins of the files of those names in ``ops/``.

The others are their parts: the iteration as a table (``program``), tiles of matrices (``tiles``), one product
(``stage``), what surrounds the loop of iSICE (``ends``), and sizes and arguments of a launch (``launch``). Nothing else
in the package imports Triton.
"""
