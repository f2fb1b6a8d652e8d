"""Links planted in a folder: temporary files never follow them."""

import os

from isice._atomic import write_atomically
from isice.records import write_record


def test_a_planted_link_is_not_followed(tmp_path):
    victim, run = tmp_path / "victim", tmp_path / "run"
    victim.write_text("precious")
    run.mkdir()
    for name in ("config.partial", f"config.{os.getpid()}.partial", f"record.{os.getpid()}.partial"):
        (run / name).symlink_to(victim)
    write_atomically(run / "config.toml", "new")
    write_record(run, {"status": "started"})
    assert victim.read_text() == "precious"
    assert (run / "config.toml").read_text() == "new"


def test_a_link_at_the_destination_is_replaced(tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / "config.toml").symlink_to(victim)
    write_atomically(tmp_path / "config.toml", "new")
    assert victim.read_text() == "precious"
    assert not (tmp_path / "config.toml").is_symlink()
