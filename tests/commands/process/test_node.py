"""The lock and the name of a journal folder."""

import os

import pytest

from commands.process import node
from commands.process.node import StartError
from store.calls.source import PARKED_FILE


def test_one_holder_at_a_time(tmp_path):
    folder = tmp_path / "deep" / "journal"
    lock = node.claim(folder)
    with pytest.raises(StartError, match=rf"journal.dir {folder} .*process {os.getpid()}"):
        node.claim(folder)
    os.close(lock)
    os.close(node.claim(folder))
    assert folder.stat().st_mode & 0o777 == 0o700


def test_the_name_stays(tmp_path):
    name = node.name_of(tmp_path)
    assert name and name.isprintable() and " " not in name
    assert node.name_of(tmp_path) == name
    (tmp_path / "node").write_text("given-by-me\n")
    assert node.name_of(tmp_path) == "given-by-me"


def test_what_the_writer_has_put_aside_is_counted(tmp_path):
    assert node.PARKED_NAME == PARKED_FILE
    assert node.parked_in(tmp_path) == 0
    (tmp_path / PARKED_FILE).write_text('{"reason":"a"}\n{"reason":"b"}\n')
    assert node.parked_in(tmp_path) == 2


def test_a_folder_that_cannot_be_used(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(StartError, match=r"journal\.dir"):
        node.claim(tmp_path / "file")
