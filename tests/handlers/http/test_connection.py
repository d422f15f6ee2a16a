"""The client's connection as an HTTP/1.1 server, byte by byte, on real sockets."""

import asyncio
import gc
import json
import random
import socket
from types import SimpleNamespace

import pytest

from handlers.http import request as request_module
from handlers.http.connection import (
    LINGER_MAX_BYTES,
    LONG_LINGER_MAX_BYTES,
    PARSED_AT_ONCE_BYTES,
    QUEUED_MAX_BYTES,
)
from handlers.http.request import (
    CHUNK_EXTENSIONS_MAX_BYTES,
    END,
    HEAD_MAX_BYTES,
    Request,
    RequestReader,
)
from tests.support.client import encode_head
from tests.support.dialects import error_of
from tests.support.served import (
    CHUNKED,
    VERSION,
    Echo,
    acting,
    bound,
    chunks,
    held,
    post,
    serving,
    stands_still,
    turns,
    until,
)

GET = b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"
LIVE = b'{"live":true}'
ECHO = {"/echo": Echo}


def check_malformed(answer):
    """A refusal of what is no HTTP: JSON, and the connection ends with it. The message."""
    assert (answer.status, answer.whole) == (400, True)
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["connection"] == "close"
    assert answer.headers["request-id"] == answer.call_id
    error = answer.json["error"]
    assert error["type"] == "invalid_request_error"
    return error["message"]


# ---- one request after the other -----------------------------------------------------------------


async def test_a_connection_is_kept():
    async with serving(ECHO) as served:
        peer = await served.peer()
        for number in range(3):
            body = b"x" * number
            answer = await peer.ask("POST", f"/echo?number={number}", None, body)
            assert answer.status == 200 and "connection" not in answer.headers
            told, _, echoed = answer.body.partition(b"\n\n")
            assert told.splitlines()[:3] == [b"POST", b"/echo", b"?number=%d" % number]
            assert echoed == body
        assert served.server.connections == 1


async def test_connection_close_is_obeyed():
    async with serving() as served:
        peer = await served.peer()
        answer = await peer.ask("GET", "/livez", {"Connection": "close"})
        assert (answer.body, answer.headers["connection"]) == (LIVE, "close")
        assert await peer.rest() == b""


@pytest.mark.parametrize("headers", [{}, {"Connection": "keep-alive"}])
async def test_http_1_0_is_closed_after_one_answer(headers):
    async with serving() as served:
        peer = await served.peer()
        answer = await peer.ask("GET", "/livez", headers, version="1.0")
        assert (answer.body, answer.headers["connection"]) == (LIVE, "close")
        assert await peer.rest() == b""


async def test_head_gets_no_body_and_keeps_the_connection():
    async with serving() as served:
        peer = await served.peer()
        answer = await peer.ask("HEAD", "/livez")
        assert (answer.status, answer.headers["content-length"]) == (200, str(len(LIVE)))
        answer = await peer.ask("HEAD", "/no/such/path")
        assert (answer.status, int(answer.headers["content-length"]) > 0) == (404, True)
        assert (await peer.ask("GET", "/livez")).body == LIVE
        assert peer.buffer == b""


async def test_blank_lines_before_a_request_are_skipped():
    async with serving(ECHO) as served:
        peer = await served.peer(b"\r\n\r\n" + GET)
        assert (await peer.answer()).body == LIVE
        await peer.send(post(b"ab") + b"\r\n" + GET)
        assert (await peer.answer()).body.endswith(b"\n\nab")
        assert (await peer.answer()).body == LIVE


@pytest.mark.parametrize(
    ("target", "path", "query"),
    [
        (b"/echo", b"/echo", b""),
        (b"/echo?a=b?c", b"/echo", b"a=b?c"),
        (b"http://gateway.test/echo?a=b", b"/echo", b"a=b"),
    ],
)
async def test_forms_of_the_target(target, path, query):
    async with serving(ECHO) as served:
        peer = await served.peer(b"GET %b HTTP/1.1\r\nHost: x\r\n\r\n" % target)
        assert (await peer.answer()).body.splitlines()[1:3] == [path, b"?" + query]


@pytest.mark.parametrize("target", [b"http://gateway.test", b"*", b"/"])
async def test_targets_without_a_path_are_the_root(target):
    async with serving() as served:
        peer = await served.peer(b"OPTIONS %b HTTP/1.1\r\nHost: x\r\n\r\n" % target)
        answer = await peer.answer()
        assert (answer.status, answer.headers["allow"]) == (405, "GET, HEAD")
        assert await peer.is_silent()


def test_header_names_have_no_case_and_repeated_ones_are_joined():
    taken = []
    taker = SimpleNamespace(take=lambda kind, value: taken.append((kind, value)))
    reader = RequestReader(taker)
    for _ in range(2):
        head = b"POST / HTTP/1.1\r\nX-A:  1 \r\nx-a: 2\r\nHost: caf\xe9\r\n"
        reader.feed(head + b"Transfer-Encoding: chunked\r\n\r\n0\r\nX-A: late\r\n\r\n")
        (_, request), end = taken[-2:]
        assert request.headers == {"x-a": "1,2", "host": "café", "transfer-encoding": "chunked"}
        assert end == (END, None)


# ---- split and joined ----------------------------------------------------------------------------


async def test_a_request_comes_byte_by_byte():
    async with serving(ECHO) as served:
        peer = await served.peer()
        whole = post(b"body", {"X-Long": "y" * 100}) + post(chunks(b"bo", b"dy"), CHUNKED)
        for at in range(len(whole)):
            await peer.send(whole[at : at + 1])
            await turns(2)
        for _ in range(2):
            answer = await peer.answer()
            assert answer.status == 200 and answer.body.endswith(b"\n\nbody")


async def test_a_request_is_split_in_two_anywhere():
    async with serving(ECHO) as served:
        peer = await served.peer()
        whole = post(chunks(b"a", b"b" * 20), CHUNKED)
        for at in range(1, len(whole)):
            await peer.send(whole[:at])
            await turns(6)
            await peer.send(whole[at:])
            answer = await peer.answer()
            assert (answer.status, answer.body[-22:]) == (200, b"\na" + b"b" * 20), at


@pytest.mark.parametrize("seed", range(5))
async def test_requests_are_cut_at_random(seed):
    draw = random.Random(seed)
    async with serving(ECHO) as served:
        bodies = [draw.randbytes(draw.choice((0, 1, 100, 70_000))) for _ in range(20)]
        stream = b""
        for body in bodies:
            cut = draw.randrange(len(body) + 1)
            parts = [part for part in (body[:cut], body[cut:]) if part]
            stream += draw.choice((post(body), post(chunks(*parts), CHUNKED)))
        peer = await served.peer()

        async def send():
            at = 0
            while at < len(stream):
                size = draw.choice((1, 3, 50, 5_000, 100_000))
                await peer.send(stream[at : at + size])
                at += size
                await turns(draw.randrange(8))

        sending = asyncio.create_task(send())
        for body in bodies:
            answer = await peer.answer()
            assert answer.status == 200 and answer.body.partition(b"\n\n")[2] == body
        await sending


async def test_chunks_may_have_extensions_and_trailers():
    async with serving(ECHO) as served:
        body = b'3;a=b;c="d e"\r\nabc\r\n0\r\nX-Sum: 12\r\nX-More: 1\r\n\r\n'
        peer = await served.peer(post(body, CHUNKED))
        answer = await peer.answer()
        assert answer.body.endswith(b"\n\nabc") and b"x-sum" not in answer.body


@pytest.mark.parametrize("host", [
    "x", "", "gateway.example", "gateway.example:8000", "gateway.example:", "127.0.0.1:80",
    "[::1]", "[::1]:8000", "[fe80::1%25eth0]:80", "my_gateway", "a-b.example", "localhost.",
    "b%C3%BC.example",
])  # fmt: skip
async def test_forms_of_a_host(host):
    async with serving(ECHO) as served:
        peer = await served.peer(f"GET /echo HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        assert (await peer.answer()).status == 200


async def test_a_host_longer_than_any_name_is_refused_and_not_remembered():
    async with serving(ECHO) as served:
        known = request_module._host_fault.cache_info().currsize
        host = b"h" * (request_module.HOST_MAX_CHARS + 1)
        peer = await served.peer(b"GET /echo HTTP/1.1\r\nHost: %b\r\n\r\n" % host)
        assert (await peer.answer()).status == 400
        assert request_module._host_fault.cache_info().currsize == known


def extended(extension, count, body=b"x"):
    """A chunked body with the same extension in `count` of its chunks."""
    return (b"%x%b\r\n%b\r\n" % (len(body), extension, body)) * count + b"0\r\n\r\n"


@pytest.mark.parametrize("piece_bytes", [1, 7, 1000, 1 << 20])
@pytest.mark.parametrize(("extension", "count", "passes"), [
    (b";" + b"a" * (CHUNK_EXTENSIONS_MAX_BYTES - 32), 1, True),
    (b";" + b"a" * (CHUNK_EXTENSIONS_MAX_BYTES + 32), 1, False),
    (b";a=bc", CHUNK_EXTENSIONS_MAX_BYTES // 5 - 10, True),
    (b";a=bc", CHUNK_EXTENSIONS_MAX_BYTES // 5 + 20, False),
    (b";a", 10_000, False),
    (b"", 10_000, True),
])  # fmt: skip
async def test_extensions_of_chunks_are_bounded_over_the_whole_body(
    extension, count, passes, piece_bytes
):
    handler = acting(lambda handler, body: handler.respond(body))
    async with serving({"/acted": handler}) as served:
        peer = await served.peer()
        data = post(extended(extension, count), CHUNKED, "/acted")
        for at in range(0, len(data), piece_bytes):
            await peer.send(data[at : at + piece_bytes])
            if piece_bytes > 1 or at % 50 == 0:
                await turns(1)
        answer = await peer.answer()
        if passes:
            assert answer.body == b"x" * count
        else:
            assert "chunk extensions" in check_malformed(answer)
            assert not any("complete" in one.events for one in handler.seen)


async def test_what_is_behind_a_chunked_body_is_no_extension_of_it():
    handler = acting(lambda handler, body: handler.respond(b"%d" % len(body)))
    async with serving({"/acted": handler}) as served:
        peer = await served.peer()
        chunked = post(extended(b";a=b", 100, b"abc"), CHUNKED, "/acted")
        plain = post(b"y" * 8000, {}, "/acted")
        for _ in range(3):
            await peer.send(chunked + plain + chunked)
        for size in [300, 8000, 300] * 3:
            assert (await peer.answer()).body == b"%d" % size


@pytest.mark.parametrize(("path", "shape"), [
    ("/v1/messages", "messages"),
    ("/v1/responses", "responses"),
    ("/v1/chat/completions", "chat_completions"),
    ("/v1beta/models/m:generateContent", "generate_content"),
    ("/v1beta/nothing", "generate_content"),
])  # fmt: skip
@pytest.mark.parametrize("fault", ["host", "coding", "extensions"])
async def test_the_dialect_of_what_is_no_http_is_that_of_its_path(path, shape, fault):
    line = f"POST {path} HTTP/1.{0 if fault == 'coding' else 1}\r\n".encode()
    host = b"Host: a b\r\n" if fault == "host" else b"Host: x\r\n"
    long = b"1;" + b"a" * 5000 + b"\r\nx\r\n" if fault == "extensions" else b""
    async with serving() as served:
        peer = await served.peer(line + host + _TE + b"\r\n" + long + b"0\r\n\r\n")
        answer = await peer.answer()
        assert (answer.status, answer.headers["connection"]) == (400, "close")
        error_of(shape, answer.body, answer.call_id)
        assert await peer.rest() == b""


async def test_trailers_do_not_get_into_the_next_request():
    """Behind a proxy the next request is another client's."""
    async with serving(ECHO) as served:
        evil = b"0\r\nAuthorization: Bearer of-somebody-else\r\nX-Evil: 1\r\n\r\n"
        peer = await served.peer(post(evil, CHUNKED) + post(b""))
        await peer.answer()
        told = (await peer.answer()).body
        assert b"authorization" not in told and b"x-evil" not in told


# ---- pipelining ----------------------------------------------------------------------------------


async def test_pipelined_requests_are_answered_in_order_one_at_a_time():
    running, most = 0, 0

    async def act(handler, body):
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.03 if body == b"0" else 0)
        running -= 1
        handler.respond(body)

    async with serving({"/slow": acting(act)}) as served:
        requests = [post(b"%d" % n, {}, "/slow") for n in range(10)] + [GET]
        peer = await served.peer(b"".join(requests))
        for number in range(10):
            assert (await peer.answer()).body == b"%d" % number
        assert (await peer.answer()).body == LIVE
        assert most == 1


async def test_pipelined_bodies_of_many_sizes():
    async with serving(ECHO) as served:
        bodies = [b"%d" % n * 10_000 for n in range(10)]
        peer = await served.peer()
        sending = asyncio.create_task(peer.send(b"".join(post(body) for body in bodies)))
        for body in bodies:
            assert (await peer.answer()).body.endswith(b"\n\n" + body)
        await sending


async def test_nothing_runs_behind_a_request_that_closes_the_connection():
    handler = held()
    async with serving({"/held": handler, **ECHO}) as served:
        last = post(b"1", {"Connection": "close"}, "/held")
        for behind in (post(b"2", {}, "/held"), GET + GET, b"\r\n", b"no HTTP"):
            handler.seen.clear()
            peer = await served.peer(last + behind)
            await until(lambda: handler.seen and handler.seen[0].events)
            handler.seen[0].go.set_result(None)
            answer = await peer.answer()
            assert (answer.body, answer.headers["connection"]) == (b"held", "close")
            assert await peer.rest() == b""
            assert len(handler.seen) == 1


async def test_http_1_0_pipelined_behind():
    async with serving(ECHO) as served:
        first = post(b"1", {"Connection": "keep-alive"}, version="1.0")
        peer = await served.peer(first + post(b"2"))
        assert (await peer.answer()).body.endswith(b"\n\n1")
        assert await peer.rest() == b""


@pytest.mark.parametrize("slow_head", [False, True])
async def test_garbage_behind_a_good_request_does_not_spoil_its_answer(slow_head):
    wait = (lambda handler: asyncio.sleep(0.01)) if slow_head else None
    handler = acting(lambda handler, body: handler.respond(body), wait)
    async with serving({"/acted": handler}) as served:
        peer = await served.peer(post(b"good", {}, "/acted") * 2 + b"\x16\x03garbage\r\n\r\n")
        await peer.send(GET)  # is not looked at any more
        for _ in range(2):
            answer = await peer.answer()
            assert (answer.status, answer.body) == (200, b"good")
        check_malformed(await peer.answer())
        assert await peer.rest() == b""


async def test_a_client_that_leaves_is_not_served_further():
    handler = held()
    async with serving({"/held": handler}) as served:
        peer = await served.peer(post(b"", {}, "/held") * 5)
        await until(lambda: handler.seen and handler.seen[0].events)
        peer.leave()
        await until(lambda: not served.server.connections)
        handler.seen[0].go.set_result(None)
        await turns()
        assert len(handler.seen) == 1
        assert handler.seen[0].events == ["complete", "closed"]


def requests_in_memory():
    gc.collect()
    return sum(isinstance(one, Request) for one in gc.get_objects())


async def test_requests_by_the_thousand_ahead_of_their_answers():
    """They are served in order, and few of them are taken in before their turn."""
    handler = held()
    async with serving({"/held": handler}) as served:
        peer = await served.peer(post(b"", {}, "/held"))
        await until(lambda: handler.seen and handler.seen[0].events)
        sent = 3_000
        sending = asyncio.create_task(peer.send(GET * sent))
        await asyncio.sleep(0.1)
        assert requests_in_memory() <= PARSED_AT_ONCE_BYTES / len(GET) + 100 < sent
        handler.seen[0].go.set_result(None)
        assert (await peer.answer()).body == b"held"
        for _ in range(sent):
            assert (await peer.answer()).body == LIVE
        await sending
        assert await peer.is_silent()


async def test_reading_ahead_is_bounded():
    """What is behind a running request stays with the client."""
    handler = held()
    async with serving({"/held": handler, **ECHO}, max_body_bytes=1 << 30) as served:
        peer = await served.peer(post(b"", {}, "/held"))
        await until(lambda: handler.seen and handler.seen[0].events)
        body = bytes(63 << 19)
        sending = asyncio.create_task(peer.send(post(body)))
        await asyncio.sleep(0.1)
        assert not sending.done()
        handler.seen[0].go.set_result(None)
        assert (await peer.answer()).body == b"held"
        answer = await peer.answer()
        assert answer.body.partition(b"\n\n")[2] == body
        await sending
        assert len(body) > 100 * QUEUED_MAX_BYTES


# ---- what is no HTTP -----------------------------------------------------------------------------

_POST = b"POST /echo HTTP/1.1\r\nHost: x\r\n"
_TE = b"Transfer-Encoding: chunked\r\n"
_END = b"3\r\nabc\r\n0\r\n\r\n"
MALFORMED = {
    "both lengths": _POST + b"Content-Length: 3\r\n" + _TE + b"\r\n" + _END,
    "both lengths, other order": _POST + _TE + b"Content-Length: 3\r\n\r\n" + _END,
    "length twice": _POST + b"Content-Length: 3\r\n" * 2 + b"\r\nabc",
    "two lengths": _POST + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
    "length list": _POST + b"Content-Length: 3, 3\r\n\r\nabc",
    "signed length": _POST + b"Content-Length: +3\r\n\r\nabc",
    "negative length": _POST + b"Content-Length: -3\r\n\r\nabc",
    "hex length": _POST + b"Content-Length: 0x3\r\n\r\nabc",
    "blank length": _POST + b"Content-Length: \r\n\r\n",
    "absurd length": _POST + b"Content-Length: 99999999999999999999\r\n\r\nabc",
    "gzip, chunked": _POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n" + _END,
    "chunked, gzip": _POST + b"Transfer-Encoding: chunked, gzip\r\n\r\n" + _END,
    "two codings": _POST + b"Transfer-Encoding: gzip\r\n" + _TE + b"\r\n" + _END,
    "identity": _POST + b"Transfer-Encoding: identity\r\nContent-Length: 3\r\n\r\nabc",
    "chunked twice": _POST + b"Transfer-Encoding: chunked, chunked\r\n\r\n" + _END,
    "nearly chunked": _POST + b"Transfer-Encoding: xchunked\r\n\r\n" + _END,
    "vertical tab": _POST + b"Transfer-Encoding: \x0bchunked\r\n\r\n" + _END,
    "folded header": _POST + b"X-A: 1\r\n 2\r\n\r\n",
    "folded length": _POST + b"Content-Length:\r\n 3\r\n\r\nabc",
    "bare LF in request line": b"GET /echo HTTP/1.1\nHost: x\r\n\r\n",
    "bare LF after header": b"GET /echo HTTP/1.1\r\nHost: x\n\r\n",
    "bare LF at the end": b"GET /echo HTTP/1.1\r\nHost: x\r\n\n",
    "bare CR in header": b"GET /echo HTTP/1.1\r\nHost: x\rX-A: 1\r\n\r\n",
    "NUL in value": b"GET /echo HTTP/1.1\r\nHost: x\x00y\r\n\r\n",
    "NUL in name": b"GET /echo HTTP/1.1\r\nHo\x00st: x\r\n\r\n",
    "NUL in target": b"GET /ec\x00ho HTTP/1.1\r\nHost: x\r\n\r\n",
    "8 bits in target": b"GET /ech\xf6 HTTP/1.1\r\nHost: x\r\n\r\n",
    "blank before colon": b"GET /echo HTTP/1.1\r\nHost : x\r\n\r\n",
    "no colon": b"GET /echo HTTP/1.1\r\nHost: x\r\nHost\r\n\r\n",
    "no name": b"GET /echo HTTP/1.1\r\nHost: x\r\n: x\r\n\r\n",
    "no slash": b"GET echo HTTP/1.1\r\nHost: x\r\n\r\n",
    "tab": b"GET\t/echo HTTP/1.1\r\nHost: x\r\n\r\n",
    "lower case": b"get /echo HTTP/1.1\r\nHost: x\r\n\r\n",
    "made up method": b"FOO /echo HTTP/1.1\r\nHost: x\r\n\r\n",
    "version 1.2": b"GET /echo HTTP/1.2\r\nHost: x\r\n\r\n",
    "version 11": b"GET /echo HTTP/11\r\nHost: x\r\n\r\n",
    "version 2.0": b"GET /echo HTTP/2.0\r\nHost: x\r\n\r\n",
    "version 0.9": b"GET /echo HTTP/0.9\r\nHost: x\r\n\r\n",
    "no version": b"GET /echo\r\nHost: x\r\n\r\n",
    "FTP": b"GET /echo FTP/1.1\r\nHost: x\r\n\r\n",
    "coding in 1.0": b"POST /echo HTTP/1.0\r\nHost: x\r\n" + _TE + b"\r\n" + _END,
    "coding in 1.0, no host": b"POST /echo HTTP/1.0\r\n" + _TE + b"\r\n" + _END,
    "coding in 1.0, kept": b"POST /echo HTTP/1.0\r\nConnection: keep-alive\r\n"
    + _TE
    + b"\r\n"
    + _END,
    "no host": b"GET /echo HTTP/1.1\r\nX-A: 1\r\n\r\n",
    **{
        f"host {host!r}": b"GET /echo HTTP/1.1\r\nHost: " + host + b"\r\n\r\n"
        for host in (
            b"a b",
            b"x y:80",
            b"a\tb",
            b"a\x01b",
            b"a\x7fb",
            b"user@x",
            b"user:secret@x:80",
            b"x/y",
            b"x?y",
            b"x#y",
            b"http://x",
            b"x:80:80",
            b"x:port",
            b"x:123456",
            b"[::1",
            b"::1",
            b"[x y]",
            b'"x"',
            b"<x>",
            b"x\\y",
            b"\xe4.example",
        )
    },
    "host in 1.0": b"GET /echo HTTP/1.0\r\nHost: a b\r\n\r\n",
    "two hosts": b"GET /echo HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n",
    "list of hosts": b"GET /echo HTTP/1.1\r\nHost: x, y\r\n\r\n",
    "TLS": bytes.fromhex("16030100c6010000c2030379") + bytes(200),
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes.fromhex("000012040000000000"),
    "SSH": b"SSH-2.0-OpenSSH_9.9\r\n",
    "PROXY": b"PROXY TCP4 10.0.0.1 10.0.0.2 5000 8000\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "zeroes": bytes(100),
    "JSON": b'{"jsonrpc":"2.0"}\r\n\r\n',
}
BAD_CHUNKS = {
    "no size": b"xyz\r\nabc\r\n0\r\n\r\n",
    "0x": b"0x3\r\nabc\r\n0\r\n\r\n",
    "negative": b"-3\r\nabc\r\n0\r\n\r\n",
    "overflow": b"fffffffffffffffff\r\nabc\r\n0\r\n\r\n",
    "bare LF": b"3\nabc\n0\n\n",
    "too long": b"3\r\nabcd\r\n0\r\n\r\n",
    "too short": b"3\r\nab\r\n0\r\n\r\n",
    "NUL": b"3\x00\r\nabc\r\n0\r\n\r\n",
    "bad trailer": b"3\r\nabc\r\n0\r\nX Y\r\n\r\n",
}


@pytest.mark.parametrize("name", MALFORMED)
async def test_what_is_no_http_is_refused_and_the_connection_closed(name):
    handler = acting()
    async with serving({"/echo": handler}) as served:
        peer = await served.peer(MALFORMED[name])
        check_malformed(await peer.answer())
        assert await peer.rest() == b""
        peer.leave()
        await until(lambda: not served.server.connections)
        assert not any(one.events for one in handler.seen)


@pytest.mark.parametrize("name", MALFORMED)
async def test_it_is_refused_byte_by_byte_as_well(name):
    handler = acting()
    async with serving({"/echo": handler}) as served:
        peer = await served.peer()
        for byte in MALFORMED[name]:
            await peer.send(bytes([byte]))  # goes on after the refusal without a reset
            await turns(1)
        check_malformed(await peer.answer())
        assert await peer.rest() == b""
        assert not any("complete" in one.events for one in handler.seen)


@pytest.mark.parametrize("name", BAD_CHUNKS)
async def test_a_body_that_breaks_off_into_nonsense(name):
    handler = acting()
    async with serving({"/echo": handler}) as served:
        for pause in (0, 6):
            handler.seen.clear()
            peer = await served.peer(post(b"", CHUNKED))
            await turns(pause)
            await peer.send(BAD_CHUNKS[name])
            check_malformed(await peer.answer())
            assert await peer.rest() == b""
            # The handler does not wait any more, and was told once.
            assert handler.seen[0].events == ["closed", "left"]
            assert served.waiting_bodies == 0
            peer.leave()
            await until(lambda: not served.server.connections)
            assert handler.seen[0].events == ["closed", "left"]


async def test_nonsense_in_the_body_while_the_head_is_still_checked():
    gate = asyncio.get_running_loop().create_future()
    handler = acting(head_act=lambda handler: gate)
    async with serving({"/echo": handler}) as served:
        peer = await served.peer(post(b"zz\r\n", CHUNKED))
        assert await peer.is_silent()
        gate.set_result(None)
        check_malformed(await peer.answer())
        assert await peer.rest() == b""
        assert handler.seen[0].events == ["closed", "left"] and served.waiting_bodies == 0


async def test_an_answer_that_has_begun_is_cut_when_the_request_turns_into_nonsense():
    def begin(handler):
        handler.connection.start(200, (), b"begun")

    async with serving({"/echo": acting(head_act=begin)}) as served:
        peer = await served.peer(post(b"", CHUNKED))
        assert (await peer.head()).status == 200
        await peer.send(b"nonsense")
        with pytest.raises((ConnectionResetError, EOFError)):
            while await peer.chunk():
                pass


@pytest.mark.parametrize("method", ["PROPFIND", "TRACE", "PURGE", "SOURCE", "MKCOL", "SUBSCRIBE"])
async def test_other_methods_of_http(method):
    async with serving() as served:
        peer = await served.peer(f"{method} /livez HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        answer = await peer.answer()
        assert (answer.status, answer.json["error"]["code"]) == (405, "method_not_allowed")
        assert answer.headers["allow"] == "GET, HEAD"
        assert (await peer.ask("GET", "/livez")).body == LIVE


async def test_connect():
    async with serving() as served:
        peer = await served.peer(b"CONNECT example.com:443 HTTP/1.1\r\nHost: x\r\n\r\n")
        assert (await peer.answer()).status == 405
        assert await peer.rest() == b""


@pytest.mark.parametrize("behind", [b"", b"\x81\x05hello", GET])
async def test_nobody_speaks_another_protocol_here(behind):
    head = encode_head("GET", "/echo", {"Connection": "Upgrade", "Upgrade": "websocket"})
    async with serving(ECHO) as served:
        peer = await served.peer(head + behind)
        answer = await peer.answer()
        assert (answer.status, answer.headers["connection"]) == (200, "close")
        assert await peer.rest() == b""


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("split", [False, True])
async def test_a_body_is_read_though_another_protocol_is_asked_for(chunked, split):
    """Java's HttpClient offers h2c with every request."""
    headers = {"Connection": "Upgrade, HTTP2-Settings", "Upgrade": "h2c", "HTTP2-Settings": "AAA"}
    body = b"x" * 100_000
    whole = post(chunks(body), headers | CHUNKED) if chunked else post(body, headers)
    async with serving(ECHO) as served:
        at = whole.index(b"\r\n\r\n") + 4 if split else len(whole)
        peer = await served.peer(whole[:at], whole[at:])
        answer = await peer.answer()
        assert answer.headers["connection"] == "close"
        assert answer.body.partition(b"\n\n")[2] == body
        assert b"http2-settings" in answer.body.partition(b"\n\n")[0]
        assert await peer.rest() == b""


# ---- heads that are too large --------------------------------------------------------------------

_LARGE = b"y" * (HEAD_MAX_BYTES + 100)
LARGE_HEADS = {
    "target": b"GET /" + _LARGE + b" HTTP/1.1\r\nHost: x\r\n\r\n",
    "query": b"GET /echo?" + _LARGE + b" HTTP/1.1\r\nHost: x\r\n\r\n",
    "one header": b"GET /echo HTTP/1.1\r\nHost: x\r\nX-A: " + _LARGE + b"\r\n\r\n",
    "one name": b"GET /echo HTTP/1.1\r\nHost: x\r\n" + _LARGE + b": 1\r\n\r\n",
    "many headers": b"GET /echo HTTP/1.1\r\nHost: x\r\n" + b"X-A: 0123456789\r\n" * 6_000 + b"\r\n",
}


@pytest.mark.parametrize("piece_bytes", [1_000, 60_000, 1 << 20])
@pytest.mark.parametrize("name", LARGE_HEADS)
async def test_a_head_over_the_limit(name, piece_bytes):
    handler = acting()
    async with serving({"/echo": handler}) as served:
        peer = await served.peer()
        whole = LARGE_HEADS[name]
        for at in range(0, len(whole), piece_bytes):
            await peer.send(whole[at : at + piece_bytes])
            await turns(2)
        assert "64 KiB" in check_malformed(await peer.answer())
        assert await peer.rest() == b"" and not handler.seen


@pytest.mark.parametrize("behind", [b"", GET])
async def test_a_large_head_in_the_segment_of_another_request(behind):
    async with serving(ECHO) as served:
        peer = await served.peer(post(b"first") + LARGE_HEADS["one header"] + behind)
        assert (await peer.answer()).body.endswith(b"first")
        assert "64 KiB" in check_malformed(await peer.answer())
        assert await peer.rest() == b""


async def test_a_head_just_below_the_limit():
    async with serving(ECHO) as served:
        peer = await served.peer()
        for value in ("y" * 60_000, "y" * (HEAD_MAX_BYTES - 100)):
            answer = await peer.ask("GET", "/echo", {"X-Large": value})
            assert answer.status == 200


@pytest.mark.parametrize(
    ("start", "endless"),
    [
        (b"GET /", b"y" * 1_000),
        (b"GET / HTTP/1.1\r\nX-A: ", b"y" * 1_000),
        (b"GET / HTTP/1.1\r\n", b"y" * 1_000),
        (b"GET / HTTP/1.1\r\n", b"X-A: 1\r\n" * 125),
        (b"", b"\r\n" * 500),
        (post(b"", CHUNKED) + b"0\r\n", b"X-A: 1\r\n" * 125),
        (post(b"", CHUNKED) + b"3;", b"y" * 1_000),
    ],
)
async def test_what_never_ends_is_not_read_for_ever(start, endless):
    async with serving(ECHO) as served:
        peer = await served.peer(start)
        sent = 0
        while await peer.is_silent(0):
            await peer.send(endless)
            sent += len(endless)
            await turns(3)
            assert sent < 2 * HEAD_MAX_BYTES
        check_malformed(await peer.answer())
        assert await peer.rest() == b""


# ---- Expect: 100-continue ------------------------------------------------------------------------

EXPECT = {"Expect": "100-continue", "Content-Length": "4"}


@pytest.mark.parametrize("slow_head", [False, True])
async def test_continue_is_sent_once_and_then_the_answer(slow_head):
    wait = (lambda handler: asyncio.sleep(0.01)) if slow_head else None
    handler = acting(lambda handler, body: handler.respond(body), wait)
    async with serving({"/acted": handler}) as served:
        peer = await served.peer(encode_head("POST", "/acted", EXPECT))
        interim = await peer.head()
        assert (interim.status, interim.headers) == (100, {})
        assert await peer.is_silent()
        await peer.send(b"bo")
        assert await peer.is_silent()
        await peer.send(b"dy")
        answer = await peer.answer()
        assert (answer.status, answer.body) == (200, b"body")
        assert (await peer.ask("POST", "/acted", None, b"next")).body == b"next"


async def test_a_client_that_does_not_wait_for_continue():
    async with serving(ECHO) as served:
        peer = await served.peer(post(b"body", EXPECT))
        assert (await peer.answer()).status == 100
        assert (await peer.answer()).body.endswith(b"body")


@pytest.mark.parametrize(
    ("headers", "version", "body"),
    [
        ({"Expect": "100-continue"}, "1.1", b""),
        ({"Expect": "100-continue", "Content-Length": "4"}, "1.0", b"body"),
        ({"Expect": "tea", "Content-Length": "4"}, "1.1", b"body"),
    ],
)
async def test_no_continue_for_who_cannot_expect_it(headers, version, body):
    async with serving(ECHO) as served:
        peer = await served.peer(encode_head("POST", "/echo", headers, None, version) + body)
        answer = await peer.answer()
        assert (answer.status, answer.body.endswith(b"\n\n" + body)) == (200, True)


async def test_a_refusal_instead_of_continue():
    async with serving() as served:
        peer = await served.peer(encode_head("POST", "/no/such/path", EXPECT))
        answer = await peer.answer()
        assert (answer.status, answer.headers["connection"]) == (404, "close")
        assert await peer.rest() == b""


async def test_who_leaves_before_continue():
    handler = acting(head_act=lambda handler: asyncio.sleep(0.02))
    async with serving({"/acted": handler}) as served:
        peer = await served.peer(encode_head("POST", "/acted", EXPECT))
        await until(lambda: handler.seen)
        peer.leave(reset=True)
        await until(lambda: not served.server.connections)
        await asyncio.sleep(0.03)
        assert handler.seen[0].events == ["closed", "left"] and served.waiting_bodies == 0


# ---- streams and back-pressure -------------------------------------------------------------------


def streaming(run):
    """A handler class whose answer is made by `await run(connection)`, in a task of its own."""

    async def act(handler, body):
        await asyncio.create_task(run(handler.connection))

    return acting(act)


async def test_a_stream_is_chunked():
    async def run(connection):
        assert not connection.head_sent
        assert connection.start(200, (("Content-Type", "text/event-stream"),), b"one")
        assert connection.head_sent
        assert connection.send(b"two")
        connection.finish(b"three")

    async with serving({"/stream": streaming(run)}) as served:
        peer = await served.peer()
        for _ in range(2):
            await peer.request("GET", "/stream")
            answer = await peer.answer()
            assert answer.pieces == [b"one", b"two", b"three"] and answer.whole
            assert answer.headers["content-type"] == "text/event-stream"
            assert "content-length" not in answer.headers and "connection" not in answer.headers


async def test_empty_pieces_are_no_end_of_a_stream():
    async def run(connection):
        connection.start(200, (), b"")
        connection.send(b"")
        connection.send(b"body")
        connection.finish()

    async with serving({"/stream": streaming(run)}) as served:
        assert (await served.ask("GET", "/stream")).pieces == [b"body"]


async def test_a_stream_to_http_1_0_ends_with_the_connection():
    async def run(connection):
        connection.start(200, (), b"one")
        connection.send(b"two")
        connection.finish(b"three")

    async with serving({"/stream": streaming(run)}) as served:
        peer = await served.peer()
        answer = await peer.ask("GET", "/stream", version="1.0")
        assert answer.body == b"onetwothree"
        assert answer.headers["connection"] == "close"
        assert not {"transfer-encoding", "content-length"} & answer.headers.keys()


BUFFER_BYTES = 65536
KERNEL_BYTES = 1 << 20  # what the kernels of both sides may take, with the small buffers below


def narrow():
    """A listener whose connections have small buffers in the kernel."""
    listener = bound()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 16384)
    return listener


@pytest.mark.parametrize("version", ["1.0", "1.1"])
async def test_a_client_that_does_not_read_holds_the_stream_up(version):
    events = [b"data: %d\n\n" % n * 200 for n in range(5_000)]
    held_up = []

    async def run(connection):
        drained = asyncio.Event()
        connection.on_drained = drained.set
        unread = 0
        room = connection.start(200, (), b"")
        for event in events:
            unread += len(event)
            if not room:
                held_up.append(unread)
                unread = 0
                drained.clear()
                await drained.wait()
            room = connection.send(event)
        connection.finish(b"")

    options = {"listener": narrow(), "stream_buffer_bytes": BUFFER_BYTES}
    async with serving({"/stream": streaming(run)}, **options) as served:
        peer = await served.peer(receive_bytes=4096)
        await peer.request("GET", "/stream", version=version)
        await until(lambda: held_up)
        await asyncio.sleep(0.05)
        assert len(held_up) == 1 and BUFFER_BYTES <= held_up[0] <= BUFFER_BYTES + KERNEL_BYTES
        answer = await peer.answer()
        assert answer.body == b"".join(events)
        assert answer.whole is (version == "1.1")
        assert len(held_up) > 10
        assert max(held_up) <= BUFFER_BYTES + KERNEL_BYTES


async def test_start_says_that_the_buffer_is_full():
    rooms, unsent = [], []

    async def run(connection):
        rooms.append(connection.start(200, (), bytes(3 << 19)))
        rooms.append(connection.send(b"more"))
        unsent.append(connection.unsent_bytes)
        connection.on_drained = lambda: connection.finish(b"end")

    options = {"listener": narrow(), "stream_buffer_bytes": BUFFER_BYTES}
    async with serving({"/stream": streaming(run)}, **options) as served:
        peer = await served.peer()
        await peer.request("GET", "/stream")
        assert (await peer.answer()).body == bytes(3 << 19) + b"moreend"
        assert rooms == [False, False]
        assert BUFFER_BYTES < unsent[0] < 3 << 19


async def test_nobody_is_called_after_the_end_of_an_answer():
    called = []

    async def run(connection):
        connection.on_drained = lambda: called.append("drained")
        connection.start(200, (), bytes(3 << 19))
        connection.finish(b"end")

    options = {"listener": narrow(), "stream_buffer_bytes": BUFFER_BYTES}
    async with serving({"/stream": streaming(run)}, **options) as served:
        peer = await served.peer()
        await peer.request("GET", "/stream")
        assert (await peer.answer()).whole
        assert not called
        assert (await peer.ask("GET", "/livez")).body == LIVE


async def test_unread_answers_do_not_pile_up():
    """A client sends request after request and reads nothing."""
    size, wanted = 20_000, 1_000
    answered = []

    def act(handler, body):
        answered.append(1)
        handler.respond(b"x" * size)

    options = {"listener": narrow(), "stream_buffer_bytes": BUFFER_BYTES}
    async with serving({"/large": acting(act)}, **options) as served:
        peer = await served.peer(receive_bytes=4096)

        async def send():
            for _ in range(wanted):
                await peer.request("GET", "/large")
                await turns(3)

        sending = asyncio.create_task(send())
        await until(lambda: len(answered) > 2)
        before = 0
        while before < len(answered):
            before = len(answered)
            await asyncio.sleep(0.05)
        assert before * size < BUFFER_BYTES + KERNEL_BYTES + size
        for _ in range(wanted):
            assert len((await peer.answer()).body) == size
        await sending


# ---- who leaves ----------------------------------------------------------------------------------

BOTH_WAYS = pytest.mark.parametrize("reset", [False, True])


@BOTH_WAYS
@pytest.mark.parametrize("sent", [b"", b"POST /acted HTTP/1.1\r\nX-", b"\r\n"])
async def test_leaving_before_the_head(sent, reset):
    handler = acting()
    async with serving({"/acted": handler}) as served:
        peer = await served.peer(sent)
        await until(lambda: served.server.connections)
        peer.leave(reset)
        await until(lambda: not served.server.connections)
        assert not any(one.events for one in handler.seen)


@BOTH_WAYS
@pytest.mark.parametrize("sent", [b"", b"ha"])
async def test_leaving_before_the_end_of_the_body(sent, reset):
    handler = acting()
    async with serving({"/acted": handler}) as served:
        head = encode_head("POST", "/acted", {"Content-Length": "4"})
        peer = await served.peer(head + sent)
        await until(lambda: served.waiting_bodies)
        peer.leave(reset)
        await until(lambda: not served.server.connections)
        assert handler.seen[0].events == ["closed", "left"]
        assert served.waiting_bodies == 0


@BOTH_WAYS
async def test_leaving_while_the_head_is_checked(reset):
    gate = asyncio.get_running_loop().create_future()
    handler = acting(head_act=lambda handler: gate)
    async with serving({"/acted": handler}) as served:
        peer = await served.peer(post(b"body", {}, "/acted"))
        await until(lambda: handler.seen)
        peer.leave(reset)
        await until(lambda: not served.server.connections)
        gate.set_result(None)
        await turns()
        assert handler.seen[0].events == ["closed", "left"]
        assert served.waiting_bodies == 0


@BOTH_WAYS
async def test_leaving_while_the_answer_is_made(reset):
    handler = held()
    async with serving({"/held": handler}) as served:
        peer = await served.peer(post(b"", {}, "/held"))
        await until(lambda: handler.seen and handler.seen[0].events)
        peer.leave(reset)
        await until(lambda: not served.server.connections)
        assert handler.seen[0].events == ["complete", "closed"]
        handler.seen[0].go.set_result(None)
        await turns()
        assert handler.seen[0].events == ["complete", "closed"]


@BOTH_WAYS
async def test_leaving_in_the_middle_of_a_stream(reset):
    ended = []

    async def run(connection):
        connection.on_drained = lambda: ended.append("drained")
        connection.start(200, (), b"begun")
        await until(lambda: connection.closed)
        # Whoever has not noticed yet may go on.
        assert connection.start(200, (), b"") and connection.send(b"more")
        connection.finish(b"end")
        connection.answer(200, (), b"")
        connection.drop()
        connection.close()
        assert connection.unsent_bytes == 0
        ended.append("ended")

    handler = streaming(run)
    async with serving({"/stream": handler}) as served:
        peer = await served.peer()
        await peer.request("GET", "/stream")
        assert await peer.head() and await peer.chunk() == b"begun"
        peer.leave(reset)
        await until(lambda: ended)
        assert ended == ["ended"] and handler.seen[0].events == ["complete", "closed"]


@BOTH_WAYS
async def test_leaving_after_the_answer(reset):
    handler = acting()
    async with serving({"/acted": handler}) as served:
        peer = await served.peer()
        assert (await peer.ask("POST", "/acted", None, b"")).status == 200
        peer.leave(reset)
        await until(lambda: not served.server.connections)
        assert handler.seen[0].events == ["complete"]


@BOTH_WAYS
async def test_leaving_after_an_early_answer(reset):
    handler = acting(head_act=lambda handler: handler.check_size())
    async with serving({"/acted": handler}, max_body_bytes=1024) as served:
        peer = await served.peer(encode_head("POST", "/acted", {"Content-Length": "2000"}))
        assert (await peer.answer()).status == 413
        peer.leave(reset)
        await until(lambda: not served.server.connections)
        assert handler.seen[0].events == ["refused", "closed"]


@BOTH_WAYS
@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("turns_later", range(12))
async def test_leaving_in_any_turn_of_the_loop(turns_later, method, reset):
    """Everything is in one process here, so that each turn can be met; nothing may be logged."""
    handler = acting()
    async with serving({"/acted": handler}) as served:
        body = b"{}" if method == "POST" else None
        peer = await served.peer()
        await until(lambda: served.server.connections)
        await peer.request(method, "/acted", None, body)
        await turns(turns_later)
        peer.leave(reset)
        await until(lambda: not served.server.connections)
        await turns()
        for one in handler.seen:
            assert one.events.count("closed") <= 1
            assert ("complete" in one.events) is not ("left" in one.events)


async def test_leaving_in_the_turn_that_ends_the_body():
    """The body is with the handler before the connection is known to be gone."""
    handler = held()
    async with serving({"/acted": handler}) as served:
        peer = await served.peer(encode_head("POST", "/acted", {"Content-Length": "1"}))
        await until(lambda: served.waiting_bodies)
        connection = handler.seen[0].connection
        connection.data_received(b"x")
        connection.connection_lost(None)
        await turns()
        assert handler.seen[0].events == ["complete", "closed"]
        handler.seen[0].go.set_result(None)
        peer.leave()


# ---- how an answer ends --------------------------------------------------------------------------


@pytest.mark.parametrize(("version", "end"), [("1.0", ConnectionResetError), ("1.1", EOFError)])
async def test_drop_never_lets_a_stream_look_whole(version, end):
    async def run(connection):
        connection.start(200, (), b"begun")
        connection.send(b"more")
        await asyncio.sleep(0.01)
        connection.drop()

    handler = streaming(run)
    async with serving({"/stream": handler}) as served:
        peer = await served.peer()
        await peer.request("GET", "/stream", version=version)
        assert (await peer.head()).status == 200
        with pytest.raises(end):
            while True:
                await peer.fill()
        assert peer.buffer in (b"5\r\nbegun\r\n4\r\nmore\r\n", b"begunmore")
        assert handler.seen[0].events == ["complete"]


async def test_a_client_still_sending_can_read_an_early_answer():
    """No reset: what comes is thrown away for a while, and our side is closed."""
    async with serving(ECHO, max_body_bytes=1024) as served:
        peer = await served.peer(encode_head("POST", "/livez", {"Content-Length": "900000"}))
        for _ in range(9):
            await peer.send(bytes(100_000))
            await turns()
        answer = await peer.answer()
        assert (answer.status, answer.headers["connection"]) == (405, "close")
        assert await peer.rest() == b""
        assert served.server.connections == 1
        peer.leave()
        await until(lambda: not served.server.connections)


@pytest.mark.parametrize("size", [12_000_000, LONG_LINGER_MAX_BYTES])
@pytest.mark.parametrize("chunked", [False, True])
async def test_a_client_that_reads_only_when_it_has_sent_all_sees_that_it_was_too_much(
    size, chunked
):
    handler = acting(head_act=lambda handler: handler.check_size())
    async with serving({"/acted": handler}, max_body_bytes=1 << 20) as served:
        peer = await served.peer()
        if chunked:
            data = post(b"%x\r\n" % size, CHUNKED, "/acted")
        else:
            data = encode_head("POST", "/acted", {"Content-Length": str(size)})
        await peer.send(data + bytes(size - len(data)))
        answer = await peer.answer()
        assert (answer.status, answer.headers["connection"]) == (413, "close")
        assert b"larger than 1 MiB" in answer.body
        assert await peer.rest() == b""
        peer.leave()
        await until(lambda: not served.server.connections)


@pytest.mark.parametrize(("sent", "most_bytes"), [
    (encode_head("POST", "/livez", {"Content-Length": str(1 << 30)}), LONG_LINGER_MAX_BYTES),
    (b"nonsense\r\n", LINGER_MAX_BYTES),
])  # fmt: skip
async def test_a_client_that_sends_on_and_on_is_closed(sent, most_bytes):
    async with serving(max_body_bytes=1024) as served:
        peer = await served.peer(sent)
        assert (await peer.answer()).status in (400, 405)
        sent = 0
        with pytest.raises(ConnectionError):
            while sent < 2 * most_bytes + (8 << 20):
                await peer.send(bytes(65536))
                sent += 65536
                await turns(2)
        assert most_bytes <= sent < most_bytes + (8 << 20)
        assert served.server.connections == 0


async def test_what_a_vendor_said_begins_no_line_of_its_own():
    async def run(connection):
        connection.answer(200, (("X-Said", "a\r\nX-Evil: 1\nb\rc"), ("X-Word", "Zürich ✓")), b"")

    async with serving({"/acted": streaming(run)}) as served:
        answer = await served.ask("GET", "/acted")
        assert answer.headers["x-said"] == "a X-Evil: 1 b c" and "x-evil" not in answer.headers
        assert answer.headers["x-word"] == "Zürich ?"


async def test_a_status_that_python_does_not_know():
    async def run(connection):
        connection.answer(529, (), b"")

    async with serving({"/acted": streaming(run)}) as served:
        answer = await served.ask("GET", "/acted")
        assert answer.head.startswith(b"HTTP/1.1 529 Overloaded\r\n")


# ---- bugs of handlers ----------------------------------------------------------------------------


async def broken_later(handler, body=b""):
    await asyncio.sleep(0.001)
    raise RuntimeError("a bug")


def broken(handler, body=b""):
    raise RuntimeError("a bug")


@pytest.mark.parametrize("headers", [{}, VERSION])
@pytest.mark.parametrize("bug", [broken, broken_later])
async def test_a_bug_is_a_500_in_the_dialect_with_one_traceback(bug, headers, caplog):
    async with serving({"/acted": acting(bug)}) as served:
        peer = await served.peer()
        answer = await peer.ask("POST", "/acted", headers, b"{}")
        assert (answer.status, answer.whole) == (500, True)
        assert b"a bug" not in answer.body and b"Traceback" not in answer.body
        said = json.loads(answer.body)
        if headers:
            assert said["error"]["type"] == "api_error"
            assert said["request_id"] == answer.call_id
        else:
            assert said["error"]["code"] == "internal_error"
        assert served.errors.take() == [f"request {answer.call_id} failed"]
        assert caplog.text.count("Traceback") == 1 and "RuntimeError: a bug" in caplog.text
        assert (await peer.ask("GET", "/livez")).body == LIVE


@pytest.mark.parametrize("bug", [broken, broken_later])
async def test_a_bug_in_the_check_of_the_head(bug):
    async with serving({"/acted": acting(head_act=bug)}) as served:
        peer = await served.peer(post(bytes(100_000), {}, "/acted"))
        answer = await peer.answer()
        assert (answer.status, answer.headers["connection"]) == (500, "close")
        assert served.errors.take() == [f"request {answer.call_id} failed"]
        assert await peer.rest() == b"" and served.waiting_bodies == 0


async def test_a_bug_after_the_client_has_left():
    handler = held()
    async with serving({"/held": handler}) as served:
        peer = await served.peer(post(b"", {}, "/held"))
        await until(lambda: handler.seen and handler.seen[0].events)
        peer.leave()
        await until(lambda: not served.server.connections)
        handler.seen[0].go.set_exception(RuntimeError("a bug"))
        await turns()
        assert served.errors.take() == [f"request {handler.seen[0].call_id} failed"]


async def test_a_bug_in_taking_a_request_in_closes_the_connection():
    class Broken(Echo):
        def initialize(self, site):
            raise RuntimeError("a bug")

    async with serving({"/broken": Broken}) as served:
        peer = await served.peer()
        await peer.request("GET", "/broken")
        with pytest.raises((ConnectionResetError, EOFError)):
            await peer.fill()
        assert served.errors.take() == ["request parser failed"]
        assert (await served.ask("GET", "/livez")).status == 200
