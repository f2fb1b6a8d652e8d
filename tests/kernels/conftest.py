"""What the tests of several kernels share."""

import os
import subprocess
import sys

import pytest


@pytest.fixture
def compile_script(tmp_path):
    """Runs a script that compiles kernels, with CAPABILITY set. A process of its own: here, without a GPU, Triton
    interprets."""

    def run(script, capability):
        environment = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
        environment["TRITON_CACHE_DIR"] = str(tmp_path / "cache")
        path = tmp_path / "compile.py"  # Triton reads the source of what it compiles
        path.write_text(f"CAPABILITY = {capability}\n{script}", encoding="utf-8")
        result = subprocess.run(
            [sys.executable, str(path)], env=environment, capture_output=True, text=True, check=False
        )
        assert result.returncode == 0, result.stderr[-2000:]

    return run
