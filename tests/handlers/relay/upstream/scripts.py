"""Scripts of an upstream's reactions to a request, and the results that a test waits for."""

import asyncio
import json

import pycurl
import pytest

from handlers.relay.upstream import handle as handle_module
from handlers.relay.upstream.client import UpstreamError

JSON = ("Content-Type: application/json",)
EVENT = b"data: {}\n\n"


def noise(size):
    """Return bytes that differ everywhere, so that a lost or duplicate chunk shows."""
    return b"".join(b"%015d\n" % n for n in range(size // 16))


async def echo(peer, head, body):
    await peer.answer(body)


def answering(body=b"{}", status="200 OK", headers=()):
    """Return a script that sends a whole answer."""
    return lambda peer, *_: peer.answer(body, status, headers)


def streaming(*pieces, headers=()):
    """Return a script that sends an event stream of these chunks."""

    async def script(peer, head, body):
        await peer.begin_stream(*headers)
        for piece in pieces:
            await peer.chunk(piece)
        await peer.end_stream()

    return script


def sending(data, how="close"):
    """Return a script that sends these bytes, and then closes the connection, resets it or
    hangs."""

    async def script(peer, head, body):
        await peer.send(data)
        if how == "hang":
            await peer.wait_closed_by_client()
        await asyncio.sleep(0.02)
        peer.closing = True
        if how == "reset":
            peer.reset()

    return script


def refusing(status, message):
    """Return a script that answers with an error."""
    error = json.dumps({"error": {"message": message, "type": "x"}}).encode()
    return answering(error, status, JSON)


async def failure(exchange):
    """Return the error of an exchange that gets no head."""
    with pytest.raises(UpstreamError) as caught:
        await asyncio.wait_for(exchange.head, 10)
    return caught.value


def port_of(upstream):
    return int(upstream.url.rpartition(":")[2].partition("/")[0])


def resolve(monkeypatch, name, *addresses):
    """Make libcurl resolve a name and port to these addresses, as if by DNS."""
    make = handle_module.make_curl

    def make_with_entries():
        curl = make()
        curl.setopt(pycurl.RESOLVE, [f"-{name}", f"{name}:{','.join(addresses)}"])
        return curl

    monkeypatch.setattr(handle_module, "make_curl", make_with_entries)
