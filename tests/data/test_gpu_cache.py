"""Decoded splits are kept for the next run of a process, as long as files and size are the same."""

import torch

from isice.config import DataConfig
from isice.data import gpu_cache, load_splits
from isice.data.gpu_cache import GpuBatches, clear_decoded

from .conftest import save_image

CPU = torch.device("cpu")


def count_reads(monkeypatch):
    read, stack = [], gpu_cache.stack_prepared
    monkeypatch.setattr(gpu_cache, "stack_prepared", lambda split: (read.append(len(split)), stack(split))[1])
    return read


def test_files_are_decoded_once_per_process(folder, monkeypatch):
    clear_decoded()
    read, config = count_reads(monkeypatch), DataConfig("folder", root=str(folder), image_size=8)
    first, second = (GpuBatches(load_splits(config).train, [[0, 1]], CPU) for _ in range(2))
    assert read == [7]
    assert first.images is second.images
    for (images, labels), (again, same) in zip(first, second, strict=True):
        assert images.shape == again.shape
        assert torch.equal(labels, same)


def test_another_size_or_a_changed_file_is_decoded_again(folder, monkeypatch):
    clear_decoded()
    read = count_reads(monkeypatch)
    for size in (8, 9):
        GpuBatches(load_splits(DataConfig("folder", root=str(folder), image_size=size)).train, [[0]], CPU)
    assert read == [7, 7]
    save_image(folder / "train" / "cat" / "0.jpg", seed=99, size=(40, 30))
    GpuBatches(load_splits(DataConfig("folder", root=str(folder), image_size=9)).train, [[0]], CPU)
    assert read == [7, 7, 7]
    assert len(gpu_cache._DECODED) <= 3


def test_evaluation_takes_the_cache_of_the_run_on_a_gpu_only(monkeypatch):
    from isice.config import RunConfig, override
    from isice.inference import evaluate

    config = override(RunConfig(), ["data.cache=gpu"])
    assert evaluate._evaluation_config(config, ["device=cpu"]).data.cache == "none"
    monkeypatch.setattr(evaluate, "resolve_device", lambda name: torch.device("cuda"))
    assert evaluate._evaluation_config(config, []).data.cache == "gpu"
    assert evaluate._evaluation_config(override(config, ["data.cache=ram"]), []).data.cache == "none"


def test_chunks_decoded_together_are_those_decoded_one_by_one(tmp_path, monkeypatch):
    monkeypatch.setattr(gpu_cache, "_CHUNK", 4)
    for part, count in (("train", 11), ("test", 1)):
        for number in range(count):
            path = tmp_path / part / "cat" / f"{number}.{'png' if number == 5 else 'jpg'}"
            path.parent.mkdir(parents=True, exist_ok=True)
            save_image(path, seed=number, size=(40, 30 + number % 3))
    split = load_splits(DataConfig("folder", root=str(tmp_path), image_size=12, transform="center")).train
    images, decoded = gpu_cache._decode_chunks(split, CPU)
    assert decoded == {"gpu": 10, "cpu": 1}  # the device's decoder reads JPEG only
    assert torch.equal(images, gpu_cache.stack_prepared(split))
