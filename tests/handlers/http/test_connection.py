"""The client's connection as an HTTP/1.1 server, byte by byte, on real sockets."""

import asyncio
import gc
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
    BODY,
    BROKEN,
    CHUNK_EXTENSIONS_MAX_BYTES,
    END,
    HEAD,
    HEAD_MAX_BYTES,
    Request,
    RequestReader,
    head_fault,
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
    peer_of,
    post,
    serving,
    stands_still,
    turns,
    until,
)

GET = b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"
LIVE = b'{"live":true}'
ECHO = {"/echo": Echo}


# ---- one request after the other -----------------------------------------------------------------


async def test_a_connection_is_kept():
    async with peer_of(ECHO) as peer:
        for number in range(3):
            body = b"x" * number
            answer = await peer.ask("POST", f"/echo?number={number}", None, body)
            assert answer.status == 200 and "connection" not in answer.headers
            told, _, echoed = answer.body.partition(b"\n\n")
            assert told.splitlines()[:3] == [b"POST", b"/echo", b"?number=%d" % number]
            assert echoed == body
        assert peer.served.server.connections == 1


@pytest.mark.parametrize(("headers", "version"), [
    ({"Connection": "close"}, "1.1"),
    ({}, "1.0"),
    ({"Connection": "keep-alive"}, "1.0"),
])  # fmt: skip
@pytest.mark.parametrize("behind", [b"", post(b"2")])
async def test_the_end_of_a_connection_after_one_answer(headers, version, behind):
    async with peer_of(ECHO, post(b"1", headers, version=version) + behind) as peer:
        assert (await peer.last_answer()).body.endswith(b"\n\n1")


async def test_head_gets_no_body_and_keeps_the_connection():
    async with peer_of(None) as peer:
        answer = await peer.ask("HEAD", "/livez")
        assert (answer.status, answer.headers["content-length"]) == (200, str(len(LIVE)))
        answer = await peer.ask("HEAD", "/no/such/path")
        assert (answer.status, int(answer.headers["content-length"]) > 0) == (404, True)
        assert (await peer.ask("GET", "/livez")).body == LIVE
        assert peer.buffer == b""


async def test_blank_lines_before_a_request_are_skipped():
    async with peer_of(ECHO, b"\r\n\r\n" + GET) as peer:
        assert (await peer.answer()).body == LIVE
        await peer.send(post(b"ab") + b"\r\n" + GET)
        assert (await peer.answer()).body.endswith(b"\n\nab")
        assert (await peer.answer()).body == LIVE


@pytest.mark.parametrize(("target", "path", "query"), [
    (b"/echo", b"/echo", b""),
    (b"/echo?a=b?c", b"/echo", b"a=b?c"),
    (b"http://gateway.test/echo?a=b", b"/echo", b"a=b"),
])  # fmt: skip
async def test_forms_of_the_target(target, path, query):
    async with peer_of(ECHO, b"GET %b HTTP/1.1\r\nHost: x\r\n\r\n" % target) as peer:
        assert (await peer.answer()).body.splitlines()[1:3] == [path, b"?" + query]


@pytest.mark.parametrize("target", [b"http://gateway.test", b"*", b"/"])
async def test_targets_without_a_path_are_the_root(target):
    async with peer_of(None, b"OPTIONS %b HTTP/1.1\r\nHost: x\r\n\r\n" % target) as peer:
        answer = await peer.answer()
        assert (answer.status, answer.headers["allow"]) == (405, "GET, HEAD")
        assert await peer.is_silent()


def read(data, piece_bytes=1 << 20, fault_of=head_fault):
    """Return the pieces that a reader makes of `data`, up to the first that breaks the
    connection."""
    pieces = []

    def take(kind, value):
        fault = fault_of(value) if kind == HEAD else ""
        pieces.append((BROKEN, fault) if fault else (kind, value))

    reader = RequestReader(SimpleNamespace(take=take))
    for at in range(0, len(data), piece_bytes):
        reader.feed(data[at : at + piece_bytes])
        if pieces and pieces[-1][0] == BROKEN:
            break
    return pieces


def test_header_names_have_no_case_and_repeated_ones_are_joined():
    head = b"POST / HTTP/1.1\r\nX-A:  1 \r\nx-a: 2\r\nHost: caf\xe9\r\n"
    whole = head + b"Transfer-Encoding: chunked\r\n\r\n0\r\nX-A: late\r\n\r\n"
    pieces = read(whole * 2, fault_of=lambda request: "")
    assert pieces[1] == pieces[3] == (END, None)
    for _, request in (pieces[0], pieces[2]):
        assert request.headers == {"x-a": "1,2", "host": "café", "transfer-encoding": "chunked"}


# ---- split and joined ----------------------------------------------------------------------------


async def test_a_request_is_split_in_two_anywhere_and_comes_byte_by_byte():
    whole = post(b"a" + b"b" * 20, {"X-Long": "y" * 9}) + post(chunks(b"a", b"b" * 20), CHUNKED)
    async with peer_of(ECHO) as peer:
        for at in [*range(1, len(whole)), None]:
            pieces = [bytes([byte]) for byte in whole] if at is None else [whole[:at], whole[at:]]
            for piece in pieces:
                await peer.send(piece)
                await turns(6 if at else 2)
            for _ in range(2):
                answer = await peer.answer()
                assert (answer.status, answer.body[-22:]) == (200, b"\na" + b"b" * 20), at


async def test_chunks_may_have_extensions_and_trailers():
    """Trailers become part of no request; behind a proxy the next request is another client's."""
    evil = b'3;a=b;c="d e"\r\nabc\r\n0\r\nAuthorization: Bearer of-somebody\r\nX-Evil: 1\r\n\r\n'
    async with peer_of(ECHO, post(evil, CHUNKED) + post(b"next")) as peer:
        for body in (b"\n\nabc", b"\n\nnext"):
            answer = (await peer.answer()).body
            assert answer.endswith(body)
            assert b"authorization" not in answer and b"x-evil" not in answer


@pytest.mark.parametrize("host", [
    "x", "", "gateway.example", "gateway.example:8000", "gateway.example:", "127.0.0.1:80",
    "[::1]", "[::1]:8000", "[fe80::1%25eth0]:80", "my_gateway", "a-b.example", "localhost.",
    "b%C3%BC.example",
])  # fmt: skip
def test_forms_of_a_host(host):
    assert [kind for kind, _ in read(f"GET / HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())] == [
        HEAD,
        END,
    ]


def test_a_host_longer_than_any_name_is_refused_and_not_remembered():
    known = request_module._host_fault.cache_info().currsize
    host = b"h" * (request_module.HOST_MAX_CHARS + 1)
    assert read(b"GET /echo HTTP/1.1\r\nHost: %b\r\n\r\n" % host)[0][0] == BROKEN
    assert request_module._host_fault.cache_info().currsize == known


def extended(extension, count, body=b"x"):
    """Return a chunked body with the same extension in `count` of its chunks."""
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
def test_extensions_of_chunks_are_bounded_over_the_whole_body(
    extension, count, passes, piece_bytes
):
    pieces = read(post(extended(extension, count), CHUNKED), piece_bytes)
    kinds = [kind for kind, _ in pieces]
    if passes:
        assert (kinds[0], kinds[-1], kinds.count(END)) == (HEAD, END, 1)
        assert b"".join(value for kind, value in pieces if kind == BODY) == b"x" * count
    else:
        # A whole body may still be followed by its end, which the connection ignores.
        assert "chunk extensions" in pieces[kinds.index(BROKEN)][1]
        assert END not in kinds[: kinds.index(BROKEN)]


async def test_what_is_behind_a_chunked_body_is_no_extension_of_it():
    handler = acting(lambda handler, body: handler.respond(b"%d" % len(body)))
    chunked = post(extended(b";a=b", 100, b"abc"), CHUNKED, "/acted")
    plain = post(b"y" * 8000, {}, "/acted")
    async with peer_of({"/acted": handler}, *[chunked + plain + chunked] * 3) as peer:
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
    async with peer_of(None, line + host + _TE + b"\r\n" + long + b"0\r\n\r\n") as peer:
        answer = await peer.last_answer()
        assert answer.status == 400
        error_of(shape, answer.body, answer.call_id)


# ---- pipelining ----------------------------------------------------------------------------------


async def test_pipelined_requests_are_answered_in_order_one_at_a_time():
    running, most = 0, 0

    async def act(handler, body):
        nonlocal running, most
        running += 1
        most = max(most, running)
        await turns(10 if body == b"0" else 1)
        running -= 1
        handler.respond(body)

    requests = [post(b"%d" % n, {}, "/slow") for n in range(10)] + [GET]
    async with peer_of({"/slow": acting(act)}, b"".join(requests)) as peer:
        for number in range(10):
            assert (await peer.answer()).body == b"%d" % number
        assert (await peer.answer()).body == LIVE
        assert most == 1


@pytest.mark.parametrize("behind", [post(b"2", {}, "/held"), GET + GET, b"\r\n", b"no HTTP"])
async def test_nothing_runs_behind_a_request_that_closes_the_connection(behind):
    handler = held()
    last = post(b"1", {"Connection": "close"}, "/held")
    async with peer_of({"/held": handler, **ECHO}, last + behind) as peer:
        await until(lambda: handler.seen and handler.seen[0].events)
        handler.seen[0].go.set_result(None)
        assert (await peer.last_answer()).body == b"held"
        assert len(handler.seen) == 1


@pytest.mark.parametrize("slow_head", [False, True])
async def test_garbage_behind_a_good_request_does_not_spoil_its_answer(slow_head):
    wait = (lambda handler: turns(20)) if slow_head else None
    handler = acting(lambda handler, body: handler.respond(body), wait)
    sent = post(b"good", {}, "/acted") * 2 + b"\x16\x03garbage\r\n\r\n"
    async with peer_of({"/acted": handler}, sent) as peer:
        await peer.send(GET)  # is not read any more
        for _ in range(2):
            answer = await peer.answer()
            assert (answer.status, answer.body) == (200, b"good")
        await peer.refusal()


def requests_in_memory():
    gc.collect()
    return sum(isinstance(one, Request) for one in gc.get_objects())


async def test_requests_by_the_thousand_ahead_of_their_answers():
    """They are served in order, and only few are parsed ahead."""
    handler, sent = held(), 3_000
    async with peer_of({"/held": handler}, post(b"", {}, "/held")) as peer:
        await until(lambda: handler.seen and handler.seen[0].events)
        sending = asyncio.create_task(peer.send(GET * sent))
        most = await stands_still(requests_in_memory)
        assert 1 < most <= PARSED_AT_ONCE_BYTES / len(GET) + 100 < sent
        handler.seen[0].go.set_result(None)
        assert (await peer.answer()).body == b"held"
        for _ in range(sent):
            assert (await peer.answer()).body == LIVE
        await sending
        assert await peer.is_silent()


async def test_reading_ahead_is_bounded():
    """What follows a running request stays in the client's buffers."""
    handler, body = held(), bytes(63 << 18)
    assert len(body) > 100 * QUEUED_MAX_BYTES
    routes = {"/held": handler, **ECHO}
    async with peer_of(routes, post(b"", {}, "/held"), max_body_bytes=1 << 30) as peer:
        await until(lambda: handler.seen and handler.seen[0].events)
        sending = asyncio.create_task(peer.send(post(body)))
        (connection,) = peer.served.server._connections
        await until(lambda: not connection._reading)
        await turns(50)
        assert not sending.done()
        assert connection._queued_bytes < 2 * QUEUED_MAX_BYTES
        handler.seen[0].go.set_result(None)
        assert (await peer.answer()).body == b"held"
        assert (await peer.answer()).body.partition(b"\n\n")[2] == body
        await sending


# ---- invalid HTTP --------------------------------------------------------------------------------

_TE = b"Transfer-Encoding: chunked\r\n"
_END = b"3\r\nabc\r\n0\r\n\r\n"
_POST = b"POST /echo HTTP/1.1\r\nHost: x\r\n%b\r\n\r\n"
_GET = b"GET /echo HTTP/1.1\r\n%b\r\n\r\n"
MALFORMED = [
    *(_POST % fields + _END for fields in (
        b"Content-Length: 3\r\n" + _TE[:-2],
        _TE + b"Content-Length: 3",
        b"Content-Length: 3\r\nContent-Length: 3",
        b"Content-Length: 3\r\nContent-Length: 4",
        b"Content-Length: 3, 3",
        b"Content-Length: +3",
        b"Content-Length: -3",
        b"Content-Length: 0x3",
        b"Content-Length: ",
        b"Content-Length: 99999999999999999999",
        b"Content-Length:\r\n 3",  # folded
        b"X-A: 1\r\n 2",
        b"Transfer-Encoding: gzip, chunked",
        b"Transfer-Encoding: chunked, gzip",
        b"Transfer-Encoding: gzip\r\n" + _TE[:-2],
        b"Transfer-Encoding: identity\r\nContent-Length: 3",
        b"Transfer-Encoding: chunked, chunked",
        b"Transfer-Encoding: xchunked",
        b"Transfer-Encoding: \x0bchunked",
    )),
    *(b"POST /echo HTTP/1.0\r\n" + fields + _TE + b"\r\n" + _END for fields in (
        b"", b"Host: x\r\n", b"Connection: keep-alive\r\n",
    )),
    *(line + b"\r\nHost: x\r\n\r\n" for line in (
        b"GET /ec\x00ho HTTP/1.1",
        b"GET /ech\xf6 HTTP/1.1",
        b"GET echo HTTP/1.1",
        b"GET\t/echo HTTP/1.1",
        b"get /echo HTTP/1.1",
        b"FOO /echo HTTP/1.1",
        b"GET /echo HTTP/1.2",
        b"GET /echo HTTP/11",
        b"GET /echo HTTP/2.0",
        b"GET /echo HTTP/0.9",
        b"GET /echo",
        b"GET /echo FTP/1.1",
    )),
    b"GET /echo HTTP/1.1\nHost: x\r\n\r\n",
    b"GET /echo HTTP/1.1\r\nHost: x\n\r\n",
    b"GET /echo HTTP/1.1\r\nHost: x\r\n\n",
    b"GET /echo HTTP/1.0\r\nHost: a b\r\n\r\n",
    *(_GET % fields for fields in (
        b"Host: x\rX-A: 1",
        b"Host: x\x00y",
        b"Ho\x00st: x",
        b"Host : x",
        b"Host: x\r\nHost",
        b"Host: x\r\n: x",
        b"X-A: 1",
        b"Host: x\r\nHost: y",
        b"Host: x, y",
    )),
    *(_GET % (b"Host: " + host) for host in (
        b"a b", b"x y:80", b"a\tb", b"a\x01b", b"a\x7fb", b"user@x", b"user:secret@x:80", b"x/y",
        b"x?y", b"x#y", b"http://x", b"x:80:80", b"x:port", b"x:123456", b"[::1", b"::1", b"[x y]",
        b'"x"', b"<x>", b"x\\y", b"\xe4.example",
    )),
    bytes.fromhex("16030100c6010000c2030379") + bytes(200),  # TLS
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes.fromhex("000012040000000000"),
    b"SSH-2.0-OpenSSH_9.9\r\n",
    b"PROXY TCP4 10.0.0.1 10.0.0.2 5000 8000\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\n",
    bytes(100),
    b'{"jsonrpc":"2.0"}\r\n\r\n',
]  # fmt: skip
BAD_CHUNKS = [
    b"xyz\r\nabc\r\n0\r\n\r\n",
    b"0x3\r\nabc\r\n0\r\n\r\n",
    b"-3\r\nabc\r\n0\r\n\r\n",
    b"fffffffffffffffff\r\nabc\r\n0\r\n\r\n",
    b"3\nabc\n0\n\n",
    b"3\r\nabcd\r\n0\r\n\r\n",
    b"3\r\nab\r\n0\r\n\r\n",
    b"3\x00\r\nabc\r\n0\r\n\r\n",
    b"3\r\nabc\r\n0\r\nX Y\r\n\r\n",
]


@pytest.mark.parametrize("piece_bytes", [1, 1 << 20])
@pytest.mark.parametrize("data", [*MALFORMED, *(post(chunk, CHUNKED) for chunk in BAD_CHUNKS)])
def test_what_is_no_http_is_refused(data, piece_bytes):
    pieces = read(data, piece_bytes)
    kinds = [kind for kind, _ in pieces]
    before = kinds[: kinds.index(BROKEN)]
    assert END not in before and pieces[len(before)][1].endswith(".")
    assert (HEAD in before) is (data not in MALFORMED)


@pytest.mark.parametrize("piece_bytes", [1, 1 << 20])
@pytest.mark.parametrize("data", [MALFORMED[0], MALFORMED[12], _GET % b"Host: a b", bytes(100)])
async def test_what_is_refused_ends_the_connection(data, piece_bytes):
    handler = acting()
    async with peer_of({"/echo": handler}) as peer:
        for at in range(0, len(data), piece_bytes):
            # Continues after the refusal, without a reset.
            await peer.send(data[at : at + piece_bytes])
            await turns(1)
        await peer.refusal()
        await gone(peer)
        assert not any(one.events for one in handler.seen)


@pytest.mark.parametrize("pause", [0, 6])
@pytest.mark.parametrize("data", [BAD_CHUNKS[0], BAD_CHUNKS[5], BAD_CHUNKS[-1]])
async def test_a_body_that_breaks_off_into_nonsense(data, pause):
    handler = acting()
    async with peer_of({"/echo": handler}, post(b"", CHUNKED)) as peer:
        await turns(pause)
        await peer.send(data)
        await peer.refusal()
        # The handler no longer waits, and was notified once.
        assert handler.seen[0].events == ["closed", "left"]
        assert peer.served.waiting_bodies == 0
        await gone(peer)
        assert handler.seen[0].events == ["closed", "left"]


async def test_nonsense_in_the_body_while_the_head_is_still_checked():
    gate = asyncio.get_running_loop().create_future()
    handler = acting(head_act=lambda handler: gate)
    async with peer_of({"/echo": handler}, post(b"zz\r\n", CHUNKED)) as peer:
        assert await peer.is_silent()
        gate.set_result(None)
        await peer.refusal()
        assert handler.seen[0].events == ["closed", "left"] and peer.served.waiting_bodies == 0


async def test_an_answer_that_has_begun_is_cut_when_the_request_turns_into_nonsense():
    def begin(handler):
        handler.connection.start(200, (), b"begun")

    async with peer_of({"/echo": acting(head_act=begin)}, post(b"", CHUNKED)) as peer:
        assert (await peer.head()).status == 200
        await peer.send(b"nonsense")
        with pytest.raises((ConnectionResetError, EOFError)):
            while await peer.chunk():
                pass


EXPECT = {"Expect": "100-continue", "Content-Length": "4"}


@pytest.mark.parametrize("method", ["PROPFIND", "TRACE", "PURGE", "SOURCE", "MKCOL", "SUBSCRIBE"])
async def test_other_methods_of_http(method):
    async with peer_of(None, f"{method} /livez HTTP/1.1\r\nHost: x\r\n\r\n".encode()) as peer:
        answer = await peer.answer()
        assert (answer.status, answer.json["error"]["code"]) == (405, "method_not_allowed")
        assert answer.headers["allow"] == "GET, HEAD"
        assert (await peer.ask("GET", "/livez")).body == LIVE


async def test_connect_and_what_is_refused_instead_of_continue():
    async with peer_of(None, b"CONNECT example.com:443 HTTP/1.1\r\nHost: x\r\n\r\n") as peer:
        assert (await peer.last_answer()).status == 405
    async with peer_of(None, encode_head("POST", "/no/such/path", EXPECT)) as peer:
        assert (await peer.last_answer()).status == 404


@pytest.mark.parametrize("behind", [b"", b"\x81\x05hello", GET])
async def test_nobody_speaks_another_protocol_here(behind):
    head = encode_head("GET", "/echo", {"Connection": "Upgrade", "Upgrade": "websocket"})
    async with peer_of(ECHO, head + behind) as peer:
        assert (await peer.last_answer()).status == 200


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("split", [False, True])
async def test_a_body_is_read_though_another_protocol_is_asked_for(chunked, split):
    """Java's HttpClient offers h2c with every request."""
    headers = {"Connection": "Upgrade, HTTP2-Settings", "Upgrade": "h2c", "HTTP2-Settings": "AAA"}
    body = b"x" * 100_000
    whole = post(chunks(body), headers | CHUNKED) if chunked else post(body, headers)
    at = whole.index(b"\r\n\r\n") + 4 if split else len(whole)
    async with peer_of(ECHO, whole[:at], whole[at:]) as peer:
        told, _, echoed = (await peer.last_answer()).body.partition(b"\n\n")
        assert echoed == body and b"http2-settings" in told


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
    handler, whole = acting(), LARGE_HEADS[name]
    async with peer_of({"/echo": handler}) as peer:
        for at in range(0, len(whole), piece_bytes):
            await peer.send(whole[at : at + piece_bytes])
            await turns(2)
        assert "64 KiB" in await peer.refusal()
        assert not handler.seen


@pytest.mark.parametrize("behind", [b"", GET])
async def test_a_large_head_in_the_segment_of_another_request(behind):
    async with peer_of(ECHO, post(b"first") + LARGE_HEADS["one header"] + behind) as peer:
        assert (await peer.answer()).body.endswith(b"first")
        assert "64 KiB" in await peer.refusal()


async def test_a_head_just_below_the_limit():
    async with peer_of(ECHO) as peer:
        answer = await peer.ask("GET", "/echo", {"X-Large": "y" * (HEAD_MAX_BYTES - 100)})
        assert answer.status == 200


@pytest.mark.parametrize(("start", "endless"), [
    (b"GET /", b"y" * 1_000),
    (b"GET / HTTP/1.1\r\nX-A: ", b"y" * 1_000),
    (b"GET / HTTP/1.1\r\n", b"y" * 1_000),
    (b"GET / HTTP/1.1\r\n", b"X-A: 1\r\n" * 125),
    (b"", b"\r\n" * 500),
    (post(b"", CHUNKED) + b"0\r\n", b"X-A: 1\r\n" * 125),
    (post(b"", CHUNKED) + b"3;", b"y" * 1_000),
])  # fmt: skip
async def test_what_never_ends_is_not_read_for_ever(start, endless):
    async with peer_of(ECHO, start) as peer:
        sent = 0
        while await peer.is_silent(0):
            await peer.send(endless)
            sent += len(endless)
            await turns(3)
            assert sent < 2 * HEAD_MAX_BYTES
        await peer.refusal()


# ---- Expect: 100-continue ------------------------------------------------------------------------


@pytest.mark.parametrize("slow_head", [False, True])
async def test_continue_is_sent_once_and_then_the_answer(slow_head):
    wait = (lambda handler: turns(20)) if slow_head else None
    handler = acting(lambda handler, body: handler.respond(body), wait)
    async with peer_of({"/acted": handler}, encode_head("POST", "/acted", EXPECT)) as peer:
        interim = await peer.head()
        assert (interim.status, interim.headers) == (100, {})
        assert await peer.is_silent()
        await peer.send(b"bo")
        assert await peer.is_silent()
        await peer.send(b"dy")
        answer = await peer.answer()
        assert (answer.status, answer.body) == (200, b"body")
        assert (await peer.ask("POST", "/acted", None, b"next")).body == b"next"


@pytest.mark.parametrize(("headers", "version", "body", "continues"), [
    (EXPECT, "1.1", b"body", True),  # does not wait for the 100
    ({"Expect": "100-continue"}, "1.1", b"", False),
    (EXPECT, "1.0", b"body", False),
    ({"Expect": "tea", "Content-Length": "4"}, "1.1", b"body", False),
])  # fmt: skip
async def test_continue_for_who_does_not_wait_or_cannot_expect_it(
    headers, version, body, continues
):
    sent = encode_head("POST", "/echo", headers, None, version) + body
    async with peer_of(ECHO, sent) as peer:
        if continues:
            assert (await peer.answer()).status == 100
        answer = await peer.answer()
        assert (answer.status, answer.body.endswith(b"\n\n" + body)) == (200, True)


# ---- streams and back-pressure -------------------------------------------------------------------


def streaming(run):
    """Return a handler class whose answer is made by `await run(connection)`, in a task of its
    own."""

    async def act(handler, body):
        await asyncio.create_task(run(handler.connection))

    return acting(act)


async def test_a_stream_is_chunked_and_empty_pieces_are_no_end_of_it():
    async def run(connection):
        assert not connection.head_sent
        assert connection.start(200, (("Content-Type", "text/event-stream"),), b"one")
        assert connection.head_sent
        assert connection.send(b"") and connection.send(b"two")
        connection.finish(b"three")

    async def run_empty(connection):
        connection.start(200, (), b"")
        connection.send(b"body")
        connection.finish()

    routes = {"/stream": streaming(run), "/empty": streaming(run_empty)}
    async with peer_of(routes) as peer:
        assert (await peer.ask("GET", "/empty")).pieces == [b"body"]
        for _ in range(2):
            answer = await peer.ask("GET", "/stream")
            assert answer.pieces == [b"one", b"two", b"three"] and answer.whole
            assert answer.headers["content-type"] == "text/event-stream"
            assert "content-length" not in answer.headers and "connection" not in answer.headers
        answer = await peer.ask("GET", "/stream", version="1.0")
        assert answer.body == b"onetwothree"
        assert answer.headers["connection"] == "close"
        assert not {"transfer-encoding", "content-length"} & answer.headers.keys()


BUFFER_BYTES = 65536
KERNEL_BYTES = 1 << 20  # more than both kernels' buffers hold, with the small buffers below


def narrow():
    """Return options of a server whose connections have small buffers, in the kernel as well."""
    return {"listener": bound(send_bytes=16384), "stream_buffer_bytes": BUFFER_BYTES}


@pytest.mark.parametrize("version", ["1.0", "1.1"])
async def test_a_client_that_does_not_read_holds_the_stream_up(version):
    events = [b"data: %d\n\n" % n * 200 for n in range(2_500)]
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

    routes = {"/stream": streaming(run)}
    async with peer_of(routes, receive_bytes=4096, **narrow()) as peer:
        await peer.request("GET", "/stream", version=version)
        await until(lambda: held_up)
        await stands_still(lambda: len(held_up))
        assert len(held_up) == 1 and BUFFER_BYTES <= held_up[0] <= BUFFER_BYTES + KERNEL_BYTES
        answer = await peer.answer()
        assert answer.body == b"".join(events)
        assert answer.whole is (version == "1.1")
        assert len(held_up) > 10
        assert max(held_up) <= BUFFER_BYTES + KERNEL_BYTES


async def test_start_says_that_the_buffer_is_full_and_nobody_is_called_after_the_end():
    rooms, unsent, called = [], [], []

    async def run(connection):
        rooms.append(connection.start(200, (), bytes(3 << 18)))
        rooms.append(connection.send(b"more"))
        unsent.append(connection.unsent_bytes)

        def finish():
            connection.on_drained = lambda: called.append("drained")
            connection.finish(b"end")

        connection.on_drained = finish

    async with peer_of({"/stream": streaming(run)}, **narrow()) as peer:
        assert (await peer.ask("GET", "/stream")).body == bytes(3 << 18) + b"moreend"
        assert rooms == [False, False]
        assert BUFFER_BYTES < unsent[0] < 3 << 18
        assert (await peer.ask("GET", "/livez")).body == LIVE
        assert not called


async def test_unread_answers_do_not_pile_up():
    """A client sends request after request and reads no answer."""
    size, count = 20_000, 300
    answered = []

    def act(handler, body):
        answered.append(1)
        handler.respond(b"x" * size)

    async def send(peer):
        for _ in range(count):
            await peer.request("GET", "/large")
            await turns(3)

    async with peer_of({"/large": acting(act)}, receive_bytes=4096, **narrow()) as peer:
        sending = asyncio.create_task(send(peer))
        await until(lambda: len(answered) > 2)
        most = await stands_still(lambda: len(answered))
        assert most * size < BUFFER_BYTES + KERNEL_BYTES + size < count * size
        for _ in range(count):
            assert len((await peer.answer()).body) == size
        await sending


# ---- clients that disconnect ---------------------------------------------------------------------

BOTH_WAYS = pytest.mark.parametrize("reset", [False, True])


async def gone(peer, reset=False):
    """Wait until the server has noticed that the peer has closed."""
    peer.leave(reset)
    await until(lambda: not peer.served.server.connections)


_HEAD = encode_head("POST", "/acted", {"Content-Length": "4"})


@BOTH_WAYS
@pytest.mark.parametrize(("sent", "events"), [
    (b"", None),
    (b"POST /acted HTTP/1.1\r\nX-", None),
    (b"\r\n", None),
    (_HEAD, ["closed", "left"]),
    (_HEAD + b"ha", ["closed", "left"]),
    (_HEAD + b"haha", ["complete"]),
    (encode_head("POST", "/acted", {"Content-Length": "2000"}), ["refused", "closed"]),
])  # fmt: skip
async def test_leaving_before_the_head_before_the_end_and_after_the_answer(sent, events, reset):
    handler = acting(head_act=lambda handler: handler.check_size())
    async with peer_of({"/acted": handler}, sent, max_body_bytes=1024) as peer:
        await until(lambda: handler.seen if events else peer.served.server.connections)
        if events and "left" not in events:
            assert (await peer.answer()).status == (200 if events == ["complete"] else 413)
        await gone(peer, reset)
        assert [one.events for one in handler.seen] == ([events] if events else [])
        assert peer.served.waiting_bodies == 0


@BOTH_WAYS
@pytest.mark.parametrize("headers", [{}, EXPECT])
async def test_leaving_while_the_head_is_checked(headers, reset):
    gate = asyncio.get_running_loop().create_future()
    handler = acting(head_act=lambda handler: gate)
    async with peer_of({"/acted": handler}, post(b"body", headers, "/acted")) as peer:
        await until(lambda: handler.seen)
        await gone(peer, reset)
        gate.set_result(None)
        await turns()
        assert handler.seen[0].events == ["closed", "left"]
        assert peer.served.waiting_bodies == 0


@BOTH_WAYS
async def test_leaving_while_the_answer_is_made(reset):
    """Pipelined requests after it are not served either."""
    handler = held()
    async with peer_of({"/held": handler}, post(b"", {}, "/held") * 5) as peer:
        await until(lambda: handler.seen and handler.seen[0].events)
        await gone(peer, reset)
        assert handler.seen[0].events == ["complete", "closed"]
        handler.seen[0].go.set_result(None)
        await turns()
        assert [one.events for one in handler.seen] == [["complete", "closed"]]


@BOTH_WAYS
async def test_leaving_in_the_middle_of_a_stream(reset):
    ended = []

    async def run(connection):
        connection.on_drained = lambda: ended.append("drained")
        connection.start(200, (), b"begun")
        await until(lambda: connection.closed)
        # A handler that has not noticed yet may go on.
        assert connection.start(200, (), b"") and connection.send(b"more")
        connection.finish(b"end")
        connection.answer(200, (), b"")
        connection.drop()
        connection.close()
        assert connection.unsent_bytes == 0
        ended.append("ended")

    handler = streaming(run)
    async with peer_of({"/stream": handler}) as peer:
        await peer.request("GET", "/stream")
        assert await peer.head() and await peer.chunk() == b"begun"
        peer.leave(reset)
        await until(lambda: ended)
        assert ended == ["ended"] and handler.seen[0].events == ["complete", "closed"]


@BOTH_WAYS
@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("turns_later", range(12))
async def test_leaving_in_any_turn_of_the_loop(turns_later, method, reset):
    """Client and server share a process here, so that every turn can be tested; nothing may be
    logged."""
    handler = acting()
    async with peer_of({"/acted": handler}) as peer:
        await until(lambda: peer.served.server.connections)
        await peer.request(method, "/acted", None, b"{}" if method == "POST" else None)
        await turns(turns_later)
        await gone(peer, reset)
        await turns()
        for one in handler.seen:
            assert one.events.count("closed") <= 1
            assert ("complete" in one.events) is not ("left" in one.events)


async def test_leaving_in_the_turn_that_ends_the_body():
    """The handler has the body before the connection is known to be closed."""
    handler = held()
    head = encode_head("POST", "/acted", {"Content-Length": "1"})
    async with peer_of({"/acted": handler}, head) as peer:
        await until(lambda: peer.served.waiting_bodies)
        connection = handler.seen[0].connection
        connection.data_received(b"x")
        connection.connection_lost(None)
        await turns()
        assert handler.seen[0].events == ["complete", "closed"]
        handler.seen[0].go.set_result(None)
        peer.leave()


# ---- ends of answers -----------------------------------------------------------------------------


@pytest.mark.parametrize(("version", "end"), [("1.0", ConnectionResetError), ("1.1", EOFError)])
async def test_drop_never_lets_a_stream_look_whole(version, end):
    async def run(connection):
        connection.start(200, (), b"begun")
        connection.send(b"more")
        await asyncio.sleep(0.01)
        connection.drop()

    handler = streaming(run)
    async with peer_of({"/stream": handler}) as peer:
        await peer.request("GET", "/stream", version=version)
        assert (await peer.head()).status == 200
        with pytest.raises(end):
            while True:
                await peer.fill()
        assert peer.buffer in (b"5\r\nbegun\r\n4\r\nmore\r\n", b"begunmore")
        assert handler.seen[0].events == ["complete"]


async def test_a_client_still_sending_can_read_an_early_answer():
    """No reset: further bytes are discarded for a while, with the server's side closed."""
    head = encode_head("POST", "/livez", {"Content-Length": "900000"})
    async with peer_of(ECHO, head, max_body_bytes=1024) as peer:
        for _ in range(9):
            await peer.send(bytes(100_000))
            await turns()
        assert (await peer.last_answer()).status == 405
        assert peer.served.server.connections == 1
        await gone(peer)


@pytest.mark.parametrize(("size", "chunked"), [
    (12_000_000, False), (12_000_000, True), (LONG_LINGER_MAX_BYTES, False),
])  # fmt: skip
async def test_a_client_that_reads_only_when_it_has_sent_all_sees_that_it_was_too_much(
    size, chunked
):
    handler = acting(head_act=lambda handler: handler.check_size())
    async with peer_of({"/acted": handler}, max_body_bytes=1 << 20) as peer:
        if chunked:
            data = post(b"%x\r\n" % size, CHUNKED, "/acted")
        else:
            data = encode_head("POST", "/acted", {"Content-Length": str(size)})
        await peer.send(data + bytes(size - len(data)))
        answer = await peer.last_answer()
        assert answer.status == 413 and b"larger than 1 MiB" in answer.body
        await gone(peer)


@pytest.mark.parametrize(("sent", "most_bytes"), [
    (encode_head("POST", "/livez", {"Content-Length": str(1 << 30)}), LONG_LINGER_MAX_BYTES),
    (b"nonsense\r\n", LINGER_MAX_BYTES),
])  # fmt: skip
async def test_a_client_that_sends_on_and_on_is_closed(sent, most_bytes):
    async with peer_of(None, sent, max_body_bytes=1024) as peer:
        assert (await peer.answer()).status in (400, 405)
        sent = 0
        with pytest.raises(ConnectionError):
            while sent < 2 * most_bytes + (8 << 20):
                await peer.send(bytes(65536))
                sent += 65536
                await turns(2)
        assert most_bytes <= sent < most_bytes + (8 << 20)
        assert peer.served.server.connections == 0


async def test_a_status_that_python_does_not_know_and_values_that_would_begin_lines():
    async def run(connection):
        connection.answer(529, (("X-Said", "a\r\nX-Evil: 1\nb\rc"), ("X-Word", "Zürich ✓")), b"")

    async with serving({"/acted": streaming(run)}) as served:
        answer = await served.ask("GET", "/acted")
        assert answer.head.startswith(b"HTTP/1.1 529 Overloaded\r\n")
        assert answer.headers["x-said"] == "a X-Evil: 1 b c" and "x-evil" not in answer.headers
        assert answer.headers["x-word"] == "Zürich ?"


# ---- bugs of handlers ----------------------------------------------------------------------------


async def broken_later(handler, body=b""):
    await asyncio.sleep(0)
    raise RuntimeError("a bug")


def broken(handler, body=b""):
    raise RuntimeError("a bug")


@pytest.mark.parametrize("headers", [{}, VERSION])
@pytest.mark.parametrize("bug", [broken, broken_later])
async def test_a_bug_is_a_500_in_the_dialect_with_one_traceback(bug, headers, caplog):
    async with peer_of({"/acted": acting(bug)}) as peer:
        answer = await peer.ask("POST", "/acted", headers, b"{}")
        assert (answer.status, answer.whole) == (500, True)
        assert b"a bug" not in answer.body and b"Traceback" not in answer.body
        shape = "messages" if headers else "chat_completions"
        kind, code, _ = error_of(shape, answer.body, answer.call_id)
        assert kind == "api_error" if headers else code == "internal_error"
        assert peer.served.errors.take() == [f"request {answer.call_id} failed"]
        assert caplog.text.count("Traceback") == 1 and "RuntimeError: a bug" in caplog.text
        assert (await peer.ask("GET", "/livez")).body == LIVE


@pytest.mark.parametrize("bug", [broken, broken_later])
async def test_a_bug_in_the_check_of_the_head(bug):
    routes = {"/acted": acting(head_act=bug)}
    async with peer_of(routes, post(bytes(100_000), {}, "/acted")) as peer:
        answer = await peer.last_answer()
        assert answer.status == 500
        assert peer.served.errors.take() == [f"request {answer.call_id} failed"]
        assert peer.served.waiting_bodies == 0


async def test_a_bug_after_the_client_has_left():
    handler = held()
    async with peer_of({"/held": handler}, post(b"", {}, "/held")) as peer:
        await until(lambda: handler.seen and handler.seen[0].events)
        await gone(peer)
        handler.seen[0].go.set_exception(RuntimeError("a bug"))
        await turns()
        assert peer.served.errors.take() == [f"request {handler.seen[0].call_id} failed"]


async def test_a_bug_in_taking_a_request_in_closes_the_connection():
    class Broken(Echo):
        def initialize(self, site):
            raise RuntimeError("a bug")

    async with peer_of({"/broken": Broken}) as peer:
        await peer.request("GET", "/broken")
        with pytest.raises((ConnectionResetError, EOFError)):
            await peer.fill()
        assert peer.served.errors.take() == ["request parser failed"]
        assert (await peer.served.ask("GET", "/livez")).status == 200
