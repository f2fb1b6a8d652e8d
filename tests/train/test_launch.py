"""Devices, processes and precision of a run."""

import pytest
import torch

from isice.config import override
from isice.train.launch import copy_to_host, create_fabric, is_main_process, launched, resolve_device

from ._tiny import TINY

TORCHRUN = {"TORCHELASTIC_RUN_ID": "x", "WORLD_SIZE": "16", "LOCAL_WORLD_SIZE": "8", "RANK": "3"}
SLURM = {"SLURM_PROCID": "0", "SLURM_NTASKS": "8", "SLURM_NNODES": "2"}


def test_launchers():
    assert launched({}) is None
    assert launched(TORCHRUN) == (8, 2)
    assert launched(SLURM) == (4, 2)
    assert launched(SLURM | {"SLURM_NTASKS": "1", "SLURM_NNODES": "1"}) is None


def test_one_process_writes():
    assert is_main_process({})
    assert not is_main_process(TORCHRUN)
    assert is_main_process(TORCHRUN | {"RANK": "0"})
    assert is_main_process(SLURM)
    assert not is_main_process(SLURM | {"SLURM_PROCID": "1"})
    assert not is_main_process({"LOCAL_RANK": "1"})


def test_devices():
    assert resolve_device("cpu").type == "cpu"
    with pytest.raises(ValueError, match="expected a device like"):
        resolve_device("quantum")
    if not torch.cuda.is_available():
        with pytest.raises(ValueError, match="there is no CUDA"):
            resolve_device("cuda")


def test_precision_reaches_the_model():
    fabric = create_fabric(override(TINY, ["precision=bf16"]))
    with fabric.autocast():
        assert torch.mm(torch.ones(2, 2), torch.ones(2, 2)).dtype == torch.bfloat16


def test_numbers_copied_to_the_host_are_exact():
    assert copy_to_host(torch.tensor(0.1, requires_grad=True), torch.tensor(3))() == [
        torch.tensor(0.1).double().item(),
        3,
    ]


@pytest.mark.gpu
def test_numbers_copied_from_a_gpu_are_those_of_the_call():
    values = torch.arange(5.0, device="cuda")
    numbers = copy_to_host(values.sum(), values.max())
    values.zero_()
    assert numbers() == [10.0, 4.0]
