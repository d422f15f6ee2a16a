"""Streams between any two families: however they are cut, the same comes out."""

import random
from itertools import pairwise

import pytest

from tests.adapters.pairs import FRAMINGS, STREAM_PAIRS, STREAMS, opened, serving
from tests.adapters.streams import fed


def sent_of(bridge, pieces):
    return b"".join([*(fed(bridge, piece) for piece in pieces), bridge.close()])


def cuts(stream):
    """The stream byte by byte, event by event, and cut at random."""
    chance = random.Random(len(stream))
    yield [stream[at : at + 1] for at in range(len(stream))]
    yield [event + b"\n\n" for event in stream.split(b"\n\n") if event]
    for _ in range(12):
        places = sorted(chance.choices(range(len(stream)), k=chance.randint(1, 9)))
        yield [stream[start:end] for start, end in pairwise([0, *places, len(stream)])]


@pytest.mark.parametrize(("client", "job", "upstream"), STREAM_PAIRS)
def test_any_cut_gives_the_same(client, job, upstream):
    attempt = serving(client, upstream, FRAMINGS[job])
    assert len(STREAMS[upstream]) > 4
    faults = 0
    for stream in STREAMS[upstream]:
        bridge = opened(client, job, attempt)
        whole = sent_of(bridge, [stream])
        assert whole and bridge.ended
        assert bridge.fault is not None or (bridge.whole and bridge.usage and bridge.reported)
        faults += bridge.fault is not None
        for pieces in cuts(stream):
            assert sent_of(opened(client, job, attempt), pieces) == whole
    assert faults == 1  # the sample of an error


@pytest.mark.parametrize(("client", "job", "upstream"), STREAM_PAIRS)
def test_a_stream_that_breaks_off_never_looks_whole(client, job, upstream):
    attempt = serving(client, upstream, FRAMINGS[job])
    stream = STREAMS[upstream][0]
    whole = sent_of(opened(client, job, attempt), [stream])
    for end in range(0, len(stream) * 2 // 3, 7):
        bridge = opened(client, job, attempt)
        sent = sent_of(bridge, [stream[:end]])
        if bridge.fault is None:
            assert not bridge.ended and whole.startswith(sent)
