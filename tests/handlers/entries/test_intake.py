"""Reception of bodies, and the time of a refusal's answer: on real sockets, with tiny handlers."""

import asyncio
import gzip
import random
import tracemalloc
import zlib
from ipaddress import ip_network
from unittest.mock import patch

import pytest

from adapters.faults import Condition, Fault
from handlers.entries.unpack import PackedBody
from handlers.relay.limits.body_memory import BodyMemory
from tests.support.client import encode_head
from tests.support.served import CHUNKED, acting, chunks, held, peer_of, post, serving, turns, until

LIMIT = 2000
LOOPBACK = [ip_network("127.0.0.0/8")]
EXPECT = {"Expect": "100-continue"}
PACKED = {"Content-Encoding": "gzip"}
NOISE = random.Random(4).randbytes(200_000)


def refuse(handler):
    raise Fault(Condition.KEY_DISABLED)


async def refuse_later(handler):
    await turns(20)
    refuse(handler)


def check_size(handler):
    handler.check_size()


def unpack(handler):
    handler.check_size()
    handler.unpack(handler.request.headers.get("content-encoding", "identity"))


def head(size, headers=None):
    return encode_head("POST", "/acted", {"Content-Length": str(size), **(headers or {})})


def echoing(**options):
    """Return a handler class that sends the body back."""
    return acting(lambda handler, body: handler.respond(body), **options)


async def check_stays(peer, status):
    """Check the next answer, after which the connection goes on serving."""
    answer = await peer.answer()
    assert answer.status == status and "connection" not in answer.headers
    assert (await peer.ask("GET", "/livez")).status == 200
    return answer


LOOKED_INTO = {"LOOKED_INTO": frozenset({Condition.KEY_DISABLED})}
BOTH_CHECKS = pytest.mark.parametrize("check", [refuse, refuse_later])


# ---- bodies within the limit ---------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, LIMIT - 1, LIMIT])
@pytest.mark.parametrize("chunked", [False, True])
async def test_a_body_up_to_the_limit_is_handed_over(size, chunked):
    body = (bytes(range(256)) * 8)[:size]
    pieces = [piece for piece in (body[: size // 2], body[size // 2 :]) if piece]
    whole = post(chunks(*pieces), CHUNKED, "/acted") if chunked else post(body, {}, "/acted")
    async with peer_of({"/acted": echoing()}, max_body_bytes=LIMIT) as peer:
        for _ in range(2):
            await peer.send(whole)
            answer = await peer.answer()
            assert (answer.status, answer.body) == (200, body)
        assert peer.served.waiting_bodies == 0


async def test_tiny_pieces_take_no_more_memory_than_their_bytes():
    handler, chunk, count = echoing(), b"2\r\nab\r\n", 30_000
    async with peer_of({"/acted": handler}, encode_head("POST", "/acted", CHUNKED)) as peer:
        tracemalloc.start()
        try:
            await peer.send(chunk * count)
            await until(lambda: handler.seen[0]._size == 2 * count)
            now, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert now < 4 * 2 * count
        await peer.send(b"800\r\n" + b"x" * 2048 + b"\r\n" + chunk * 2 + b"0\r\n\r\n")
        assert (await peer.answer()).body == b"ab" * count + b"x" * 2048 + b"abab"


# ---- refusals wait for the body ------------------------------------------------------------------


@BOTH_CHECKS
async def test_a_refusal_waits_until_the_body_has_passed_by(check):
    handler = acting(head_act=check)
    async with peer_of({"/acted": handler}, head(6)) as peer:
        for piece in (b"bo", b"dy"):
            assert await peer.is_silent()
            await peer.send(piece)
        assert await peer.is_silent()
        await peer.send(b"..")
        answer = await check_stays(peer, 401)
        assert answer.json["error"]["code"] == "api_key_disabled"
        assert handler.seen[0].events == ["refused"] and peer.served.waiting_bodies == 0


@BOTH_CHECKS
async def test_a_refusal_without_a_body_comes_at_once(check):
    handler = acting(head_act=check)
    async with peer_of({"/acted": handler}) as peer:
        for method in ("GET", "POST", "DELETE", "PUT", "PATCH", "OPTIONS", "HEAD"):
            answer = await peer.ask(method, "/acted")
            assert answer.status == 401 and "connection" not in answer.headers
        assert {tuple(one.events) for one in handler.seen} == {("refused",)}


@pytest.mark.parametrize("attributes", [{}, LOOKED_INTO, {"KEEP_OF_REFUSED_BYTES": 100}])
async def test_nothing_is_kept_of_the_body_of_a_refused_request(attributes):
    handler = acting(head_act=refuse, **attributes)
    async with serving({"/acted": handler}) as served:
        await served.ask("POST", "/acted", None, b"body")
        assert handler.seen[0].kept == b""


@pytest.mark.parametrize(("headers", "body", "kept"), [
    (CHUNKED, chunks(b"abcd"), b"abcd"),
    (CHUNKED, chunks(b"a" * 40, b"b" * 60), b"a" * 40 + b"b" * 60),
    (CHUNKED, chunks(b"a" * 40, b"b" * 40, b"c" * 21), b""),
    (CHUNKED, chunks(b"a" * 101), b""),
    (PACKED, gzip.compress(b"a" * 100, mtime=0), b"a" * 100),
    (PACKED, gzip.compress(b"a" * 101, mtime=0), b""),
])  # fmt: skip
@BOTH_CHECKS
async def test_a_small_body_of_a_refused_request_may_be_kept(check, headers, body, kept):
    handler = acting(head_act=check, **LOOKED_INTO, KEEP_OF_REFUSED_BYTES=100)
    async with serving({"/acted": handler}) as served:
        answer = await served.ask("POST", "/acted", headers, body)
        assert (answer.status, handler.seen[0].kept) == (401, kept)


async def test_the_body_of_who_wants_none_is_not_kept():
    """Anybody may send a body with GET /, without a key."""
    handler = echoing(READS_BODY=False)
    async with serving({"/acted": handler}) as served:
        for path in ("/acted", "/livez", "/"):
            peer = await served.peer()
            answer = await peer.ask("GET", path, None, bytes(1_000_000))
            assert answer.status == 200 and "connection" not in answer.headers
        assert handler.seen[0].events == ["complete"]


# ---- refusals that do not wait -------------------------------------------------------------------


@pytest.mark.parametrize("request_head", [head(6, EXPECT), head(LIMIT + 1)])
@BOTH_CHECKS
async def test_who_expects_to_be_told_or_sends_too_much_is_refused_at_once(check, request_head):
    handler = acting(head_act=check)
    async with peer_of({"/acted": handler}, request_head, max_body_bytes=LIMIT) as peer:
        assert (await peer.last_answer()).status == 401
        assert handler.seen[0].events == ["refused", "closed"]


@pytest.mark.parametrize(("limit", "text"), [(LIMIT, "2000 bytes"), (3 << 20, "3 MiB")])
async def test_a_body_announced_too_large_is_refused_at_once(limit, text):
    handler = acting(head_act=check_size)
    async with peer_of({"/acted": handler}, head(limit + 1), max_body_bytes=limit) as peer:
        await until(lambda: handler.seen and handler.seen[0].events == ["refused", "closed"])
        await peer.send(bytes(LIMIT + 1))  # without a reset
        answer = await peer.last_answer()
        assert answer.status == 413
        assert answer.json["error"]["message"] == f"The body is larger than {text}."
        assert peer.served.waiting_bodies == 0


async def test_a_slow_refusal_finds_more_of_the_body_than_is_read_ahead():
    async def check(handler):
        await until(lambda: not handler.connection._reading)
        handler.check_size()

    routes = {"/acted": acting(head_act=check)}
    async with peer_of(routes, head(900_000), max_body_bytes=LIMIT) as peer:
        sending = asyncio.create_task(peer.send(bytes(900_000)))
        assert (await peer.answer()).status == 413
        await sending
        assert await peer.rest() == b""


CHUNKED_HEAD = encode_head("POST", "/acted", CHUNKED)


@pytest.mark.parametrize(("check", "sent", "more", "status"), [
    (None, head(LIMIT + 1) + bytes(LIMIT), b"x", 413),
    *(
        (check, CHUNKED_HEAD + chunks(*[bytes(100)] * (LIMIT // 100))[:-5], b"1\r\nx\r\n", status)
        for check, status in ((None, 413), (check_size, 413), (refuse, 401), (refuse_later, 401))
    ),
])  # fmt: skip
async def test_nothing_is_waited_for_beyond_the_limit(check, sent, more, status):
    handler = acting(head_act=check)
    async with peer_of({"/acted": handler}, sent, max_body_bytes=LIMIT) as peer:
        assert await peer.is_silent()
        await peer.send(more)
        await until(lambda: handler.seen[0].events == ["refused", "closed"])
        await peer.send(b"64\r\n" + bytes(100) + b"\r\n0\r\n\r\n")
        assert (await peer.last_answer()).status == status
        assert peer.served.waiting_bodies == 0


async def test_chunks_over_the_limit_in_one_segment_with_what_follows():
    handler = acting()
    whole = post(chunks(bytes(LIMIT + 1), bytes(5000)), CHUNKED, "/acted")
    sent = whole + post(b"next", {}, "/acted")
    async with peer_of({"/acted": handler}, sent, max_body_bytes=LIMIT) as peer:
        assert (await peer.last_answer()).status == 413
        assert len(handler.seen) == 1


# ---- behind a proxy ------------------------------------------------------------------------------

PROXY_LIMIT = 100_000
PROXY_CHUNKS = chunks(*[bytes(1000)] * (PROXY_LIMIT // 1000))


@pytest.fixture
def proxied(monkeypatch):
    """Return proxied(…), which returns a trusted peer; the server discards less than 64 MiB, to be
    fast."""
    monkeypatch.setattr("handlers.entries.intake.OVERSIZED_PROXY_BYTES", PROXY_LIMIT)

    def make(sent, check=None):
        routes = {"/acted": acting(head_act=check)}
        return peer_of(routes, sent, trusted=LOOPBACK, max_body_bytes=LIMIT)

    return make


@pytest.mark.parametrize(("check", "sent", "last", "status"), [
    (None, CHUNKED_HEAD + PROXY_CHUNKS[:-5], PROXY_CHUNKS[-5:], 413),
    *(
        (check, head(PROXY_LIMIT) + bytes(PROXY_LIMIT - 1), b"x", status)
        for check, status in ((None, 413), (check_size, 413), (refuse, 401), (refuse_later, 401))
    ),
])  # fmt: skip
async def test_a_proxy_may_send_all_of_a_body(proxied, check, sent, last, status):
    async with proxied(sent, check) as peer:
        assert await peer.is_silent()
        await peer.send(last)
        await check_stays(peer, status)


@pytest.mark.parametrize("sent", [head(PROXY_LIMIT + 1), head(LIMIT + 1, EXPECT)])
async def test_a_body_too_large_even_for_a_proxy_and_an_expecting_proxy(proxied, sent):
    async with proxied(sent, check_size) as peer:
        assert (await peer.last_answer()).status == 413


async def test_chunks_too_large_even_for_a_proxy(proxied):
    async with proxied(CHUNKED_HEAD + PROXY_CHUNKS[:-5]) as peer:
        assert await peer.is_silent()
        await peer.send(b"1\r\nx\r\n")
        assert (await peer.last_answer()).status == 413


# ---- bodies that do not come in time -------------------------------------------------------------


@pytest.mark.parametrize(("check", "sent", "status", "code"), [
    (None, head(6) + b"bod", 408, "request_timeout"),
    (refuse, head(6) + b"bod", 401, "api_key_disabled"),
    (unpack, head(600, PACKED) + gzip.compress(NOISE, mtime=0)[:500], 408, "request_timeout"),
])  # fmt: skip
async def test_a_body_that_does_not_come_in_time(check, sent, status, code):
    handler = acting(head_act=check)
    async with peer_of({"/acted": handler}, sent, body_timeout_s=5) as peer:
        await until(lambda: peer.served.waiting_bodies)
        await peer.served.pass_s(5)
        assert await peer.is_silent()
        await peer.served.pass_s(1)
        await peer.send(b"y..")
        answer = await peer.last_answer()
        assert (answer.status, answer.json["error"]["code"]) == (status, code)
        assert handler.seen[0].events == ["refused", "closed"]
        assert peer.served.waiting_bodies == 0


async def test_every_byte_of_a_body_has_the_same_deadline():
    async with peer_of({"/acted": echoing()}, head(60), body_timeout_s=5) as peer:
        await until(lambda: peer.served.waiting_bodies)
        for _ in range(6):
            await peer.send(b"x")
            await peer.served.pass_s(1)
        assert (await peer.answer()).status == 408


async def test_a_body_in_time_has_no_deadline_left():
    handler = held()
    sent = post(b"body", {}, "/acted")
    async with peer_of({"/acted": handler}, sent, body_timeout_s=5) as peer:
        await until(lambda: handler.seen and handler.seen[0].events)
        await peer.served.pass_s(60)
        handler.seen[0].go.set_result(None)
        assert (await peer.answer()).body == b"held"


async def test_a_deadline_is_for_its_own_request_only():
    handler = echoing()
    async with serving({"/acted": handler}, body_timeout_s=5) as served:
        first, second = await served.peer(head(4)), await served.peer(head(4))
        await until(lambda: served.waiting_bodies == 2)
        await served.pass_s(3)
        third = await served.peer(head(4))
        await until(lambda: served.waiting_bodies == 3)
        await first.send(b"body")
        assert (await first.answer()).status == 200
        await served.pass_s(3)
        assert (await second.answer()).status == 408
        await third.send(b"body")
        assert (await third.answer()).status == 200


# ---- compressed bodies ---------------------------------------------------------------------------


def unpacking(**options):
    """Return a handler class that sends the unpacked body back."""
    return echoing(head_act=unpack, **options)


@pytest.mark.parametrize("coding", ["gzip", "x-gzip", "GZIP", "identity", "Identity"])
@pytest.mark.parametrize("chunked", [False, True])
async def test_a_packed_body_is_handed_over_unpacked(coding, chunked):
    async with peer_of({"/acted": unpacking()}) as peer:
        for body in (b"{}", b"x" * 1_000_000, NOISE):
            data = gzip.compress(body) if "gzip" in coding.lower() else body
            headers = {"Content-Encoding": coding}
            if chunked:
                half = len(data) // 2
                data = chunks(data[:half], data[half:])
                headers |= CHUNKED
            await peer.send(post(data, headers, "/acted"))
            answer = await peer.answer()
            assert (answer.status, answer.body) == (200, body)
        assert peer.served.waiting_bodies == 0


async def test_a_packed_body_may_be_waited_upon():
    async def act(handler, body):
        await turns(20)
        handler.respond(body)

    async with serving({"/acted": acting(act, unpack)}) as served:
        answer = await served.ask("POST", "/acted", PACKED, gzip.compress(NOISE))
        assert answer.body == NOISE


OTHERS = ["compress", "gzip, gzip", "gzip,identity", "br, gzip", "made-up"]


@pytest.mark.parametrize(("coding", "data"), [
    *((coding, b"body..") for coding in OTHERS),
    ("gzip\r\nContent-Encoding: gzip", gzip.compress(b"{}", mtime=0)),
    pytest.param("gzip", b"x" * 600, id="plain"),
    pytest.param("gzip", gzip.compress(NOISE)[:-1], id="cut"),
    pytest.param("gzip", b"", id="empty"),
    pytest.param("gzip", gzip.compress(b"{}") * 2, id="two"),
])  # fmt: skip
async def test_other_codings_and_damaged_bodies_are_refused_when_they_have_passed(coding, data):
    handler, half = unpacking(), len(data) // 2
    sent = head(len(data), {"Content-Encoding": coding}) + data[:half]
    async with peer_of({"/acted": handler}, sent) as peer:
        assert data == b"" or await peer.is_silent()
        await peer.send(data[half:])
        answer = await check_stays(peer, 415)
        assert answer.json["error"]["code"] == "unsupported_content_encoding"
        assert handler.seen[0].events == ["refused"] and peer.served.waiting_bodies == 0


NOISY = gzip.compress(NOISE[:LIMIT])  # noise grows by compression


@pytest.mark.parametrize(
    "sent", [head(len(NOISY), PACKED), post(chunks(NOISY), PACKED | CHUNKED, "/acted")]
)
async def test_the_limit_holds_for_a_packed_body(sent):
    async with peer_of({"/acted": unpacking()}, sent, max_body_bytes=LIMIT) as peer:
        assert (await peer.answer()).status == 413


BOMB = gzip.compress(bytes(16 << 20))


async def test_a_bomb_is_refused_before_its_end():
    handler = unpacking()
    sent = head(len(BOMB), PACKED) + BOMB[:3_000]
    async with peer_of({"/acted": handler}, sent, max_body_bytes=1 << 20) as peer:
        await until(lambda: handler.seen[0].events == ["refused", "closed"])
        await peer.send(BOMB[3_000:])
        answer = await peer.last_answer()
        assert answer.status == 413 and peer.served.waiting_bodies == 0
        assert answer.json["error"]["message"] == "The body is larger than 1 MiB."


@pytest.mark.parametrize("checked_later", [False, True])
async def test_a_whole_bomb_in_one_segment(checked_later):
    async def later(handler):
        await turns(20)
        unpack(handler)

    handler = echoing(head_act=later if checked_later else unpack)
    sent = post(BOMB, PACKED, "/acted")
    async with peer_of({"/acted": handler}, sent, max_body_bytes=1 << 20) as peer:
        assert (await peer.answer()).status == 413
        assert handler.seen[0].events[0] == "refused"


async def test_a_bomb_of_a_proxy_may_come_whole(proxied):
    sent = post(gzip.compress(bytes(1 << 20)), PACKED, "/acted")
    async with proxied(sent, unpack) as peer:
        await check_stays(peer, 413)


async def test_others_are_served_while_a_large_body_is_unpacked():
    """Steps are counted, not timed: between two of them another request is answered."""
    steps, between = [], []
    real = PackedBody.step

    def counted(packed):
        steps.append(None)
        return real(packed)

    def probe(handler, body):
        between.append(len(steps))
        handler.respond(b"{}")

    routes = {"/acted": unpacking(), "/probe": acting(probe)}
    async with serving(routes) as served:
        with patch.object(PackedBody, "step", counted):
            other = await served.peer()
            peer = await served.peer(post(gzip.compress(bytes(12 << 20)), PACKED, "/acted"))
            asked = 0
            while len(steps) < 120:
                asked += 1
                await other.ask("GET", "/probe")
            assert len((await peer.answer()).body) == 12 << 20
        assert len(steps) > 160 and len(set(between)) == asked > 5


async def test_a_client_that_leaves_while_its_body_is_unpacked():
    steps = []
    real = PackedBody.step

    def slow(packed):
        steps.append(None)
        real(packed)
        return True

    handler = unpacking()
    with patch.object(PackedBody, "step", slow):
        sent = post(gzip.compress(b"{}"), PACKED, "/acted")
        async with peer_of({"/acted": handler}, sent) as peer:
            await until(lambda: len(steps) > 3)
            peer.leave()
            await until(lambda: not peer.served.server.connections)
            await turns()
            seen = len(steps)
            await turns()
            assert len(steps) == seen
    assert handler.seen[0].events == ["closed", "left"]


# ---- the memory for bodies -----------------------------------------------------------------------


def counting(memory, **options):
    """Return a handler class that sends the body back and then releases the memory counted for
    it."""

    def act(handler, body):
        handler.held = memory.held_bytes
        handler._forget_body()
        handler.respond(body)

    def hold_body(handler):
        return memory.hold(handler._evict, "alice", "key")

    return acting(act, hold_body=hold_body, **options)


@pytest.mark.parametrize(("sent", "held_bytes"), [
    pytest.param([head(6), b"abcdef"], 0, id="whole at once"),
    pytest.param([head(6), b"ab", b"cd", b"ef"], 6, id="pieces"),
    pytest.param([CHUNKED_HEAD, chunks(b"abc", b"def")], 6, id="chunked"),
])  # fmt: skip
async def test_a_body_counts_unless_it_is_whole_at_once(sent, held_bytes):
    memory = BodyMemory(1000)
    handler = counting(memory)
    async with peer_of({"/acted": handler}, *sent) as peer:
        assert (await peer.answer()).body == b"abcdef"
        assert (handler.seen[0].held, memory.held_bytes) == (held_bytes, 0)


async def test_packed_and_unpacked_bytes_count():
    memory = BodyMemory(1 << 20)
    data = gzip.compress(bytes(100_000))
    handler = counting(memory, head_act=lambda handler: handler.unpack("gzip"))
    async with peer_of({"/acted": handler}, head(len(data), PACKED), data[:-1]) as peer:
        await until(lambda: memory.held_bytes >= 100_000)
        await peer.send(data[-1:])
        assert (await peer.answer()).body == bytes(100_000)
        assert (handler.seen[0].held, memory.held_bytes) == (100_000, 0)


async def test_small_pieces_unpacked_take_no_more_than_they_have():
    body, machine = PackedBody("gzip", LIMIT), zlib.compressobj(wbits=31)
    for _ in range(LIMIT):
        body.feed(machine.compress(b"a") + machine.flush(zlib.Z_SYNC_FLUSH))
        assert body.step() is False
    assert len(body._parts) == 2
    body.feed(machine.flush())
    assert (body.step(), body.take()) == (False, b"a" * LIMIT)


@pytest.mark.parametrize("leaves", ["client", "time", "memory"])
async def test_an_unfinished_body_counts_no_more_when_it_ends(leaves):
    memory = BodyMemory(1000)
    handler = counting(memory)
    async with serving({"/acted": handler}, body_timeout_s=5) as served:
        peer = await served.peer(head(600), bytes(500))
        await until(lambda: memory.held_bytes == 500)
        if leaves == "client":
            peer.leave()
        elif leaves == "time":
            await served.pass_s(6)
            assert (await peer.answer()).status == 408
        else:
            other = await served.peer(head(600), bytes(500))
            await other.send(bytes(99))
            answer = await other.answer()
            assert (answer.status, answer.headers["retry-after"]) == (429, "1")
            assert answer.headers["connection"] == "close"
            peer.leave()
        await until(lambda: not memory.users)
        assert memory.held_bytes == 0


async def test_a_proxy_may_send_all_of_a_body_without_memory_for_it():
    memory = BodyMemory(1000)
    handler = counting(memory)
    async with serving({"/acted": handler}, LOOPBACK) as served:
        holder = await served.peer(head(600), bytes(500))
        await until(lambda: memory.held_bytes == 500)
        peer = await served.peer(head(600), bytes(500), bytes(99))
        assert await peer.is_silent()
        await peer.send(b"x")
        answer = await peer.answer()
        assert answer.status == 429 and "connection" not in answer.headers
        holder.leave()


async def test_what_is_kept_of_refused_bodies_counts():
    memory = BodyMemory(160)
    handler = counting(memory, head_act=refuse, **LOOKED_INTO, KEEP_OF_REFUSED_BYTES=100)
    async with serving({"/acted": handler}) as served:
        first = await served.peer(head(80), bytes(50))
        await until(lambda: memory.held_bytes == 50)
        second = await served.peer(head(80), bytes(50), bytes(20))
        assert memory.held_bytes == 50
        for peer, missing in ((second, 10), (first, 30)):
            await peer.send(bytes(missing))
            assert (await peer.answer()).status == 401
        assert [len(one.kept) for one in handler.seen] == [80, 0]
        assert memory.held_bytes == 0


# ---- other cases ---------------------------------------------------------------------------------


async def test_a_closed_connection_gets_no_handler_to_work():
    """Its client disconnected between the head and the handler's turn."""
    checked = []
    handler = acting(head_act=checked.append)
    async with peer_of({"/acted": handler}) as peer:
        await until(lambda: peer.served.server._connections)
        [connection] = peer.served.server._connections
        connection.close()
        connection.data_received(post(b"body", {}, "/acted"))
        await until(lambda: not peer.served.server.connections)
        await turns()
        assert len(handler.seen) == 1 and not checked
        assert "complete" not in handler.seen[0].events
        peer.leave()
