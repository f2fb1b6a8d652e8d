"""A wide terminal, and a run to use."""

import pytest

from isice.cli._app import console

from ..train._birds import make_run


@pytest.fixture(autouse=True)
def wide(monkeypatch):
    monkeypatch.setattr(console, "_width", 300)


@pytest.fixture(scope="session")
def birds(tmp_path_factory):
    """A folder with pictures, a run trained on them, and files to predict, good and bad."""
    folder = tmp_path_factory.mktemp("birds")
    make_run(folder)
    (folder / "bad.png").write_bytes(b"no picture")
    return folder
