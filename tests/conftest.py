"""Runs before any test module is imported."""

import os

import torch

# Without a GPU the kernels are tested by Triton's interpreter, which must be chosen before triton is imported.
if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")
