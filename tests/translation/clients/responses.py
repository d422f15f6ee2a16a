"""The openai SDK as a client of responses."""

import json
from typing import Any

import openai

from tests.translation.clients.chat import OpenAIClient
from tests.translation.talk import KETTLE, PIXEL_BASE64, PLACE, TOOLS, Call, Model, Seen, User

FAMILY = "responses"
ERROR = openai.APIError
SEALED = "reasoning.encrypted_content"
ENDS = ("response.completed", "response.incomplete")


class Client(OpenAIClient):
    def ask(self, want, *, stream):
        asked = _request(want)
        if stream:
            events = self._sdk.responses.create(**asked, stream=True)
            request_id = events.response.headers["x-request-id"]
            answer = _last(events)
        else:
            raw = self._sdk.responses.with_raw_response.create(**asked)
            answer, request_id = raw.parse(), raw.headers["x-request-id"]
        seen = _seen(answer)
        seen.request_id = request_id
        return seen


def _request(want):
    asked: dict[str, Any] = {
        "model": want.model, "max_output_tokens": want.limit, "store": False,
        "input": [item for turn in want.turns for item in _items(turn)],
    }  # fmt: skip
    if want.system:
        asked["instructions"] = want.system
    if want.tools:
        asked["tools"] = [
            {"type": "function", "name": name, "parameters": PLACE, "strict": True}
            for name in TOOLS
        ]
    if want.force:
        asked["tool_choice"] = {"type": "function", "name": want.force}
    if want.schema:
        described = {"type": "json_schema", "name": "kettle", "schema": KETTLE, "strict": True}
        asked["text"] = {"format": described}
    if want.temperature is not None:
        asked["temperature"] = want.temperature
    if want.thinking:
        asked["reasoning"] = {"effort": "medium", "summary": "auto"}
        asked["include"] = [SEALED]
    return asked


def _items(turn):
    if isinstance(turn, User):
        if not turn.image:
            return [{"role": "user", "content": turn.text}]
        image = {"type": "input_image", "image_url": f"data:image/png;base64,{PIXEL_BASE64}"}
        content = [{"type": "input_text", "text": turn.text}, {**image, "detail": "auto"}]
        return [{"role": "user", "content": content}]
    if isinstance(turn, Model):
        return [{"role": "assistant", "content": turn.text}]
    if isinstance(turn, Seen):
        return turn.native
    return [
        {"type": "function_call_output", "call_id": result.call.id, "output": result.text}
        for result in turn
    ]


def _last(events):
    """Return the response of the last event; check that the events before it had the same
    content."""
    text, arguments, number, items = "", {}, -1, []
    answer = None
    for event in events:
        number += 1
        assert event.sequence_number == number
        if event.type == "error":
            raise openai.APIError(event.message, request=None, body=None)  # type: ignore[arg-type]
        if event.type == "response.output_text.delta":
            text += event.delta
        elif event.type == "response.function_call_arguments.delta":
            arguments[event.output_index] = arguments.get(event.output_index, "") + event.delta
        elif event.type == "response.output_item.done":
            items.append(event.item)
        elif event.type in ENDS:
            answer = event.response
    assert answer is not None, "no last event"
    assert answer.output_text == text
    assert items == answer.output
    for index, words in arguments.items():
        assert answer.output[index].arguments == words
    return answer


def _seen(answer):
    items = [item.model_dump(exclude_none=True) for item in answer.output]
    parts = [
        part for item in items for part in item.get("content", ()) if item["type"] == "message"
    ]
    usage = answer.usage
    read, written = usage.input_tokens_details, usage.output_tokens_details
    assert usage.total_tokens == usage.input_tokens + usage.output_tokens
    reason = answer.incomplete_details.reason if answer.incomplete_details else ""
    return Seen(
        text=answer.output_text,
        thoughts="".join(
            part["text"]
            for item in items
            if item["type"] == "reasoning"
            for part in item["summary"] or item.get("content", ())
        ),
        calls=[
            Call(item["call_id"], item["name"], json.loads(item["arguments"]))
            for item in items
            if item["type"] == "function_call"
        ],
        finish=reason or answer.status,
        refused=any(part["type"] == "refusal" for part in parts) or reason == "content_filter",
        usage=(
            usage.input_tokens, read.cached_tokens, read.cache_write_tokens,
            usage.output_tokens, written.reasoning_tokens,
        ),
        model=answer.model,
        native=items,
    )  # fmt: skip
