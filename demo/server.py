"""The demo vendor's server: routing to the families, and the pace of a stream."""

import asyncio
import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from tornado.httpserver import HTTPServer
from tornado.httputil import HTTPServerRequest
from tornado.iostream import StreamClosedError
from tornado.netutil import bind_sockets
from tornado.web import Application, RequestHandler

from demo.chat_completions import ChatCompletions
from demo.family import Family, ModelAnswer, ModelRequest, Refusal, Route, encode_json, new_id
from demo.generate_content import GenerateContent, json_array
from demo.messages import Messages
from demo.responses import Responses
from demo.speech import compose

FALLBACK = ChatCompletions()  # answers if the family is unknown
# The order decides which family gets a path that two families have.
FAMILIES: tuple[Family, ...] = (Messages(), GenerateContent(), FALLBACK, Responses())

JSON_TYPE = "application/json"
STREAM_TYPE = "text/event-stream; charset=utf-8"
STREAM_GAP_S = 0.03  # slow enough for a person to see the answer stream
BODY_BYTES_MAX = 64 * 1024 * 1024


def start(host: str, port: int, log: Path | None) -> tuple[HTTPServer, int]:
    """Listen. Return the server and its port (a free one for 0). Raises OSError."""
    application = Application([(r".*", VendorHandler)], log=log, log_function=lambda _: None)
    server = HTTPServer(application, max_buffer_size=BODY_BYTES_MAX)
    sockets = bind_sockets(port, host)
    server.add_sockets(sockets)
    return server, sockets[0].getsockname()[1]


class VendorHandler(RequestHandler):
    """The handler of one request, with any path and method."""

    def prepare(self) -> None:
        self.request_id = new_id("req")
        if (log := self.settings["log"]) is not None:
            write_line(log, self.request)

    async def _serve(self) -> None:
        family: Family = FALLBACK
        try:
            family, route = find(self.request)
            await self._answer(family, route)
        except Refusal as refusal:
            self.set_status(refusal.status)
            self._send(family, family.refusal(refusal, self.request_id))
        except StreamClosedError:
            pass  # the client has disconnected

    get = post = put = delete = patch = _serve

    async def _answer(self, family: Family, route: Route) -> None:
        if route.method == "GET":
            self._send(family, family.lookup(route))
            return
        request, answer = read(family, route, self.request)
        if route.task == "count":
            self._send(family, family.count(request))
        elif not request.stream:
            self._send(family, family.plain(request, answer))
        else:
            await self._stream(family, request, answer)

    def _send(self, family: Family, value: Mapping[str, Any]) -> None:
        self._set_headers(family, JSON_TYPE)
        self.write(encode_json(value))

    async def _stream(self, family: Family, request: ModelRequest, answer: ModelAnswer) -> None:
        array = request.framing == "json_array"
        self._set_headers(family, JSON_TYPE if array else STREAM_TYPE)
        events: Iterable[bytes] = map(family.encode, family.events(request, answer))
        for event in json_array(events) if array else events:
            self.write(event)
            await self.flush()
            await asyncio.sleep(STREAM_GAP_S)
        self.write(family.last_bytes)

    def _set_headers(self, family: Family, content_type: str) -> None:
        self.set_header(family.request_id_header, self.request_id)
        self.set_header("content-type", content_type)


def find(request: HTTPServerRequest) -> tuple[Family, Route]:
    """Return the family and the operation of a request. Raises Refusal."""
    query = {name: values[-1].decode() for name, values in request.query_arguments.items()}
    headers = {name.lower(): value for name, value in request.headers.items()}
    if "key" in query:  # clients of one family may send the key in the query
        headers.setdefault("x-goog-api-key", query["key"])
    for family in FAMILIES:
        route = family.find(unquote(request.path), headers)
        if route is None:
            continue
        if request.method != route.method:
            message = f"Method {request.method} is not allowed on this path: use {route.method}."
            raise Refusal(message, status=405)
        return family, replace(route, query=query)
    raise Refusal(f"Invalid URL ({request.method} {request.path})", status=404)


def read(
    family: Family, route: Route, request: HTTPServerRequest
) -> tuple[ModelRequest, ModelAnswer]:
    """Read a request and compose its answer. Raises Refusal for an invalid body."""
    try:
        facts = family.read(route, dict(request.headers), json.loads(request.body))
        return facts, compose(facts)
    except (AttributeError, LookupError, TypeError, ValueError, RecursionError) as error:
        raise Refusal(f"The body is not a request: {error!r}") from error


def write_line(path: Path, request: HTTPServerRequest) -> None:
    """Append a request to the log file."""
    entry = {
        "at_ms": time.time_ns() // 1_000_000,
        "method": request.method,
        "path": request.uri,
        "headers": dict(request.headers),
        "body": request.body.decode("utf-8", "replace"),
    }
    with path.open("ab") as file:
        file.write(encode_json(entry) + b"\n")
