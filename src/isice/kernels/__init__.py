"""GPU kernels; ``kernels/x.py`` is the twin of ``ops/x.py``. Nothing else in the package imports Triton."""
