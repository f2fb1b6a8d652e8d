"""Compile the kernels for a GPU on a machine without one."""

import os
import subprocess
import sys

import pytest

# A driver that only names its target: kernels are compiled and never launched. Arguments
# come from the launchers, with tensors on the CPU, so that alignment and divisibility
# are those of real calls.
COMPILE_ONLY = """
from types import SimpleNamespace

import torch
from triton.backends.compiler import GPUTarget
from triton.compiler import CompiledKernel
from triton.runtime import driver
from triton.runtime.jit import JITFunction

compiled = []


class Driver:
    def get_current_device(self):
        return 0

    def get_current_stream(self, device):
        return 0

    def get_current_target(self):
        return GPUTarget("cuda", CAPABILITY, 32)


def compile_only(kernel, grid):
    return lambda *args, **options: compiled.append(kernel.run(*args, grid=grid, warmup=True, **options))


def init_handles(kernel):
    kernel.n_regs = 128
    compiled.append(kernel)


driver.set_active(Driver())
JITFunction.__getitem__ = compile_only
CompiledKernel._init_handles = init_handles
CompiledKernel.__getitem__ = lambda kernel, grid: lambda *args: None
torch.cuda.get_device_properties = lambda device: SimpleNamespace(
    regs_per_multiprocessor=65536, shared_memory_per_multiprocessor=228 * 1024, max_threads_per_multi_processor=2048,
    multi_processor_count=132, major=CAPABILITY // 10,
)
"""


@pytest.fixture
def compile_script(tmp_path):
    """Run a script that compiles kernels for CAPABILITY; ``compiled`` holds what it compiled.

    It runs in its own process, because in this one Triton interprets if there is no GPU.
    """

    def run(script, capability):
        environment = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
        environment["TRITON_CACHE_DIR"] = str(tmp_path / "cache")
        path = tmp_path / "compile.py"  # Triton reads the source of what it compiles.
        path.write_text(f"CAPABILITY = {capability}\n{COMPILE_ONLY}\n{script}", encoding="utf-8")
        result = subprocess.run(
            [sys.executable, "-W", "error:isice:UserWarning", str(path)],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert result.returncode == 0, result.stderr[-2000:]

    return run
