"""What `doctor` learns of the proxy in front of the gateway, by requests through it."""

import http.client
import json
import socket
import ssl
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from commands.doctor import urls
from commands.doctor.findings import Finding, failed, ok, skipped, warning
from commands.doctor.pace import Arrivals, judge

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
"""Headers of clients that must arrive, beside the credential; none that chooses a family."""
_KEY_HEADERS = ({"x-api-key": "", "anthropic-version": "2023-06-01"}, {"x-goog-api-key": ""})
_FAILURES = (OSError, http.client.HTTPException)


class Answer:
    """A whole answer; `ours`: the gateway has made it, not something in between."""

    def __init__(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        self.status, self.headers, self.body = status, headers, body
        begin = body.lstrip()[:1]
        self.ours = "x-request-id" in headers and begin in (b"", b"{", b"[")

    @property
    def code(self) -> str:
        """The code or type of an error, as far as there is one."""
        try:
            error = json.loads(self.body)["error"]
            return str(error.get("code") or error.get("type"))
        except (ValueError, KeyError, TypeError, AttributeError):
            return ""

    @property
    def told(self) -> str:
        """What came, for people."""
        html = self.body.lstrip()[:16].lower().startswith((b"<!doctype html", b"<html"))
        what = "an HTML page" if html else self.headers.get("content-type") or "no body"
        server = self.headers.get("server", "")
        return f"status {self.status} with {what}" + (f" from {server}" if server else "")


class Front:
    """Requests to one address, a connection each."""

    def __init__(self, url: str, timeout_s: float = TIMEOUT_S) -> None:
        parts = urlsplit(url)
        self._secure, self._host = parts.scheme == "https", parts.hostname or ""
        self._port, self._path = parts.port, parts.path.rstrip("/")
        self._timeout_s = timeout_s

    def open(self) -> http.client.HTTPConnection:
        """A new connection, not connected yet."""
        if not self._secure:
            return http.client.HTTPConnection(self._host, self._port, timeout=self._timeout_s)
        context = ssl.create_default_context()
        return http.client.HTTPSConnection(
            self._host, self._port, timeout=self._timeout_s, context=context
        )

    def path(self, path: str) -> str:
        """A path of the relay as it is asked for here."""
        return self._path + path

    def ask(self, path: str, headers: Mapping[str, str] | None = None) -> Answer:
        """GET; OSError or HTTPException when nothing comes."""
        connection = self.open()
        try:
            connection.request("GET", self.path(path), headers=dict(headers or {}))
            return read(connection.getresponse())
        finally:
            connection.close()

    def send(self, path: str, size: int) -> Answer:
        """POST of so many bytes; what was answered, also when the body was not taken whole."""
        connection = self.open()
        try:
            connection.putrequest("POST", self.path(path))
            connection.putheader("Content-Type", "application/json")
            connection.putheader("Content-Length", str(size))
            connection.endheaders()
            try:
                for begin in range(0, size, PIECE_BYTES):
                    connection.send(b" " * min(PIECE_BYTES, size - begin))
            except (BrokenPipeError, ConnectionResetError):
                pass  # the answer may have come before the body was sent
            return read(connection.getresponse())
        finally:
            connection.close()

    def announce(self, path: str, size: int) -> int:
        """The first status that comes back for a body that is announced and never sent."""
        connection = self.open()
        try:
            connection.putrequest("POST", self.path(path))
            connection.putheader("Content-Type", "application/json")
            connection.putheader("Content-Length", str(size))
            connection.putheader("Expect", "100-continue")
            connection.endheaders()
            return _first_status(connection.sock)
        finally:
            connection.close()


def read(answer: http.client.HTTPResponse) -> Answer:
    """The whole of an answer."""
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
    """Everything about the way through `url`; without a key no stream."""
    found = []
    right = urls.without_endpoint(url)
    if right != url.rstrip("/"):
        cure = f"give clients {right}; those of the OpenAI families {right}/v1"
        found.append(failed("url", urls.said_wrong("--url", url), cure))
    front = Front(right)
    reached = _reach(front, right)
    if reached.state != "ok":
        return [*found, reached]
    found += [reached, *_errors(front)]
    if key is None:
        found += [skipped("stream", "no key was given", "add --key KEY"), _body(front)]
        return found
    seen, streamed = _stream(front, key)
    found += streamed
    if seen:
        found += [*_seen(seen), *_credentials(front, key)]
    found.append(_body(front))
    return found + _announced(front, seen)


# ---- is it ours ----------------------------------------------------------------------------------


def _reach(front: Front, url: str) -> Finding:
    try:
        answer = front.ask("/livez")
    except ssl.SSLError as error:
        cure = "give the proxy a certificate for this name that this machine trusts"
        return failed("url", f"{url}: TLS failed: {error.reason or error}", cure)
    except _FAILURES as error:
        cure = "see whether name and port are right and the proxy runs"
        return failed("url", f"{url} does not answer: {_words(error)}", cure)
    if 300 <= answer.status < 400:
        told = f"{url} redirects to {answer.headers.get('location', 'somewhere')}"
        return failed("url", told, "give clients the address it leads to: they send POST")
    if answer.status in (502, 503, 504):
        cure = "start the gateway, or correct the address of the upstream in the proxy"
        return failed("url", f"{url}: the proxy does not reach it: {answer.told}", cure)
    if answer.status != 200 or not answer.ours:
        cure = "let the proxy pass every path of this address to the relay's port (server.port)"
        return failed("url", f"{url}: something else answers: {answer.told}", cure)
    return ok("url", f"{url} leads to a gateway")


def _errors(front: Front) -> list[Finding]:
    """Whether errors of the gateway come through as they are."""
    try:
        answer = front.ask(NOTHING_THERE)
    except _FAILURES as error:
        cure = "look into the proxy's error log"
        return [failed("errors", f"an error does not come through: {_words(error)}", cure)]
    if answer.ours:
        return [ok("errors", "errors of the gateway come through")]
    told = f"the proxy replaces the gateway's errors: {answer.told}"
    return [failed("errors", told, "nginx: proxy_intercept_errors off; others: pass errors on")]


# ---- the stream ----------------------------------------------------------------------------------


def _stream(front: Front, key: str) -> tuple[dict[str, Any], list[Finding]]:
    """What the gateway saw of the request, and how its stream came."""
    found = []
    seen, answer, arrivals = _read_stream(front, key, "gzip, deflate, br, zstd")
    if answer.status == 200 and (coding := answer.headers.get("content-encoding")):
        cure = "do not compress text/event-stream: nginx: gzip off, or take it out of gzip_types"
        found.append(failed("stream", f"the proxy compresses the stream ({coding})", cure))
        seen, answer, arrivals = _read_stream(front, key, "identity")
    if answer.status != 200:
        return {}, [*found, _refused(answer)]
    if not answer.headers.get("content-type", "").startswith("text/event-stream"):
        cure = "let the proxy leave content types alone"
        found.append(failed("stream", f"the stream has become {answer.told}", cure))
    if "x-request-id" not in answer.headers:
        cure = "let the proxy pass the gateway's headers on: x-request-id names a call"
        found.append(warning("headers", "the proxy strips x-request-id from answers", cure))
    server = answer.headers.get("server", "")
    return {**seen, "server": server} if seen else {}, [*found, *judge(arrivals)]


def _refused(answer: Answer) -> Finding:
    if answer.code == "missing_api_key":
        cure = "nginx: proxy_set_header Authorization $http_authorization, or remove auth_basic"
        return failed("stream", "the proxy strips the header Authorization", cure)
    if answer.ours:
        return failed("stream", f"the key is refused: {answer.code}", "give a key that works")
    cure = "let the proxy pass /v1/… to the relay's port"
    return failed("stream", f"no stream: {answer.told}", cure)


def _read_stream(front: Front, key: str, accept: str) -> tuple[dict[str, Any], Answer, Arrivals]:
    """The first event, the head with what is no stream, and when each event came."""
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
    """Read to the end, or to where it was cut; the first event."""
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


# ---- what arrives of requests --------------------------------------------------------------------


def _seen(seen: dict[str, Any]) -> list[Finding]:
    missing = [name for name in SENT if name not in seen.get("headers", ())]
    found = []
    if missing:
        cure = "let the proxy pass all request headers on"
        told = f"the proxy strips from requests: {', '.join(missing)}"
        found.append(failed("headers", told, cure))
    else:
        found.append(ok("headers", "the headers of clients arrive"))
    proxied = seen["server"] != "sluice" or seen.get("forwarded")
    if proxied and not seen.get("forwarded"):
        cure = "nginx: proxy_set_header X-Forwarded-For $remote_addr"
        told = "the proxy does not say who calls: records show its own address"
        found.append(warning("headers", told, cure))
    elif proxied and not seen.get("proxy_trusted"):
        told = f"X-Forwarded-For is ignored: {seen.get('client_ip')} is no trusted proxy"
        cure = f'set server.trusted_proxies = ["{seen.get("client_ip")}"]'
        found.append(warning("headers", told, cure))
    return found


def _credentials(front: Front, key: str) -> list[Finding]:
    """Whether the credentials of the other families come through."""
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
    told = f"the proxy strips {', '.join(stripped)}: clients of these families get 401"
    return [failed("headers", told, "let the proxy pass all request headers on")]


# ---- bodies --------------------------------------------------------------------------------------


def _body(front: Front) -> Finding:
    """Whether a body of some MB comes through: the gateway refuses its method afterwards."""
    size = f"{BODY_BYTES >> 20} MiB"
    try:
        answer = front.send(STREAM, BODY_BYTES)
    except _FAILURES as error:
        cure = "raise the proxy's limits for bodies and their time"
        return failed("body", f"a body of {size} breaks off: {_words(error)}", cure)
    if answer.ours and answer.code == "request_too_large":
        cure = "raise server.max_body_bytes if clients send images and files"
        return warning("body", f"the gateway itself refuses bodies of {size}", cure)
    if answer.ours:
        return ok("body", f"a body of {size} comes through")
    return _limited(size, answer.told)


def _announced(front: Front, seen: dict[str, Any]) -> list[Finding]:
    """Whether the proxy would take a body as large as the gateway does."""
    size = int(seen.get("max_body_bytes", 0))
    if size <= BODY_BYTES:
        return []
    try:
        status = front.announce(STREAM, size)
    except _FAILURES:
        return []  # a proxy that knows no Expect: what really came through counts
    if status != http.HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
        return []
    return [_limited(f"{size >> 20} MiB (server.max_body_bytes)", f"status {status}")]


def _limited(size: str, told: str) -> Finding:
    cure = "nginx: client_max_body_size 64m; others: a limit above server.max_body_bytes"
    return failed("body", f"the proxy refuses bodies of {size}: {told}", cure)


def _words(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "nothing came in time"
    if isinstance(error, http.client.IncompleteRead):
        return "the connection was closed in the middle"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__
