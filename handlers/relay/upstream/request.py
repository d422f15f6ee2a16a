"""The pure part of the upstream client: requests, errors, readers of answers.

Belongs here: the request and error types of the seam, the body that libcurl reads, safe header
lines, the reader of a raw answer head, the bounded unpacker of compressed answers. Does not belong
here: sockets, the loop, pycurl. Other folders import the types from client.py.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from io import BytesIO
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from socket import inet_aton, inet_ntoa
from typing import Literal
from urllib.parse import urlsplit

from msgspec import Struct

from handlers.relay.upstream.spool import SpooledBody, SpooledSource
from store.catalog.catalog import Route

UpstreamErrorKind = Literal[
    "connect",
    "tls",
    "ca_file",
    "timeout_connect",
    "timeout_first_byte",
    "timeout_idle",
    "reset_before_head",
    "truncated",
    "too_large",
    "protocol",
]

UNPACKED_PIECE_BYTES = 65_536

# zlib's window arguments: 31 takes only gzip, 15 only zlib, -15 raw deflate.
_WINDOW_BITS = {"gzip": 31, "x-gzip": 31, "deflate": 15}
_RAW_DEFLATE_BITS = -15
_ZLIB_METHOD_DEFLATE = 8
_CR = 13
_SEEK_DONE, _SEEK_FAILED = 0, 1  # libcurl's CURL_SEEKFUNC_OK and _FAIL


class UpstreamError(Exception):
    """The error of a failed exchange. `detail` is for the operator: it may name hosts and ports."""

    def __init__(self, kind: UpstreamErrorKind, detail: str) -> None:
        super().__init__(kind, detail)
        self.kind: UpstreamErrorKind = kind
        self.detail = detail

    def __str__(self) -> str:
        return f"{self.kind}: {self.detail}"


class UpstreamRequest(Struct, frozen=True, gc=False):
    """One request to an upstream. GET and DELETE have no body (None), a POST always has one.
    `stream`: the client requests a stream. Only then, and with the content type `stream_type`, may
    the answer be handed over chunk by chunk. `max_answer_bytes` limits every answer that is read
    whole, before and after unpacking."""

    method: str
    url: str
    headers: list[str]
    body: bytes | SpooledBody | None
    connect_timeout_s: float
    first_byte_timeout_s: float
    idle_timeout_s: float
    max_answer_bytes: int
    stream: bool
    stream_type: str = "text/event-stream"
    route: Route | None = None


class RequestBody(BytesIO):
    """The body of a handle's current request. `read` is the READFUNCTION. `close` frees the bytes,
    even if references to this object remain. libcurl may send a body again once, on a new
    connection, if a kept one had died. By itself it would try up to six times, and a vendor may
    bill each of them."""

    def fill(self, body: bytes) -> None:
        """Take the next body, without a copy. Works after `close`, too."""
        BytesIO.__init__(self, body)
        self._rewound = False

    def rewind(self, offset: int, origin: int) -> int:
        """Serve as SEEKFUNCTION: go back once."""
        if self._rewound:
            return _SEEK_FAILED
        self._rewound = True
        self.seek(offset, origin)
        return _SEEK_DONE

    def send_again(self) -> None:
        """Start again. There is no third time."""
        self._rewound = True
        self.seek(0)

    @property
    def nbytes(self) -> int:
        return self.getbuffer().nbytes

    @property
    def taken(self) -> bool:
        """Return whether libcurl has read the whole body."""
        return self.tell() == self.nbytes


BodySource = RequestBody | SpooledSource


def with_extra_headers(lines: Sequence[str], extra: Mapping[str, str]) -> list[str]:
    """Return the lines with a channel's extra ones (lower-case names), which replace those of the
    same name."""
    lines = [line for line in lines if line.partition(":")[0].lower() not in extra]
    return lines + [f"{name}: {value}" for name, value in extra.items()]


def encode_header_lines(lines: Sequence[str]) -> list[bytes]:
    """Encode header lines for libcurl. Raises ValueError if one contains a line break or is not
    Latin-1. One pass over the joined text, since this runs for every request."""
    text = "\n".join(lines)
    if text.count("\n") != len(lines) - 1 or "\r" in text or "\0" in text:
        raise ValueError("a header line holds CR, LF or NUL, or there is none")
    return text.encode("latin-1").split(b"\n")


# IPv6 networks whose addresses end in the IPv4 address that they lead to.
_HOLDING_IPV4 = (
    IPv6Network("::/96"),
    IPv6Network("::ffff:0:0/96"),  # mapped
    IPv6Network("::ffff:0:0:0/96"),  # translated
    IPv6Network("64:ff9b::/96"),  # translated by the network
)
# Metadata servers and agents of clouds, although the registry calls their addresses global.
_CLOUDS_OWN = frozenset(map(ip_address, ("168.63.129.16", "192.0.0.192")))
_RELAYS_TO_IPV6 = IPv4Network("192.88.99.0/24")  # obsolete (RFC 7526), so only a near host answers
_GLOBAL_IPV6 = IPv6Network("2000::/3")  # all that has been allocated so far


def is_public(address: str) -> bool:
    """Return whether an IP address belongs to the public internet: not loopback, private,
    link-local, multicast or reserved, nor one where clouds serve metadata and credentials of their
    machines. If an IPv6 address contains an IPv4 address, the latter counts."""
    parsed = ip_address(address.partition("%")[0])
    if isinstance(parsed, IPv6Address):
        inner = _ipv4_inside(parsed)
        if inner is None:
            return parsed in _GLOBAL_IPV6 and parsed.is_global
        parsed = inner
    reserved = parsed.is_multicast or parsed.is_reserved or parsed in _CLOUDS_OWN
    return parsed.is_global and not reserved and parsed not in _RELAYS_TO_IPV6


def _ipv4_inside(address: IPv6Address) -> IPv4Address | None:
    if any(address in network for network in _HOLDING_IPV4):
        return IPv4Address(int(address) & 0xFFFF_FFFF)
    return address.sixtofour


def leads_to_public(url: str) -> bool:
    """Return False if the host of a URL is an address, in any spelling, that is not public. For
    upstreams behind a proxy: only the proxy knows the address of a name."""
    # A trailing dot marks a complete name. Addresses may have one, too.
    host = (urlsplit(url).hostname or "").rstrip(".")
    try:
        # Read as libcurl does: 127.1 and 0x7f000001 are addresses, too.
        return is_public(inet_ntoa(inet_aton(host)) if ":" not in host else host)
    except (OSError, ValueError):
        return True


ANSWERED = frozenset((200, 201))
"""The statuses whose body is the answer. Some vendors answer 201, Created."""


class AnswerHead:
    """The last header block of an answer, kept raw. Fields are looked up on demand. `raw` may have
    1xx blocks before it and trailers after it, which are ignored. `complete` is False until the
    blank line arrives (`status` is then 0). libcurl has accepted these bytes, so only input that it
    lets through is handled."""

    __slots__ = ("_block", "_lower", "status")

    def __init__(self, raw: bytes) -> None:
        if _CR not in raw:
            raw = raw.replace(b"\n", b"\r\n")
        status, block = 0, b""
        while status < 200:
            first, blank, raw = raw.partition(b"\r\n\r\n")
            if not blank:
                status = 0
                break
            block, digits = first, first[9:12]  # HTTP/1.1 200
            status = int(digits) if digits.isdigit() else 0
        self.status = status
        self._block = block
        self._lower = block.lower()

    @property
    def complete(self) -> bool:
        return self.status > 0

    def get(self, name: str) -> str | None:
        """Return the first field of that name (in any case), stripped; None if there is none."""
        before, field, _ = self._lower.partition(_beginning_of_field(name))
        if not field:
            return None
        value, _, _ = self._block[len(before) + len(field) :].partition(b"\n")
        return value.strip().decode("latin-1")


@lru_cache(maxsize=64)
def _beginning_of_field(name: str) -> bytes:
    return f"\n{name.lower()}:".encode("latin-1")


class Unpacker:
    """A decoder of an unrequested content-encoding, a bounded piece at a time. `feed` takes packed
    bytes. While there is `more`, `piece` returns the next unpacked bytes, at most
    UNPACKED_PIECE_BYTES; the last piece may be empty. All methods raise UpstreamError("protocol")
    for bytes that are not valid in the encoding."""

    def __init__(self, encoding: str) -> None:
        if encoding not in _WINDOW_BITS:
            raise UpstreamError("protocol", f"unknown content-encoding {encoding[:40]!r}")
        self._encoding = encoding
        self._bits = _WINDOW_BITS[encoding]
        self._machine = zlib.decompressobj(self._bits)
        self._packed = b""
        self._begun = False
        self.more = False

    def feed(self, packed: bytes) -> None:
        if not packed:
            return
        if not self._begun:
            self._begun = True
            # "deflate" is zlib by the standard, and raw deflate from many servers.
            if self._bits == _WINDOW_BITS["deflate"] and packed[0] & 15 != _ZLIB_METHOD_DEFLATE:
                self._machine = zlib.decompressobj(_RAW_DEFLATE_BITS)
        self._packed = self._packed + packed if self._packed else packed
        self.more = True

    def piece(self) -> bytes:
        """Return the next unpacked bytes, at most UNPACKED_PIECE_BYTES."""
        try:
            piece = self._machine.decompress(self._packed, UNPACKED_PIECE_BYTES)
        except zlib.error as error:
            raise UpstreamError("protocol", f"the answer does not unpack: {error}") from error
        self._packed = self._machine.unconsumed_tail
        if self._machine.unused_data:
            raise UpstreamError("protocol", "bytes behind the end of the packed answer")
        # After a full piece, zlib may still hold output although all input was taken.
        self.more = bool(self._packed) or len(piece) == UNPACKED_PIECE_BYTES
        return piece

    def whole(self, packed: Iterable[bytes]) -> Iterator[bytes]:
        """Yield the pieces of a whole answer, from a new unpacker. Raises as `close` does."""
        fresh = Unpacker(self._encoding)
        for part in packed:
            fresh.feed(part)
            while fresh.more:
                yield fresh.piece()
        fresh.close()

    def close(self) -> None:
        """Check the end of the body. Raises UpstreamError("truncated") if it came too early."""
        if self._begun and not self._machine.eof:
            raise UpstreamError("truncated", "the packed answer ends too early")


def unpacker_for(head: AnswerHead) -> Unpacker | None:
    """Return the unpacker for an answer; None for plain bytes. Raises UpstreamError for unknown
    encodings."""
    encoding = head.get("content-encoding")
    if not encoding or encoding.lower() == "identity":
        return None
    return Unpacker(encoding.lower())
