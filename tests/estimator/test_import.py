"""Import of the estimators loads torch and scikit-learn, and nothing else."""

import subprocess
import sys

import pytest

HEAVY = (
    *("timm", "torchvision", "lightning_fabric", "matplotlib", "pandas", "networkx", "huggingface_hub", "triton"),
    *("torch._dynamo", "torch._inductor", "torch.onnx", "torch.utils.tensorboard", "sklearn.datasets"),
)


def printed(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.parametrize("name", ["SparsePrecisionCV", "JointSparsePrecision"])
def test_estimators_import_without_the_training_stack(name):
    """Scikit-learn itself loads pandas if it is installed."""
    code = f"""
import sys, sklearn.covariance
before = set(sys.modules)
from isice.estimator import {name}
print([name for name in {HEAVY} if name in set(sys.modules) - before])
"""
    assert printed(code) == "[]"


def test_estimators_load_no_module_beyond_torch_and_scikit_learns_covariances():
    """Of scipy, torch and scikit-learn neither: what these two load themselves must suffice."""
    code = """
import sys, torch, sklearn.covariance
before = set(sys.modules)
import isice.estimator
print(sorted(name for name in set(sys.modules) - before if name.partition('.')[0] != 'isice'))
"""
    assert printed(code) == "[]"
