"""The pure part of the upstream client."""

import gzip
import zlib

import pytest

from handlers.relay.upstream import request


def test_header_lines():
    assert request.encode_header_lines(["A: b", "C: \xe9"]) == [b"A: b", b"C: \xe9"]


@pytest.mark.parametrize("lines", [["A: b\nC: d"], ["A: b\r"], ["A: \0"], ["A: b", "x\n"], []])
def test_header_lines_that_break_out(lines):
    with pytest.raises(ValueError):
        request.encode_header_lines(lines)


@pytest.mark.parametrize(("raw", "complete", "status"), [
    (b"", False, 0),
    (b"HTTP/1.1 200 OK\r\nA: b\r\n", False, 0),
    (b"HTTP/1.1 100 Continue\r\n\r\n", False, 0),
    (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nA: b\r\n", False, 0),
    (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 404 No\r\n\r\n", True, 404),
    (b"HTTP/1.0 200\r\n\r\n", True, 200),
    (b"HTTP/1.1 503 No\n\n", True, 503),
    (b"HTTP/1.1 200 OK\r\n\r\nTrailer: 999\r\n\r\n", True, 200),
    (b"nonsense\r\n\r\n", False, 0),
])  # fmt: skip
def test_answer_head(raw, complete, status):
    head = request.AnswerHead(bytearray(raw))
    assert (head.complete, head.status) == (complete, status)


def test_fields_of_an_answer_head():
    head = request.AnswerHead(
        b"HTTP/1.1 103 Early\r\nA: early\r\n\r\n"
        b"HTTP/1.1 200 Content-Type: no\r\ncontent-type:\tText/X \r\nX-A: 1\r\nA: 2\r\nA: 3\r\n"
        b"Empty:\r\nLast: caf\xe9\r\n\r\n"
    )
    assert head.get("Content-Type") == "Text/X"
    assert head.get("a") == "2"
    assert head.get("X-A") == "1"
    assert head.get("empty") == ""
    assert head.get("LAST") == "caf\xe9"
    assert head.get("Missing") is None
    assert head.get("as") is None


def pieces(unpacker):
    while unpacker.more:
        yield unpacker.piece()


@pytest.mark.parametrize("step", [1, 7, 1000, 10**9])
def test_unpacker_takes_any_split(step):
    data = bytes(range(256)) * 2000
    packed = gzip.compress(data)
    unpacker = request.Unpacker("gzip")
    parts = []
    for begin in range(0, len(packed), step):
        unpacker.feed(packed[begin : begin + step])
        parts.extend(pieces(unpacker))
    unpacker.close()
    assert b"".join(parts) == data
    assert max(map(len, parts)) <= request.UNPACKED_PIECE_BYTES


def test_unpacker_may_be_left_at_any_piece():
    data, packed = bytes(1 << 20), zlib.compress(bytes(1 << 20))
    unpacker = request.Unpacker("deflate")
    unpacker.feed(packed[:-9])
    parts = [unpacker.piece()]
    unpacker.feed(packed[-9:])
    parts += pieces(unpacker)
    unpacker.close()
    assert b"".join(parts) == data
    assert b"".join(unpacker.whole([packed[:50], packed[50:]])) == data
    with pytest.raises(request.UpstreamError, match="too early"):
        list(unpacker.whole([packed[:50]]))


def test_unpacker_tells_the_two_deflates_apart():
    machine = zlib.compressobj(wbits=-15)
    for packed in (zlib.compress(b"text" * 9), machine.compress(b"text" * 9) + machine.flush()):
        unpacker = request.Unpacker("deflate")
        unpacker.feed(b"")
        for byte in packed:
            unpacker.feed(bytes([byte]))
        assert b"".join(pieces(unpacker)) == b"text" * 9
        unpacker.close()


def test_nothing_packed_is_nothing():
    unpacker = request.Unpacker("gzip")
    unpacker.feed(b"")
    assert not unpacker.more
    unpacker.close()


def test_unpacker_is_chosen_by_the_head():
    def chosen(line):
        return request.unpacker_for(request.AnswerHead(b"HTTP/1.1 200 OK\r\n" + line + b"\r\n"))

    assert chosen(b"") is None
    assert chosen(b"Content-Encoding: Identity\r\n") is None
    assert chosen(b"Content-Encoding: GZIP\r\n") is not None
    with pytest.raises(request.UpstreamError) as caught:
        chosen(b"Content-Encoding: zstd\r\n")
    assert caught.value.kind == "protocol"
    assert "zstd" in str(caught.value)


PUBLIC = [
    "93.184.216.34", "2606:2800:220:1::1", "::ffff:93.184.216.34", "64:ff9b::8.8.8.8",
    "2002:808:808::1", "192.88.98.255", "192.88.100.0",
]  # fmt: skip
NOT_PUBLIC = [
    "127.0.0.1", "10.1.2.3", "192.168.0.9", "172.16.0.1", "169.254.169.254", "100.64.0.1",
    "0.0.0.0", "224.0.0.1", "240.0.0.1", "255.255.255.255", "100.100.100.200", "168.63.129.16",
    "192.0.0.192", "192.88.99.1", "192.88.99.255", "::1", "fe80::1%eth0", "fd00::1",
    "fd00:ec2::254", "fec0::1", "ff0e::1", "::ffff:127.0.0.1", "::ffff:169.254.169.254",
    "::ffff:0:169.254.169.254", "::169.254.169.254", "64:ff9b::169.254.169.254",
    "64:ff9b:1::10.0.0.1", "2002:a9fe:a9fe::1", "2001:0:4136:e378:8000:63bf:3fff:fdd2",
]  # fmt: skip


@pytest.mark.parametrize("address", [*PUBLIC, *NOT_PUBLIC])
def test_only_addresses_of_the_internet_are_public(address):
    assert request.is_public(address) is (address in PUBLIC)


@pytest.mark.parametrize("host", [
    "93.184.216.34", "api.example", "api.example.", "93.184.216.34.", "127.0.0.1", "127.0.0.1.",
    "127.1.", "0x7f000001.", "192.88.99.1.", "[::1]",
])  # fmt: skip
def test_an_address_in_a_url_is_one_in_every_spelling(host):
    public = host.startswith(("93.", "api."))
    assert request.leads_to_public(f"https://{host}/v1") is public
    assert request.leads_to_public(f"https://{host}:8443") is public
