"""The scripted vendor as a speaker of responses: routes, answers, stored responses and errors.

The checks of a request are in request.py, the objects in object.py, the stream in stream.py.
Shapes: official types of the openai SDK as of November 2026.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from demo.chat_completions.family import CHAT_COMPLETIONS
from demo.responses.object import (
    compaction,
    finished_response,
    input_items,
    is_stored,
    opened_response,
    output_items,
)
from demo.responses.request import read_request
from demo.responses.stored import Shelf, Stored
from demo.responses.stream import EventStream, failure_events
from demo.script.directives import Script
from demo.script.family import Ask, Family, Refusal, Route, Said, Task

PATH = "/v1/responses"
TASKS: dict[str, Task] = {PATH: "generate", f"{PATH}/input_tokens": "count"}
TASKS[f"{PATH}/compact"] = "compact"
STORED_PATH = re.compile(rf"{PATH}/([^/]+)(/cancel|/input_items)?")
ITEMS_PAGE = 20
ITEMS_PAGE_MAX = 100
FLOOD_PIECES_REPEATED = 16


class Responses:
    """Another endpoint of the vendor of chat completions: credential, headers, errors are his."""

    name = "responses"
    garbage = (
        b"event: response.output_text.delta\n"
        b'data: {"type":"response.output_text.delta","item_id":"msg_demo","del\n\n'
    )

    def __init__(self) -> None:
        self._shelf = Shelf()

    def find(self, path: str, headers: Mapping[str, str]) -> Route | None:
        if path in TASKS:
            return Route(TASKS[path], "POST")
        match = STORED_PATH.fullmatch(path)
        if match is None:
            return None
        name, rest = match[1], match[2]
        if rest == "/cancel":
            return Route("cancel", "POST", name)
        if rest == "/input_items":
            return Route("items", "GET", name)
        return Route("stored", "GET", name, also=(("DELETE", "forget"),))

    def admit(self, headers: Mapping[str, str]) -> None:
        CHAT_COMPLETIONS.admit(headers)

    def check_content_type(self, value: str) -> None:
        CHAT_COMPLETIONS.check_content_type(value)

    def read(self, route: Route, headers: Mapping[str, str], body: dict[str, Any]) -> Ask:
        return read_request(body, route.task, self._shelf)

    def lookup(self, route: Route, query: Mapping[str, str]) -> dict[str, Any]:
        name = route.argument
        found = self._shelf.get(name)
        if found is None:
            problem = f"Response with id '{name}' not found."
            raise Refusal(problem, kind="plain", status=404)
        if route.task == "forget":
            self._shelf.drop(name)
            return {"id": name, "object": "response", "deleted": True}
        if route.task == "items":
            return _page(json.loads(found.items), query)
        if route.task == "cancel":
            return _cancel(found)
        if query.get("stream") == "true":
            raise Refusal("A stored response cannot be streamed here.", ("stream",), "plain")
        found.waiting = False
        return _decode(found)

    def count(self, ask: Ask) -> dict[str, Any]:
        return {"object": "response.input_tokens", "input_tokens": ask.input_tokens}

    def plain(self, ask: Ask, said: Said, script: Script) -> dict[str, Any]:
        if ask.task == "compact":
            return compaction(ask, said)
        opened = opened_response(ask)
        finished = finished_response(opened, said, output_items(ask, said, script), script)
        self._keep(ask, finished, script)
        return {**opened, "status": "queued"} if opened["background"] else finished

    def events(self, ask: Ask, said: Said, script: Script) -> Iterator[bytes]:
        opened = opened_response(ask)
        stream = EventStream(ask, said, script)
        if script.flood is not None:
            # The events that repeat the text would each be as big as the flood.
            shown = replace(said, pieces=said.pieces[:FLOOD_PIECES_REPEATED])
        else:
            shown = said
        output = output_items(ask, shown, script)
        yield from stream.body(opened, output)
        finished = finished_response(opened, said, output, script)
        # Before the last event: who has seen that may name the response at once.
        self._keep(ask, finished, script)
        yield from stream.end(finished)

    def refusal(self, refusal: Refusal, request_id: str) -> dict[str, Any]:
        shaped = CHAT_COMPLETIONS.refusal(refusal, request_id)
        if refusal.status == 404:
            # The chat vendor says there that it is the model; here it is the thing of an id.
            shaped["error"]["code"] = refusal.code
        return shaped

    def error_event(self, refusal: Refusal, request_id: str) -> bytes:
        return failure_events(self.refusal(refusal, request_id)["error"], refusal)

    def ping(self) -> bytes:
        return b""

    def answer_headers(self, request_id: str) -> dict[str, str]:
        return CHAT_COMPLETIONS.answer_headers(request_id)

    def _keep(self, ask: Ask, finished: dict[str, Any], script: Script) -> None:
        if is_stored(ask) and script.flood is None:
            self._shelf.put(finished, input_items(ask))


def _decode(found: Stored) -> dict[str, Any]:
    response: dict[str, Any] = json.loads(found.response)
    return response


def _cancel(found: Stored) -> dict[str, Any]:
    if not found.background:
        raise Refusal("Cannot cancel a synchronous response.", kind="plain")
    response = _decode(found)
    if found.waiting:
        response |= {"status": "cancelled", "output": [], "usage": None}
        response |= {"completed_at": None, "incomplete_details": None}
        found.response = json.dumps(response).encode()
        found.waiting = False
    return response


def _page(items: list[dict[str, Any]], query: Mapping[str, str]) -> dict[str, Any]:
    limit = query.get("limit", str(ITEMS_PAGE))
    if not re.fullmatch(r"[0-9]{1,3}", limit) or not 1 <= int(limit) <= ITEMS_PAGE_MAX:
        raise Refusal(f"must be between 1 and {ITEMS_PAGE_MAX}", ("limit",))
    order = query.get("order", "desc")
    if order not in ("asc", "desc"):
        raise Refusal("must be one of asc, desc", ("order",))
    if order == "desc":
        items = items[::-1]
    names = [item["id"] for item in items]
    if query.get("after") in names:
        items = items[names.index(query["after"]) + 1 :]
    page = items[: int(limit)]
    return {
        "object": "list",
        "data": page,
        "first_id": page[0]["id"] if page else None,
        "last_id": page[-1]["id"] if page else None,
        "has_more": len(page) < len(items),
    }


RESPONSES: Family = Responses()
