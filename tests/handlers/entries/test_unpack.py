"""Unpacking of compressed bodies: any split, any damage, and the cost of a step."""

import gzip
import random
import sys
import tracemalloc
import zlib

import brotli
import pytest

from adapters.faults import Condition, Fault
from handlers.entries.unpack import CODINGS, STEP_BYTES, PackedBody, unpacked_if_small

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

LIMIT = 1 << 20
NOISE = random.Random(4).randbytes(300_000)
BODIES = {
    "empty": b"",
    "short": b"{}",
    "text": b'{"a":"' + b"word " * 60_000 + b'"}',
    "numbers": b"".join(b"%d " % number for number in range(140_000)),
    "noise": NOISE,
    "zeros": bytes(LIMIT),
}


def raw_deflate(body):
    machine = zlib.compressobj(wbits=-15)
    return machine.compress(body) + machine.flush()


def unsized_zstd(body):
    """Return a frame as stream encoders write it: without its length, with the window of its
    level."""
    machine = zstd.ZstdCompressor()
    return machine.compress(body) + machine.flush()


# name of the case -> value of content-encoding, packer
PACKERS = {
    "gzip": ("gzip", gzip.compress),
    "gzip, stored": ("x-gzip", lambda body: gzip.compress(body, 0)),
    "gzip, best": ("gzip", lambda body: gzip.compress(body, 9)),
    "zlib": ("deflate", zlib.compress),
    "raw deflate": ("deflate", raw_deflate),
    "zstd": ("zstd", zstd.compress),
    "zstd, best": ("zstd", lambda body: zstd.compress(body, 19)),
    "zstd, unsized": ("zstd", unsized_zstd),
    "br": ("br", brotli.compress),
    "br, fast": ("br", lambda body: brotli.compress(body, quality=1)),
}
NAMES = {"x-gzip": "gzip"}


def test_every_coding_is_here():
    assert {coding for coding, _ in PACKERS.values()} == CODINGS.keys()


def unpacked(coding, pieces, limit=LIMIT):
    """Return the result of feeding `pieces` one after the other."""
    body = PackedBody(coding, limit)
    for piece in pieces:
        body.feed(piece)
        while body.step():
            pass
    return body.take()


def refusal(coding, pieces, limit=LIMIT):
    with pytest.raises(Fault) as raised:
        unpacked(coding, pieces, limit)
    return raised.value


@pytest.mark.parametrize("name", BODIES)
@pytest.mark.parametrize("packer", PACKERS)
def test_a_body_comes_out_as_it_went_in(name, packer):
    coding, pack = PACKERS[packer]
    assert unpacked(coding, [pack(BODIES[name])]) == BODIES[name]


@pytest.mark.parametrize("name", BODIES)
@pytest.mark.parametrize("packer", PACKERS)
def test_a_body_may_be_split_anywhere(name, packer):
    coding, pack = PACKERS[packer]
    packed, chance = pack(BODIES[name]), random.Random(7)
    for _ in range(3):
        cuts = sorted(chance.choices(range(len(packed) + 1), k=20))
        pieces = [packed[a:b] for a, b in zip([0, *cuts], [*cuts, len(packed)], strict=True)]
        assert unpacked(coding, pieces) == BODIES[name]
    if len(packed) < 100:
        assert unpacked(coding, [bytes([byte]) for byte in packed]) == BODIES[name]


@pytest.mark.parametrize("packer", PACKERS)
def test_pieces_may_pile_up_before_a_step(packer):
    coding, pack = PACKERS[packer]
    packed, body = pack(NOISE), PackedBody(coding, LIMIT)
    for start in range(0, len(packed), 1000):
        body.feed(packed[start : start + 1000])
    while body.step():
        pass
    assert body.take() == NOISE


@pytest.mark.parametrize("packer", PACKERS)
def test_the_limit_is_of_what_is_unpacked(packer):
    coding, pack = PACKERS[packer]
    packed = pack(b"x" * 5000)
    assert unpacked(coding, [packed], 5000) == b"x" * 5000
    assert refusal(coding, [packed], 4999).condition is Condition.TOO_LARGE


@pytest.mark.parametrize("packer", PACKERS)
def test_a_body_that_is_cut_damaged_or_too_long(packer):
    coding, pack = PACKERS[packer]
    packed = pack(NOISE)
    for pieces, reasons in (
        ([], {"ends too early"}),
        ([b""], {"ends too early"}),
        ([packed[:-1]], {"ends too early"}),
        ([packed[:3]], {"ends too early"}),
        ([b"\xff\xff\xff\xff no such thing, surely"], {"does not unpack"}),
        ([packed + b"y"], {"has bytes behind its end", "does not unpack"}),
        ([packed, b"y"], {"has bytes behind its end"}),
    ):
        fault = refusal(coding, pieces)
        assert fault.condition is Condition.CONTENT_ENCODING
        begin = f"The body is {NAMES.get(coding, coding)} by its content-encoding, but "
        assert fault.message.removeprefix(begin).removesuffix(".") in reasons


def test_a_window_larger_than_the_coding_may_have_is_refused():
    large = {zstd.CompressionParameter.window_log: 24}
    packed = zstd.compress(bytes(20 << 20), options=large)
    assert refusal("zstd", [packed], 32 << 20).condition is Condition.CONTENT_ENCODING


@pytest.mark.parametrize(("pieces", "told"), [
    ([b"no gzip at all, surely"], "does not unpack"),
    ([zlib.compress(b"x")], "does not unpack"),
    ([b"\x1f\x8b\x07" + bytes(20)], "does not unpack"),
    ([gzip.compress(b"x" * 100)[:-8] + bytes(8)], "does not unpack"),
    ([gzip.compress(b"x" * 100)[:-4] + bytes(4)], "does not unpack"),
    ([gzip.compress(b"x") * 2], "has bytes behind its end"),
])  # fmt: skip
def test_what_is_no_gzip(pieces, told):
    fault = refusal("gzip", pieces)
    assert fault.condition is Condition.CONTENT_ENCODING
    assert fault.message == f"The body is gzip by its content-encoding, but {told}."


@pytest.mark.parametrize("packer", PACKERS)
def test_a_bomb_never_takes_more_memory_than_the_limit(packer):
    coding, pack = PACKERS[packer]
    packed = pack(bytes(16 << 20))
    tracemalloc.start()
    try:
        assert refusal(coding, [packed], 2 << 20).condition is Condition.TOO_LARGE
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # One chunk, and one copy of the compressed body, which is everything if it is merely stored.
    assert peak < (2 << 20) + 600_000 + (len(packed) if len(packed) > 1 << 20 else 0)


@pytest.mark.parametrize("packer", PACKERS)
def test_a_step_makes_only_so_much(packer):
    coding, pack = PACKERS[packer]
    body, steps = PackedBody(coding, 64 << 20), 1
    body.feed(pack(bytes(16 << 20)))
    while body.step():
        steps += 1
    assert (16 << 20) / steps <= STEP_BYTES * 1.5
    assert len(body.take()) == 16 << 20


EMPTY_BLOCKS = {
    "gzip": gzip.compress(b"")[:10] + b"\0\0\0\xff\xff" * 100_000,
    "zstd": b"\x28\xb5\x2f\xfd\0\x58" + bytes(300_000),
}


@pytest.mark.parametrize("coding", EMPTY_BLOCKS)
def test_a_step_takes_only_so_much(coding):
    """Empty blocks: every byte costs work and produces no output."""
    body, steps = PackedBody(coding, LIMIT), 1
    body.feed(EMPTY_BLOCKS[coding])
    while body.step():
        steps += 1
    assert len(EMPTY_BLOCKS[coding]) / steps < STEP_BYTES / 4
    with pytest.raises(Fault):
        body.take()


@pytest.mark.parametrize("packer", PACKERS)
def test_the_memory_that_a_body_counts(packer):
    """Counts the compressed and the unpacked body, the state, and a separate window where the
    coding has one."""
    coding, pack = PACKERS[packer]
    body, packed = PackedBody(coding, LIMIT), pack(NOISE)
    body.feed(packed)
    state_bytes = body.held_bytes - len(packed)
    while body.step():
        pass
    windows = 2 if coding in ("zstd", "br") else 1
    assert 48 << 10 <= state_bytes <= 320 << 10
    assert body.held_bytes - state_bytes == windows * len(NOISE)


def test_a_small_body_at_once():
    packed = gzip.compress(b"x" * 1000)
    assert unpacked_if_small("gzip", packed, 1000) == b"x" * 1000
    assert unpacked_if_small("gzip", packed, 999) == b""
    assert unpacked_if_small("gzip", gzip.compress(NOISE), len(NOISE)) == NOISE  # takes many steps
    assert unpacked_if_small("gzip", packed[:-1], 1000) == b""
    assert unpacked_if_small("gzip", b"plain", 1000) == b""
