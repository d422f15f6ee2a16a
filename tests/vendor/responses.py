"""The tests' vendor in the responses family. Shapes: official types of the openai SDK."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from demo import responses as demo
from demo.family import ModelAnswer, ModelRequest, Route, new_id
from demo.responses import numbered, output_items, response_events, usage_of
from demo.speech import sign
from tests.vendor.chat_completions import OpenAIFamily
from tests.vendor.directives import Script
from tests.vendor.family import Refusal
from tests.vendor.responses_request import check_request
from tests.vendor.stored import Shelf, Stored

PATH = "/v1/responses"
STORED_PATH = re.compile(rf"{PATH}/([^/]+)(/cancel|/input_items)?")
ITEMS_PAGE = 20
ITEMS_PAGE_MAX = 100
FLOOD_PIECES_REPEATED = 16
PADDED_CHARACTERS = 16
TERMINAL = ("completed", "incomplete")


class Responses(OpenAIFamily, demo.Responses):
    garbage = (
        b"event: response.output_text.delta\n"
        b'data: {"type":"response.output_text.delta","item_id":"msg_demo","del\n\n'
    )

    def __init__(self) -> None:
        self._shelf = Shelf()

    def route(self, method: str, path: str, headers: Mapping[str, str]) -> Route | None:
        route = self.find(path, headers)
        if path == f"{PATH}/compact":
            return Route("compact")
        match = STORED_PATH.fullmatch(path)
        if route is not None or match is None:
            return route
        name, rest = match[1], match[2]
        if rest == "/cancel":
            return Route("cancel", "POST", name)
        if rest == "/input_items":
            return Route("items", "GET", name)
        forget = method == "DELETE"
        return Route("forget" if forget else "stored", "DELETE" if forget else "GET", name)

    def read(self, route: Route, headers: Mapping[str, str], body: dict[str, Any]) -> ModelRequest:
        stored_tokens, tools, tool_mode = check_request(body, route.task, self._shelf)
        request = super().read(route, headers, body)
        tokens = stored_tokens + request.input_tokens
        return replace(request, input_tokens=tokens, tools=tools, tool_mode=tool_mode)

    def lookup(self, route: Route) -> dict[str, Any]:
        name = route.argument
        stored = self._shelf.get(name)
        if stored is None:
            raise Refusal(f"Response with id '{name}' not found.", kind="plain", status=404)
        if route.task == "forget":
            self._shelf.drop(name)
            return {"id": name, "object": "response", "deleted": True}
        if route.task == "items":
            return _page(json.loads(stored.items), route.query)
        if route.task == "cancel":
            return _cancel(stored)
        if route.query.get("stream") == "true":
            raise Refusal("A stored response cannot be streamed here.", ("stream",), "plain")
        stored.waiting = False
        return _decode(stored)

    def scripted(
        self, request: ModelRequest, answer: ModelAnswer, script: Script
    ) -> dict[str, Any]:
        finished = self.plain(request, answer)
        if script.refusal:
            for item in finished["output"]:
                _refuse_item(item)
        self._keep(request, finished, script)
        if not finished["background"]:
            return finished
        waiting = {"output": [], "usage": None, "completed_at": None, "incomplete_details": None}
        return {**finished, **waiting, "status": "queued"}

    def scripted_events(
        self, request: ModelRequest, answer: ModelAnswer, script: Script
    ) -> Iterator[dict[str, Any]]:
        # Each event that repeats the text would be as big as a flood.
        repeated = answer.pieces if script.flood is None else answer.pieces[:FLOOD_PIECES_REPEATED]
        output = output_items(request, replace(answer, pieces=repeated))
        return numbered(self._scripted(request, response_events(request, answer, output), script))

    def _scripted(
        self, request: ModelRequest, events: Iterator[dict[str, Any]], script: Script
    ) -> Iterator[dict[str, Any]]:
        padded = (request.body.get("stream_options") or {}).get("include_obfuscation")
        for event in events:
            if script.refusal:
                event = _refused(event)
            if padded and "delta" in event:
                event["obfuscation"] = "x" * (-len(event["delta"]) % PADDED_CHARACTERS)
            if event["type"] not in TERMINAL:
                yield event
                if event["type"] == "created" and event["response"]["background"]:
                    queued = {**event["response"], "status": "queued"}
                    yield {"type": "queued", "response": queued}
                continue
            # Before the last event: whoever has seen it may name the response at once.
            self._keep(request, event["response"], script)
            if not script.no_done:
                yield from (event,) * (2 if script.usage == "repeated" else 1)

    def compaction(self, request: ModelRequest, answer: ModelAnswer) -> dict[str, Any]:
        """Answer a compaction: the user's messages, and one sealed item for the rest."""
        users = [item for item in _input_items(request) if item.get("role") == "user"]
        sealed = sign("".join(answer.pieces).encode("utf-8", "replace"))
        rest = {"id": new_id("cmp"), "type": "compaction", "encrypted_content": sealed}
        opened = demo.opened_response(request)
        return {
            "id": opened["id"],
            "object": "response.compaction",
            "created_at": opened["created_at"],
            "output": [*users, rest],
            "usage": usage_of(answer.counts),
        }

    def refusal(self, refusal: Refusal, request_id: str) -> dict[str, Any]:
        shaped = super().refusal(refusal, request_id)
        if refusal.status == 404:
            # The chat vendor's code is about the model; this one about the object of an id.
            shaped["error"]["code"] = refusal.code
        return shaped

    def error_event(self, refusal: Refusal, request_id: str) -> bytes:
        """Encode the two events that end a broken stream; one if it has not started.

        The flat form is that of the official types. Vendors have been seen to send the error as an
        object too; that is added if the script names an error type.
        """
        error = self.refusal(refusal, request_id)["error"]
        first, last = (_decode_event(event) for event in refusal.after)
        number = last.get("sequence_number", -1) + 1
        names = ("code", "message", "param")
        event: dict[str, Any] = {"type": "error", **{name: error[name] for name in names}}
        if refusal.error_type is not None:
            event["error"] = error
        data = self.encode({**event, "sequence_number": number})
        if "response" not in first:
            return data
        failed = {
            **first["response"],
            "status": "failed",
            "error": {"code": error["code"] or "server_error", "message": error["message"]},
        }
        value = {"type": "response.failed", "response": failed, "sequence_number": number + 1}
        return data + self.encode(value)

    def _keep(self, request: ModelRequest, finished: dict[str, Any], script: Script) -> None:
        if finished["store"] and script.flood is None:
            self._shelf.put(finished, _input_items(request))


def _refuse_item(item: dict[str, Any]) -> None:
    if item["type"] == "message":
        item["content"] = [{"type": "refusal", "refusal": item["content"][0]["text"]}]


def _refused(event: dict[str, Any]) -> dict[str, Any]:
    """Return a text event as a refusal event."""
    if event["type"].startswith("output_text."):
        event["type"] = event["type"].replace("output_text", "refusal")
        del event["logprobs"]
        if "text" in event:
            event["refusal"] = event.pop("text")
    if event.get("part", {}).get("type") == "output_text":
        event["part"] = {"type": "refusal", "refusal": event["part"]["text"]}
    if event["type"] == "output_item.done" and event["item"]["type"] == "message":
        # The item is also part of the last event.
        _refuse_item(event["item"])
    return event


def _decode(stored: Stored) -> dict[str, Any]:
    response: dict[str, Any] = json.loads(stored.response)
    return response


def _decode_event(data: bytes) -> dict[str, Any]:
    """Decode an event of a family or a sample file."""
    for line in data.splitlines():
        if line.startswith(b"data:"):
            value: dict[str, Any] = json.loads(line.removeprefix(b"data:"))
            return value
    return {}


def _cancel(stored: Stored) -> dict[str, Any]:
    if not stored.background:
        raise Refusal("Cannot cancel a synchronous response.", kind="plain")
    response = _decode(stored)
    if stored.waiting:
        response |= {"status": "cancelled", "output": [], "usage": None}
        response |= {"completed_at": None, "incomplete_details": None}
        stored.response = json.dumps(response).encode()
        stored.waiting = False
    return response


def _input_items(request: ModelRequest) -> list[dict[str, Any]]:
    """Return the input as the vendor stores it: typed items with ids, texts as parts."""
    sent = request.body.get("input") or []
    items = [{"role": "user", "content": sent}] if isinstance(sent, str) else sent
    return [_input_item(item) for item in items]


def _input_item(item: Mapping[str, Any]) -> dict[str, Any]:
    kind = item.get("type") or ("message" if "role" in item else "item_reference")
    if kind != "message":
        return {**item, "type": kind, "id": item.get("id") or new_id("item")}
    content = item["content"]
    if isinstance(content, str):
        assistant = item["role"] == "assistant"
        content = [{"type": "output_text" if assistant else "input_text", "text": content}]
    name = item.get("id") or new_id("msg")
    return {**item, "type": kind, "id": name, "status": "completed", "content": content}


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
