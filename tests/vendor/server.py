"""The scripted vendor's server: connections, routing to the families, and its own three pages.

`GET /__log` (the requests that reached it, ndjson), `POST /__reset` (clear that), `GET /__stats`.
A family is one line in FAMILIES.
"""

from __future__ import annotations

import asyncio
import resource
import secrets
from dataclasses import replace
from pathlib import Path

from demo.family import Route
from tests.vendor import endpoints, sessions
from tests.vendor.chat_completions import ChatCompletions
from tests.vendor.compose import Answer, Composer, json_answer, plain_answer
from tests.vendor.directives import ScriptError, read_script
from tests.vendor.family import LOOKUPS, Refusal, StrictFamily
from tests.vendor.fields import decode_object
from tests.vendor.generate_content import GenerateContent
from tests.vendor.http1 import BadRequest, ClientGone, Hangup, Request, Wire, read_request
from tests.vendor.log import Entry, RequestLog
from tests.vendor.messages import Messages
from tests.vendor.perform import Performance
from tests.vendor.responses import Responses

FALLBACK = ChatCompletions()  # answers where the family is unknown
# The first family wins a path that two families have.
FAMILIES: tuple[StrictFamily, ...] = (Messages(), GenerateContent(), FALLBACK, Responses())

BACKLOG_CONNECTIONS = 4096
STOP_TIMEOUT_S = 5
DESCRIPTORS_MAX = 65_536


def raise_descriptor_limit() -> None:
    """Raise the limit of descriptors: a stalled call holds one, and a test may need a thousand."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = DESCRIPTORS_MAX if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS_MAX)
    if soft < limit:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))


class VendorServer:
    def __init__(self, log: RequestLog, samples: Path | None = None) -> None:
        self._log = log
        self._samples = samples
        self._wires: dict[Wire, asyncio.Task[None] | None] = {}
        self._accepted = 0
        self._streams = 0
        self._server: asyncio.Server | None = None

    async def start(self, host: str, port: int) -> int:
        """Listen; return the port (a free one for 0)."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            self._protocol, host, port, backlog=BACKLOG_CONNECTIONS
        )
        bound: int = self._server.sockets[0].getsockname()[1]
        return bound

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        serving = [task for task in self._wires.values() if task is not None]
        for wire in self._wires:
            wire.abort()
        if serving:
            await asyncio.wait(serving, timeout=STOP_TIMEOUT_S)
        self._log.close()

    def _protocol(self) -> asyncio.StreamReaderProtocol:
        loop = asyncio.get_running_loop()
        self._accepted += 1
        wire = Wire(self._accepted, loop)

        async def connected(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            wire.attach(writer)
            await self._serve(wire)

        return asyncio.StreamReaderProtocol(wire, connected, loop=loop)

    async def _serve(self, wire: Wire) -> None:
        self._wires[wire] = asyncio.current_task()
        try:
            while await self._serve_request(wire):
                wire.busy = False
        except (ClientGone, Hangup):
            pass
        finally:
            del self._wires[wire]
            wire.close()

    async def _serve_request(self, wire: Wire) -> bool:
        """Serve one request. Return False if the connection must be closed after it."""
        try:
            request = await read_request(wire)
        except BadRequest as error:
            await self._refuse_bytes(wire, error)
            return False
        if request is None:
            return False
        wire.busy = True
        own = self._own_page(request)
        entry = self._own_entry(request, wire) if own else self._log.arrived(request, wire.number)
        answer = own or self._answer(request, entry)
        self._streams += answer.streaming
        try:
            await Performance(wire, answer, entry).run(keep_alive=request.keep_alive)
        finally:
            self._streams -= answer.streaming
        return request.keep_alive

    async def _refuse_bytes(self, wire: Wire, error: BadRequest) -> None:
        request = error.request or Request("", "")
        entry = self._log.arrived(request, wire.number, error.problem)
        self._log.write(entry)
        if wire.gone_at_ms is not None:
            entry.gone_at_ms = wire.gone_at_ms
            return
        refusal = Refusal(error.problem, kind="plain", status=error.status)
        answer = json_answer(error.status, FALLBACK.refusal(refusal, ""))
        await Performance(wire, answer, entry).run(keep_alive=False)

    def _answer(self, request: Request, entry: Entry) -> Answer:
        request_id = f"req_{secrets.token_hex(12)}"
        family: StrictFamily = FALLBACK
        try:
            if (answer := endpoints.answer(request, entry, request_id)) is not None:
                self._log.write(entry)
                return answer
            family, route = _find(request)
            entry.family = family.name
            answer = self._family_answer(family, route, request, entry, request_id)
        except ScriptError as error:
            refusal = Refusal(str(error), kind="plain")
            answer = json_answer(400, family.refusal(refusal, request_id))
        except Refusal as refusal:
            answer = json_answer(refusal.status, family.refusal(refusal, request_id))
        # Before the answer: the line must be there whatever happens to the caller.
        self._log.write(entry)
        headers = {**family.answer_headers(request_id), **answer.headers}
        return replace(answer, headers=headers)

    def _family_answer(
        self, family: StrictFamily, route: Route, request: Request, entry: Entry, request_id: str
    ) -> Answer:
        if request.method != route.method:
            problem = f"Method {request.method} is not allowed on this path: use {route.method}."
            raise Refusal(problem, kind="plain", status=405)
        family.admit(_headers(request))
        if route.task in LOOKUPS:
            return json_answer(200, family.lookup(route))
        family.check_content_type(request.headers.get("content-type", ""))
        body = decode_object(request.body)
        model = body.get("model")
        entry.model = model if isinstance(model, str) else route.argument or None
        entry.stream = body.get("stream") is True or route.stream
        ask = family.read(route, request.headers, body)
        entry.model, entry.stream = ask.model, ask.stream
        turn = sessions.turn(body, ask) if sessions.OPENING in request.body else None
        script = read_script(ask.prompt, ask.model)
        return Composer(family, route, ask, script, self._samples, request_id, turn).compose()

    def _own_page(self, request: Request) -> Answer | None:
        match (request.method, request.path):
            case ("GET", "/__log"):
                body = b"".join(self._log.lines())
                return plain_answer(200, "application/x-ndjson", body)
            case ("POST", "/__reset"):
                self._log.reset()
                return json_answer(200, {})
            case ("GET", "/__stats"):
                return json_answer(200, self._stats())
        return None

    def _own_entry(self, request: Request, wire: Wire) -> Entry:
        return Entry(0, 0, request.method, request.target, {}, "", "", wire.number)

    def _stats(self) -> dict[str, int]:
        """Return the statistics; the connection that asks is not counted."""
        return {"connections": len(self._wires) - 1, "streams": self._streams}


def _headers(request: Request) -> dict[str, str]:
    """Return the headers, with a key from the query, where clients of one family may send it."""
    key = request.query.get("key")
    return request.headers if key is None else {"x-goog-api-key": key, **request.headers}


def _find(request: Request) -> tuple[StrictFamily, Route]:
    for family in FAMILIES:
        route = family.route(request.method, request.path, _headers(request))
        if route is not None:
            return family, replace(route, query=request.query)
    problem = f"Invalid URL ({request.method} {request.path})"
    raise Refusal(problem, kind="plain", status=404, code="unknown_url")
