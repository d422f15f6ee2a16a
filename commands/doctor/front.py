"""Checks of the proxy in front of the gateway, made by requests through it."""

import http.client
import json
import re
import socket
import ssl
import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any
from urllib.parse import urlsplit

from commands.doctor.findings import Finding, failed, ok, skipped, warning

STREAM = "/v1/sluice/stream"
INTERVAL_S = 0.1
TIMEOUT_S = 20
BODY_BYTES = 8 * 1024 * 1024
PIECE_BYTES = 65536
MAX_ANSWER_BYTES = 1024 * 1024
MAX_HEAD_BYTES = 65536
BUSY_WAITS = 2
BUSY_WAIT_S = 2.5
NOTHING_THERE = "/v1/sluice/nothing-there"
SENT = {
    "anthropic-beta": "doctor",
    "openai-organization": "doctor",
    "x-client-request-id": "doctor",
    "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
}
"""Headers of clients that must arrive in addition to the credential. None of them chooses a
family."""
_KEY_HEADERS = ({"x-api-key": "", "anthropic-version": "2023-06-01"}, {"x-goog-api-key": ""})
_FAILURES = (OSError, http.client.HTTPException)

TOGETHER_S = 0.03
"""Events closer than this arrived together: they were sent 0.1 s apart."""
HELD_SHARE = 0.5
CLUSTERS_SHARE = 0.7
UNBUFFERED = (
    "switch off buffering for the gateway's paths: nginx: proxy_buffering off; proxy_http_version"
    " 1.1; gzip off; and do not ignore X-Accel-Buffering. Others: flush at once"
)
LONGER = (
    "raise its time-outs above upstream.first_byte_timeout_s: nginx: proxy_read_timeout 620s;"
    " send_timeout 60s. Others: no write or response time-out"
)
PASS_ALL = "let the proxy pass all request headers on"
ENDINGS = (
    *("/chat/completions", "/responses", "/messages", "/messages/count_tokens", "/models"),
    *("/v1", "/v1beta"),
)
_MODEL_CALL = re.compile(r"/models/[^/]+:[A-Za-z]+$")


@dataclass(slots=True)
class Arrivals:
    """The times of a stream's events, in seconds from the request. `cut`: why the stream
    broke off."""

    expected: int = 0
    interval_s: float = 0.1
    at_s: list[float] = field(default_factory=list)
    cut: str = ""


class Answer:
    """A whole answer. `ours`: the gateway made it, not a proxy."""

    def __init__(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        self.status, self.headers, self.body = status, headers, body
        begin = body.lstrip()[:1]
        self.ours = "x-request-id" in headers and begin in (b"", b"{", b"[")

    @property
    def code(self) -> str:
        """Return the code or type of an error; empty if there is none."""
        try:
            error = json.loads(self.body)["error"]
            return str(error.get("code") or error.get("type"))
        except (ValueError, KeyError, TypeError, AttributeError):
            return ""

    @property
    def description(self) -> str:
        """Return a description of what arrived."""
        html = self.body.lstrip()[:16].lower().startswith((b"<!doctype html", b"<html"))
        what = "an HTML page" if html else self.headers.get("content-type") or "no body"
        server = self.headers.get("server", "")
        return f"status {self.status} with {what}" + (f" from {server}" if server else "")


class Front:
    """Requests to one address, each on its own connection."""

    def __init__(self, url: str, timeout_s: float = TIMEOUT_S) -> None:
        parts = urlsplit(url)
        self._secure, self._host = parts.scheme == "https", parts.hostname or ""
        self._port, self._path = parts.port, parts.path.rstrip("/")
        self._timeout_s = timeout_s

    def open(self) -> http.client.HTTPConnection:
        """Return a connection that is not connected yet."""
        if not self._secure:
            return http.client.HTTPConnection(self._host, self._port, timeout=self._timeout_s)
        context = ssl.create_default_context()
        return http.client.HTTPSConnection(
            self._host, self._port, timeout=self._timeout_s, context=context
        )

    def path(self, path: str) -> str:
        """Return the full path of a relay path, below the path of the address."""
        return self._path + path

    def ask(self, path: str, headers: Mapping[str, str] | None = None) -> Answer:
        """Send a GET. Raises OSError or HTTPException if no answer arrives."""
        with closing(self.open()) as connection:
            connection.request("GET", self.path(path), headers=dict(headers or {}))
            return read(connection.getresponse())

    def send(self, path: str, size: int) -> Answer:
        """Send a POST of `size` bytes. Return the answer, even if it came before the end of the
        body."""
        with closing(self._post(path, size)) as connection:
            connection.endheaders()
            try:
                for begin in range(0, size, PIECE_BYTES):
                    connection.send(b" " * min(PIECE_BYTES, size - begin))
            except (BrokenPipeError, ConnectionResetError):
                pass  # the answer may have arrived before the body was sent
            return read(connection.getresponse())

    def announce(self, path: str, size: int) -> int:
        """Return the first status for a body that is announced but never sent."""
        with closing(self._post(path, size)) as connection:
            connection.putheader("Expect", "100-continue")
            connection.endheaders()
            return _first_status(connection.sock)

    def _post(self, path: str, size: int) -> http.client.HTTPConnection:
        """Send the head of a POST with a body of `size` bytes."""
        connection = self.open()
        connection.putrequest("POST", self.path(path))
        connection.putheader("Content-Type", "application/json")
        connection.putheader("Content-Length", str(size))
        return connection


def read(answer: http.client.HTTPResponse) -> Answer:
    """Read a whole answer."""
    headers = {name.lower(): value for name, value in answer.getheaders()}
    return Answer(answer.status, headers, answer.read(MAX_ANSWER_BYTES))


def _first_status(connection: socket.socket) -> int:
    head = b""
    while b"\r\n" not in head and len(head) < MAX_HEAD_BYTES:
        piece = connection.recv(MAX_HEAD_BYTES)
        if not piece:
            raise http.client.RemoteDisconnected("the connection was closed")
        head += piece
    words = head.split(None, 2)
    if len(words) < 2 or not words[1].isdigit():
        raise http.client.BadStatusLine(repr(head[:40]))
    return int(words[1])


def look(url: str, key: str | None) -> list[Finding]:
    """Check the path through `url`. Without a key there is no check of a stream."""
    findings = []
    base_url = without_endpoint(url)
    if base_url != url.rstrip("/"):
        remedy = f"give clients {base_url}; those of the OpenAI families {base_url}/v1"
        findings.append(failed("url", doubled_path("--url", url), remedy))
    front = Front(base_url)
    reached = _reach(front, base_url)
    if reached.state != "ok":
        return [*findings, reached]
    findings += [reached, *_errors(front)]
    if key is None:
        return [*findings, skipped("stream", "no key was given", "add --key KEY"), _body(front)]
    seen, streamed = _stream(front, key)
    findings += streamed
    if seen:
        findings += [*_seen(seen), *_credentials(front, key)]
    return [*findings, _body(front), *_announced(front, seen)]


def _reach(front: Front, url: str) -> Finding:
    try:
        answer = front.ask("/livez")
    except ssl.SSLError as error:
        remedy = "give the proxy a certificate for this name that this machine trusts"
        return failed("url", f"{url}: TLS failed: {error.reason or error}", remedy)
    except _FAILURES as error:
        remedy = "check name and port, and that the proxy runs"
        return failed("url", f"{url} does not answer: {_words(error)}", remedy)
    if 300 <= answer.status < 400:
        message = f"{url} redirects to {answer.headers.get('location', 'somewhere')}"
        return failed("url", message, "give clients the address it leads to: redirects break POST")
    if answer.status in (502, 503, 504):
        remedy = "start the gateway, or correct the address of the upstream in the proxy"
        return failed("url", f"{url}: the proxy cannot reach it: {answer.description}", remedy)
    if answer.status != 200 or not answer.ours:
        remedy = "let the proxy pass every path of this address to the relay's port (server.port)"
        return failed("url", f"{url}: something else answers: {answer.description}", remedy)
    return ok("url", f"{url} leads to a gateway")


def _errors(front: Front) -> list[Finding]:
    """Check that errors of the gateway arrive unchanged."""
    try:
        answer = front.ask(NOTHING_THERE)
    except _FAILURES as error:
        remedy = "check the proxy's error log"
        return [failed("errors", f"an error does not arrive: {_words(error)}", remedy)]
    if answer.ours:
        return [ok("errors", "the gateway's errors arrive unchanged")]
    message = f"the proxy replaces the gateway's errors: {answer.description}"
    return [failed("errors", message, "nginx: proxy_intercept_errors off; others: pass errors on")]


def _stream(front: Front, key: str) -> tuple[dict[str, Any], list[Finding]]:
    """Return the headers that reached the gateway, and findings about the stream."""
    findings = []
    seen, answer, arrivals = _read_stream(front, key, "gzip, deflate, br, zstd")
    if answer.status == 200 and (coding := answer.headers.get("content-encoding")):
        remedy = "do not compress text/event-stream: nginx: gzip off, or take it out of gzip_types"
        findings.append(failed("stream", f"the proxy compresses the stream ({coding})", remedy))
        seen, answer, arrivals = _read_stream(front, key, "identity")
    if answer.status != 200:
        return {}, [*findings, _refused(answer)]
    if not answer.headers.get("content-type", "").startswith("text/event-stream"):
        remedy = "let the proxy keep content types"
        findings.append(failed("stream", f"the stream became {answer.description}", remedy))
    if "x-request-id" not in answer.headers:
        remedy = "let the proxy pass the gateway's headers on: x-request-id names a call"
        findings.append(warning("headers", "the proxy strips x-request-id from answers", remedy))
    server = answer.headers.get("server", "")
    return {**seen, "server": server} if seen else {}, [*findings, *judge(arrivals)]


def _refused(answer: Answer) -> Finding:
    if answer.code == "missing_api_key":
        remedy = "nginx: proxy_set_header Authorization $http_authorization, or remove auth_basic"
        return failed("stream", "the proxy strips the header Authorization", remedy)
    if answer.ours:
        return failed("stream", f"the key is refused: {answer.code}", "give a key that works")
    remedy = "let the proxy pass /v1/… to the relay's port"
    return failed("stream", f"no stream: {answer.description}", remedy)


def _read_stream(front: Front, key: str, accept: str) -> tuple[dict[str, Any], Answer, Arrivals]:
    """Return the first event, the answer's head (with the body if it is no stream), and the
    arrivals."""
    headers = {**SENT, "Authorization": f"Bearer {key}", "Accept-Encoding": accept}
    for _ in range(BUSY_WAITS + 1):
        connection = front.open()
        begun_s = time.monotonic()
        arrivals = Arrivals(interval_s=INTERVAL_S)
        try:
            connection.request("GET", front.path(STREAM), headers=headers)
            answer = connection.getresponse()
            head = {name.lower(): value for name, value in answer.getheaders()}
            if answer.status == 429:
                time.sleep(BUSY_WAIT_S)
                continue
            if answer.status != 200 or "content-encoding" in head:
                return {}, Answer(answer.status, head, answer.read(MAX_ANSWER_BYTES)), arrivals
            seen = _read_events(answer, arrivals, begun_s)
            return seen, Answer(200, head, b""), arrivals
        except _FAILURES as error:
            arrivals.cut = _words(error)
            return {}, Answer(200, {"content-type": "text/event-stream"}, b""), arrivals
        finally:
            connection.close()
    return {}, Answer(429, {"x-request-id": ""}, b'{"error":{"code":"rate_limited"}}'), arrivals


def _read_events(
    answer: http.client.HTTPResponse, arrivals: Arrivals, begun_s: float
) -> dict[str, Any]:
    """Read to the end or the cut. Record the arrivals and return the first event."""
    first: dict[str, Any] = {}
    try:
        while line := answer.readline():
            if line.startswith(b"data:"):
                arrivals.at_s.append(time.monotonic() - begun_s)
                if not first:
                    first = json.loads(line.removeprefix(b"data:"))
                    arrivals.expected = int(first["of"])
    except (*_FAILURES, ValueError, KeyError, TypeError) as error:
        arrivals.cut = _words(error)
    return first


def _seen(seen: dict[str, Any]) -> list[Finding]:
    missing = [name for name in SENT if name not in seen.get("headers", ())]
    findings = [ok("headers", "the headers of clients arrive")]
    if missing:
        message = f"the proxy strips from requests: {', '.join(missing)}"
        findings = [failed("headers", message, PASS_ALL)]
    proxied = seen["server"] != "sluice" or seen.get("forwarded")
    if proxied and not seen.get("forwarded"):
        remedy = "nginx: proxy_set_header X-Forwarded-For $remote_addr"
        message = "the proxy does not pass on client addresses: records show its own"
        findings.append(warning("headers", message, remedy))
    elif proxied and not seen.get("proxy_trusted"):
        message = f"X-Forwarded-For is ignored: {seen.get('client_ip')} is not a trusted proxy"
        remedy = f'set server.trusted_proxies = ["{seen.get("client_ip")}"]'
        findings.append(warning("headers", message, remedy))
    return findings


def _credentials(front: Front, key: str) -> list[Finding]:
    """Check that the credentials of the other families arrive."""
    stripped = []
    for template in _KEY_HEADERS:
        headers = {name: value or key for name, value in template.items()}
        try:
            status = front.ask("/v1/models", headers).status
        except _FAILURES:
            status = 0
        if status == 401:
            stripped.append(next(iter(template)))
    if not stripped:
        return []
    message = f"the proxy strips {', '.join(stripped)}: clients of these families get 401"
    return [failed("headers", message, PASS_ALL)]


def _body(front: Front) -> Finding:
    """Check that a body of some MB arrives: the gateway then refuses its method."""
    size = f"{BODY_BYTES >> 20} MiB"
    try:
        answer = front.send(STREAM, BODY_BYTES)
    except _FAILURES as error:
        remedy = "raise the proxy's size limit and time-out for bodies"
        return failed("body", f"a body of {size} is cut off: {_words(error)}", remedy)
    if answer.ours and answer.code == "request_too_large":
        remedy = "raise server.max_body_bytes if clients send images and files"
        return warning("body", f"the gateway itself refuses bodies of {size}", remedy)
    if answer.ours:
        return ok("body", f"a body of {size} arrives")
    return _limited(size, answer.description)


def _announced(front: Front, seen: dict[str, Any]) -> list[Finding]:
    """Check that the proxy accepts as large a body as the gateway does."""
    size = int(seen.get("max_body_bytes", 0))
    if size <= BODY_BYTES:
        return []
    try:
        status = front.announce(STREAM, size)
    except _FAILURES:
        return []  # the proxy ignores Expect; only what really passed counts
    if status != http.HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
        return []
    return [_limited(f"{size >> 20} MiB (server.max_body_bytes)", f"status {status}")]


def _limited(size: str, message: str) -> Finding:
    remedy = "nginx: client_max_body_size 64m; others: a limit above server.max_body_bytes"
    return failed("body", f"the proxy refuses bodies of {size}: {message}", remedy)


def _words(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "timed out"
    if isinstance(error, http.client.IncompleteRead):
        return "the connection was closed before the end"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__


def judge(arrivals: Arrivals) -> list[Finding]:
    """Distinguish a stream that was cut or buffered from one that arrived as it was sent."""
    count, at_s = len(arrivals.at_s), arrivals.at_s
    if arrivals.cut or count < arrivals.expected:
        after = f"{at_s[-1]:.1f} s" if at_s else "no event"
        message = f"the stream was cut after {count} of {arrivals.expected} events, {after}"
        return [failed("stream", f"{message}: {arrivals.cut or 'it ended early'}", LONGER)]
    if count < 2:
        return []
    span_s, sent_s = at_s[-1] - at_s[0], arrivals.interval_s * (count - 1)
    if span_s < sent_s * HELD_SHARE:
        message = (
            f"the stream is buffered: {count} events sent over {sent_s:.1f} s arrived within"
            f" {span_s:.1f} s, the first after {at_s[0]:.1f} s"
        )
        return [failed("stream", message, UNBUFFERED)]
    clusters = 1 + sum(later - earlier > TOGETHER_S for earlier, later in pairwise(at_s))
    if clusters < count * CLUSTERS_SHARE:
        message = f"the stream is partly buffered: {count} events arrived in {clusters} bundles"
        return [warning("stream", message, UNBUFFERED)]
    message = f"{count} events arrived one by one, the first after {at_s[0] * 1000:.0f} ms"
    return [ok("stream", message)]


def without_endpoint(url: str) -> str:
    """Return the address without versions and endpoints at its end, the form that clients need."""
    base_url = _MODEL_CALL.sub("", url.rstrip("/"))
    while ending := next((suffix for suffix in ENDINGS if base_url.endswith(suffix)), ""):
        base_url = base_url.removesuffix(ending).rstrip("/")
    return base_url


def doubled_path(what: str, url: str) -> str:
    """Return a description of the problem with such an address."""
    ending = url.rstrip("/").removeprefix(without_endpoint(url))
    return f"{what} {url} ends with {ending}, which clients append: it would be there twice"
