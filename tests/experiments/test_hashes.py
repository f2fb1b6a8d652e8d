"""Names and config hashes of experiments, by which finished runs are found, do not change."""

import hashlib
import json

import pytest

from isice.experiments.loader import load_experiment

# Experiment → number of runs, name of the first, digest of all names, labels and hashes.
RUNS = {
    "cub_heads": (4, "gap-seed0-10d73be1", "3bfa8b874603b9bd"),
    "demo": (35, "pairs-gap-split_seed-0-seed0-34c162fb", "71b833fa4e0dfb4b"),
    "digits": (4, "gap-seed0-aa06ae74", "661781922cfd9271"),
    "figure3": (96, "dense-sice-120-seed0-d4ec57a7", "bfb26847fa916979"),
    "figure5": (4, "gap-seed0-7856fa60", "28842248ddbd8a6a"),
    "layer": (72, "gap-64-8-seed0-471168b8", "32e426ce422d287b"),
    "memory": (4, "isice_5-seed0-a202129b", "8a61276ac7ceb51c"),
    "sice_frozen": (4, "sice-128-seed0-7e58376f", "640ab680e57e1826"),
    "structure": (108, "sparse-rate-120-seed0-2c4364e3", "553bcc68b354112b"),
    "table1": (900, "vgg16-gap-mit_indoor67-seed0-814e6d13", "33408aaf3e051b7b"),
    "table1_published_cnn": (3, "isqrt_cov-seed0-1d544ae9", "c2a7c54ba40360a9"),
    "table2": (8, "gap-resnet50-seed0-20fa8b73", "96422286acaa0c93"),
    "table3": (64, "isqrt_cov-256-mit_indoor67-vgg16-seed0-21253d3c", "f0f432578d7d4841"),
    "table4": (10, "isice-mit_indoor67-seed0-68b81d8c", "eb99a1ba21b3a529"),
    "table5": (6, "gap-seed0-03104a41", "b5ca654011ceaad4"),
    "table6": (8, "mit_indoor67-seed0-be150c10", "e323ce75bf59fc78"),
    "table7": (72, "isqrt_cov-mit_indoor67-vgg16-seed0-21253d3c", "a1a93cb95a611495"),
    "table8": (72, "isqrt_cov-mit_indoor67-vgg16-seed0-21253d3c", "494c9d88ca812086"),
    "table9": (48, "isqrt_cov-vgg16-mit_indoor67-seed0-21253d3c", "f55ee2cbbe03f9f2"),
    "table10": (15, "isice-mit_indoor67-seed0-68b81d8c", "087061fd5154ba01"),
    "hyperparameters": (147, "1.0-0.001-1-seed0-4f974fe4", "4355b10be0e10689"),
    "samples": (7, "mit_indoor67-seed0-314e02f6", "256d1252f8317fa0"),
}


@pytest.mark.parametrize("name", RUNS)
def test_runs_keep_their_names_and_hashes(name):
    cells = load_experiment(name).cells()
    listed = json.dumps([[cell.name, cell.label, cell.hash] for cell in cells])
    assert (len(cells), cells[0].name, hashlib.sha256(listed.encode()).hexdigest()[:16]) == RUNS[name]
