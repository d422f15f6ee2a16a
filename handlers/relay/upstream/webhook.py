"""One blocking POST by libcurl, for a thread that may wait: a webhook of an alert.

It follows no redirects, uses no proxy of the environment and keeps no connection. An address is
checked when the connection to it is opened, after its name was resolved, so that no second look-up
can lead elsewhere.
"""

import functools
import ssl
import time
from collections.abc import Sequence
from dataclasses import dataclass

import pycurl

from handlers.relay.upstream.handle import make_curl, open_public_socket

CONNECT_S = 5
TOTAL_S = 10
MAX_ANSWER_BYTES = 16_384


@dataclass(frozen=True, slots=True)
class Posted:
    """The answer to a POST: its status and the start of its body. Status 0: there was no answer,
    for the reason in `problem`."""

    status: int
    body: bytes
    took_ms: int
    problem: str = ""


def post(url: str, body: bytes, headers: Sequence[str], *, allow_private: bool) -> Posted:
    """Send a body, within TOTAL_S. `allow_private` False: to public addresses only. Does not
    raise."""
    answer = bytearray()

    def take(chunk: bytes) -> int | None:
        answer.extend(chunk[: MAX_ANSWER_BYTES - len(answer)])
        return None if len(answer) < MAX_ANSWER_BYTES else len(chunk)

    trust = ssl.get_default_verify_paths()
    refused: list[str] = []
    curl = make_curl()
    began = time.monotonic()
    try:
        for option, value in (
            (pycurl.URL, url.encode()),
            (pycurl.POSTFIELDS, body),
            (pycurl.HTTPHEADER, [*headers, "Expect:"]),
            (pycurl.WRITEFUNCTION, take),
            (pycurl.FOLLOWLOCATION, 0),
            (pycurl.CONNECTTIMEOUT, CONNECT_S),
            (pycurl.TIMEOUT, TOTAL_S),
            (pycurl.CAINFO, trust.cafile),
            (pycurl.CAPATH, trust.capath),
        ):
            if value is not None:
                curl.setopt(option, value)
        if not allow_private:
            opened = functools.partial(open_public_socket, refused=refused)
            curl.setopt(pycurl.OPENSOCKETFUNCTION, opened)
        curl.perform()
        status = int(curl.getinfo(pycurl.RESPONSE_CODE))
    except pycurl.error as error:
        text = error.args[1] if len(error.args) > 1 else str(error)
        if refused:
            text = f"{refused[0]} is not a public address"
        return Posted(0, b"", _ms_since(began), text or "no connection")
    finally:
        curl.close()
    return Posted(status, bytes(answer), _ms_since(began))


def _ms_since(began: float) -> int:
    return round(1000 * (time.monotonic() - began))
