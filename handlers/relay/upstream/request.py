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
    """An exchange failed. `detail` is for the operator: it may name hosts and ports."""

    def __init__(self, kind: UpstreamErrorKind, detail: str) -> None:
        super().__init__(kind, detail)
        self.kind: UpstreamErrorKind = kind
        self.detail = detail

    def __str__(self) -> str:
        return f"{self.kind}: {self.detail}"


class UpstreamRequest(Struct, frozen=True, gc=False):
    """One request to an upstream; GET and DELETE have no body (None), a POST always has one.
    `stream`: the client wants a stream. Only then, and with the content type `stream_type`, may the
    answer be handed over piece by piece. `max_answer_bytes` bounds every answer that is read whole,
    before and after unpacking."""

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
    """The body of a handle's request, one after the other; `read` is the READFUNCTION, and `close`
    frees the bytes, whoever still refers to this. libcurl may send a body again once, on a new
    connection, when a kept one had died; it would go on to six times, and a vendor may bill each of
    them."""

    def fill(self, body: bytes) -> None:
        """Take the next body, without a copy; also after `close`."""
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
        """Begin again; not a third time."""
        self._rewound = True
        self.seek(0)

    @property
    def nbytes(self) -> int:
        return self.getbuffer().nbytes

    @property
    def taken(self) -> bool:
        """Return whether libcurl has read it to its end."""
        return self.tell() == self.nbytes


BodySource = RequestBody | SpooledSource


def with_extra_headers(lines: Sequence[str], extra: Mapping[str, str]) -> list[str]:
    """Return the lines with a channel's own (lower-case names), which replace those of the same
    name."""
    lines = [line for line in lines if line.partition(":")[0].lower() not in extra]
    return lines + [f"{name}: {value}" for name, value in extra.items()]


def encode_header_lines(lines: Sequence[str]) -> list[bytes]:
    """Encode the lines for libcurl; ValueError when one could begin another line or is not Latin-1.
    One pass over the joined text: this runs for every request."""
    text = "\n".join(lines)
    if text.count("\n") != len(lines) - 1 or "\r" in text or "\0" in text:
        raise ValueError("a header line holds CR, LF or NUL, or there is none")
    return text.encode("latin-1").split(b"\n")


# IPv6 networks whose addresses end in an IPv4 address that they lead to.
_HOLDING_IPV4 = (
    IPv6Network("::/96"),
    IPv6Network("::ffff:0:0/96"),  # mapped
    IPv6Network("::ffff:0:0:0/96"),  # translated
    IPv6Network("64:ff9b::/96"),  # translated by the network
)
# Not what they are called, but global by the registry: metadata and agents of clouds.
_CLOUDS_OWN = frozenset(map(ip_address, ("168.63.129.16", "192.0.0.192")))
_RELAYS_TO_IPV6 = IPv4Network("192.88.99.0/24")  # given up by RFC 7526; whoever answers is near
_GLOBAL_IPV6 = IPv6Network("2000::/3")  # all that has been given out so far


def is_public(address: str) -> bool:
    """Return whether an IP address belongs to the public internet: not loopback, private,
    link-local, multicast or reserved, nor one where clouds keep metadata and credentials of their
    machines. An IPv4 address inside an IPv6 one is what counts."""
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
    """Return False when the host of a URL is an address, in whatever spelling, that is not public.
    For upstreams behind a proxy, which alone knows where a name leads."""
    # A dot at the end says that nothing is to be added to a name; addresses are read with it, too.
    host = (urlsplit(url).hostname or "").rstrip(".")
    try:
        # As libcurl reads them: 127.1 and 0x7f000001 are addresses, too.
        return is_public(inet_ntoa(inet_aton(host)) if ":" not in host else host)
    except (OSError, ValueError):
        return True


ANSWERED = frozenset((200, 201))
"""Statuses whose body is the answer; some vendors say that they have created it."""


class AnswerHead:
    """The last header block of an answer, kept raw; fields are looked up when asked for. `raw` may
    hold 1xx blocks before it and trailers behind it; both are left out. `complete` is False while
    the blank line has not arrived (then `status` is 0). libcurl has accepted what is read here, so
    only what it lets through is cared for."""

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
        """Return the first field of that name (any case), stripped; None when there is none."""
        before, field, _ = self._lower.partition(_beginning_of_field(name))
        if not field:
            return None
        value, _, _ = self._block[len(before) + len(field) :].partition(b"\n")
        return value.strip().decode("latin-1")


@lru_cache(maxsize=64)
def _beginning_of_field(name: str) -> bytes:
    return f"\n{name.lower()}:".encode("latin-1")


class Unpacker:
    """Undoes the content-encoding that was not asked for, a bounded piece at a time. `feed` takes
    packed bytes; while there is `more`, `piece` gives the next of what they unpack to, at most
    UNPACKED_PIECE_BYTES, the last one maybe empty. All methods raise UpstreamError("protocol") for
    bytes that are not what the encoding says."""

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
            # "deflate" is zlib by the standard and raw deflate in many servers.
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
        # A full piece may have left output inside zlib although all input was taken.
        self.more = bool(self._packed) or len(piece) == UNPACKED_PIECE_BYTES
        return piece

    def whole(self, packed: Iterable[bytes]) -> Iterator[bytes]:
        """Yield the pieces of a whole answer, from an unpacker of its own. Raises as `close`
        does."""
        fresh = Unpacker(self._encoding)
        for part in packed:
            fresh.feed(part)
            while fresh.more:
                yield fresh.piece()
        fresh.close()

    def close(self) -> None:
        """Check the end of the body; UpstreamError("truncated") when it came too early."""
        if self._begun and not self._machine.eof:
            raise UpstreamError("truncated", "the packed answer ends too early")


def unpacker_for(head: AnswerHead) -> Unpacker | None:
    """Return the unpacker for an answer, None for plain bytes; UpstreamError for unknown
    encodings."""
    encoding = head.get("content-encoding")
    if not encoding or encoding.lower() == "identity":
        return None
    return Unpacker(encoding.lower())
