"""Gzipped bodies taken apart: any split, any damage, and what a step may cost."""

import gzip
import random
import tracemalloc
import zlib

import pytest

from adapters.faults import Condition, Fault
from handlers.entries.unpack import STEP_BYTES, PackedBody, unpacked_if_small

LIMIT = 1 << 20
NOISE = random.Random(4).randbytes(300_000)
BODIES = {"empty": b"", "short": b"{}", "text": b'{"a":"' + b"word " * 60_000 + b'"}',
          "noise": NOISE, "zeros": bytes(LIMIT)}  # fmt: skip


def unpacked(pieces, limit=LIMIT):
    """What comes out when `pieces` go in one after the other."""
    body = PackedBody(limit)
    for piece in pieces:
        body.feed(piece)
        while body.step():
            pass
    return body.take()


def refusal(pieces, limit=LIMIT):
    with pytest.raises(Fault) as raised:
        unpacked(pieces, limit)
    return raised.value


@pytest.mark.parametrize("name", BODIES)
@pytest.mark.parametrize("level", [0, 1, 9])
def test_a_body_comes_out_as_it_went_in(name, level):
    assert unpacked([gzip.compress(BODIES[name], level)]) == BODIES[name]


@pytest.mark.parametrize("name", BODIES)
def test_a_body_may_be_split_anywhere(name):
    packed, chance = gzip.compress(BODIES[name]), random.Random(7)
    for _ in range(5):
        cuts = sorted(chance.choices(range(len(packed) + 1), k=20))
        pieces = [packed[a:b] for a, b in zip([0, *cuts], [*cuts, len(packed)], strict=True)]
        assert unpacked(pieces) == BODIES[name]


def test_pieces_may_pile_up_before_a_step():
    packed, body = gzip.compress(NOISE), PackedBody(LIMIT)
    for start in range(0, len(packed), 1000):
        body.feed(packed[start : start + 1000])
    while body.step():
        pass
    assert body.take() == NOISE


def test_the_limit_is_of_what_is_unpacked():
    packed = gzip.compress(b"x" * 5000)
    assert unpacked([packed], 5000) == b"x" * 5000
    assert refusal([packed], 4999).condition is Condition.TOO_LARGE


@pytest.mark.parametrize(("pieces", "told"), [
    ([b"no gzip at all, surely"], "does not unpack"),
    ([zlib.compress(b"x")], "does not unpack"),
    ([b"\x1f\x8b\x07" + bytes(20)], "does not unpack"),
    ([gzip.compress(b"x" * 100)[:-8] + bytes(8)], "does not unpack"),
    ([gzip.compress(b"x" * 100)[:-4] + bytes(4)], "does not unpack"),
    ([], "ends too early"),
    ([b""], "ends too early"),
    ([gzip.compress(NOISE)[:-1]], "ends too early"),
    ([gzip.compress(b"x" * 100)[:3]], "ends too early"),
    ([gzip.compress(b"x") + b"y"], "has bytes behind its end"),
    ([gzip.compress(b"x"), b"y"], "has bytes behind its end"),
    ([gzip.compress(b"x") * 2], "has bytes behind its end"),
])  # fmt: skip
def test_what_is_no_gzip(pieces, told):
    fault = refusal(pieces)
    assert fault.condition is Condition.CONTENT_ENCODING
    assert fault.message == f"The body is gzip by its content-encoding, but {told}."


def test_a_bomb_never_takes_more_memory_than_the_limit():
    packed = gzip.compress(bytes(16 << 20))
    tracemalloc.start()
    try:
        assert refusal([packed], 2 << 20).condition is Condition.TOO_LARGE
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < (2 << 20) + 600_000


def test_a_step_makes_only_so_much():
    body, steps = PackedBody(64 << 20), 1
    body.feed(gzip.compress(bytes(16 << 20)))
    while body.step():
        steps += 1
    assert (16 << 20) / steps <= STEP_BYTES * 1.5
    assert len(body.take()) == 16 << 20


def test_a_step_takes_only_so_much():
    """Blocks that hold nothing: every byte is work, none is made."""
    head = gzip.compress(b"")[:10]
    body, steps = PackedBody(LIMIT), 1
    body.feed(head + b"\0\0\0\xff\xff" * 100_000)
    while body.step():
        steps += 1
    assert 500_000 / steps < STEP_BYTES / 4
    with pytest.raises(Fault):
        body.take()


def test_a_small_body_at_once():
    packed = gzip.compress(b"x" * 1000)
    assert unpacked_if_small(packed, 1000) == b"x" * 1000
    assert unpacked_if_small(packed, 999) == b""
    assert unpacked_if_small(gzip.compress(NOISE), len(NOISE)) == NOISE  # in many steps
    assert unpacked_if_small(packed[:-1], 1000) == b""
    assert unpacked_if_small(b"plain", 1000) == b""
