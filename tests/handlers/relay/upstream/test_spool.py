"""Bodies on a disk: written in a thread, read as libcurl reads, deleted afterwards."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest

from adapters.json.jsonio import Span
from handlers.relay.upstream.spool import (
    PENDING_MAX_BYTES,
    Spool,
    SpooledBody,
    SpooledFile,
    SpooledSource,
)

PIECE = bytes(range(256)) * 4096


@pytest.fixture
def executor():
    with ThreadPoolExecutor(1) as made:
        yield made


def read_all(source, size=100_000):
    return b"".join(iter(lambda: source.read(size), b""))


async def test_what_was_written_is_read_with_its_edits(tmp_path, executor):
    spool = Spool(str(tmp_path / "below"), executor)
    drained = []
    spool.on_drained = lambda: drained.append(spool.full)
    for _ in range(3):
        spool.add(PIECE)
    assert spool.full and spool.size_bytes == 3 * len(PIECE) > PENDING_MAX_BYTES
    await spool.finish()
    assert drained[-1] is False and list((tmp_path / "below").iterdir()) == [], "it has no name"
    body = SpooledBody(spool, {Span(1, 3): b"name", Span(len(PIECE), len(PIECE) + 1): b""})
    whole = PIECE * 3
    expected = whole[:1] + b"name" + whole[3 : len(PIECE)] + whole[len(PIECE) + 1 :]
    assert len(body) == len(expected)
    source = SpooledSource(body)
    assert source.nbytes == len(expected) and not source.taken
    assert read_all(source) == expected and source.taken
    assert (source.rewind(5, 0), source.rewind(0, 0)) == (1, 0)
    assert read_all(source, 7_000) == expected
    assert source.rewind(0, 0) == 1, "not a third time"
    source.close()
    with pytest.raises(ValueError):
        source.read(1)
    file = SpooledFile(spool, Span(2, 10))
    assert file.readable() and file.seekable() and file.read() == whole[2:10]
    assert (file.seek(-2, 2), file.read(9), file.seek(1), file.seek(1, 1)) == (6, whole[8:10], 1, 2)
    assert file.tell() == 2
    spool.close()
    with pytest.raises(ValueError):
        spool.descriptor  # noqa: B018


async def test_a_disk_that_takes_nothing(tmp_path, executor):
    (tmp_path / "file").write_bytes(b"")
    spool = Spool(str(tmp_path / "file"), executor)
    spool.add(b"x")
    with pytest.raises(OSError):
        await spool.finish()


async def test_one_that_is_closed_while_it_is_written(tmp_path, executor):
    spool = Spool(str(tmp_path), executor)
    spool.add(PIECE)
    spool.close()
    await asyncio.sleep(0)
    await spool.finish()
    with pytest.raises(ValueError):
        spool.descriptor  # noqa: B018
