"""Only regular files are read, and opening one never waits."""

import os

import pytest

from store.values.texts import read_regular


def test_a_regular_file_to_its_bound(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"12345")
    assert read_regular(path, 5) == b"12345"
    with pytest.raises(ValueError, match="has more than 4 bytes"):
        read_regular(path, 4)


@pytest.mark.parametrize("kind", ["fifo", "folder", "device", "pipe", "missing"])
def test_nothing_else_is_read_or_waited_for(tmp_path, kind):
    path = tmp_path / kind
    read_end, write_end = os.pipe()
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind != "missing":
        path.symlink_to("/dev/zero" if kind == "device" else f"/proc/self/fd/{read_end}")
    with pytest.raises(ValueError, match=r"not a regular file|cannot be read"):
        read_regular(path, 5)
    os.close(read_end)
    os.close(write_end)
