"""Import of the estimators loads torch and scikit-learn, and nothing of the training stack."""

import subprocess
import sys

HEAVY = ("timm", "torchvision", "lightning_fabric", "matplotlib", "torch._dynamo", "torch._inductor")


def test_estimators_import_without_the_training_stack():
    code = f"import sys, isice.estimator; print([name for name in {HEAVY} if name in sys.modules])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
