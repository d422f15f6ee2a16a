"""The openai SDK as a client of chat completions."""

import json
from typing import Any

import httpx2
import openai

from tests.sdk.world import TIMEOUT_S
from tests.translation.talk import KETTLE, PIXEL_BASE64, PLACE, TOOLS, Call, Model, Seen, User

FAMILY = "chat_completions"
ERROR = openai.APIError


class OpenAIClient:
    def __init__(self, base_url, key, wire):
        http_client = httpx2.Client(transport=wire, timeout=TIMEOUT_S)
        self._sdk = openai.OpenAI(
            api_key=key, base_url=f"{base_url}/v1", max_retries=0, http_client=http_client
        )


class Client(OpenAIClient):
    def ask(self, want, *, stream):
        asked = _request(want)
        if stream:
            options = {"stream": True, "stream_options": {"include_usage": True}}
            answer = self._sdk.chat.completions.create(**asked, **options)
            request_id = answer.response.headers["x-request-id"]
            seen = _gathered(answer)
        else:
            raw = self._sdk.chat.completions.with_raw_response.create(**asked)
            answer, request_id = raw.parse(), raw.headers["x-request-id"]
            choice = answer.choices[0]
            message = choice.message.model_dump(exclude_none=True)
            seen = _seen(message, choice.finish_reason, answer.usage, answer.model)
        seen.request_id = request_id
        return seen


def _request(want):
    asked: dict[str, Any] = {"model": want.model, "max_completion_tokens": want.limit}
    messages: list[Any] = []
    if want.system:
        messages.append({"role": "system", "content": want.system})
    for turn in want.turns:
        messages += _messages(turn)
    asked["messages"] = messages
    if want.tools:
        asked["tools"] = [
            {"type": "function", "function": {"name": name, "parameters": PLACE}} for name in TOOLS
        ]
    if want.force:
        asked["tool_choice"] = {"type": "function", "function": {"name": want.force}}
    if want.schema:
        described = {"name": "kettle", "schema": KETTLE, "strict": True}
        asked["response_format"] = {"type": "json_schema", "json_schema": described}
    if want.temperature is not None:
        asked["temperature"] = want.temperature
    if want.thinking:
        asked["reasoning_effort"] = "medium"
    if want.stop:
        asked["stop"] = [want.stop]
    return asked


def _messages(turn):
    if isinstance(turn, User):
        if not turn.image:
            return [{"role": "user", "content": turn.text}]
        url = {"url": f"data:image/png;base64,{PIXEL_BASE64}"}
        parts = [{"type": "text", "text": turn.text}, {"type": "image_url", "image_url": url}]
        return [{"role": "user", "content": parts}]
    if isinstance(turn, Model):
        return [{"role": "assistant", "content": turn.text}]
    if isinstance(turn, Seen):
        return [turn.native]
    return [
        {"role": "tool", "tool_call_id": result.call.id, "content": result.text} for result in turn
    ]


def _gathered(stream):
    """Return the message accumulated from the deltas, including fields without a type in the
    SDK."""
    message: dict[str, Any] = {"role": "assistant"}
    calls: dict[int, dict[str, Any]] = {}
    finish, usage, model = "", None, ""
    for chunk in stream:
        usage, model = chunk.usage or usage, chunk.model
        for choice in chunk.choices:
            finish = choice.finish_reason or finish
            delta = choice.delta.model_dump(exclude_none=True)
            for call in delta.pop("tool_calls", ()):
                _merge(calls.setdefault(call.pop("index"), {}), call)
            _merge(message, delta)
    if calls:
        message["tool_calls"] = [calls[index] for index in sorted(calls)]
        assert sorted(calls) == list(range(len(calls))), "indexes have gaps"
    return _seen(message, finish, usage, model)


def _merge(into, delta):
    for name, value in delta.items():
        if isinstance(value, dict):
            _merge(into.setdefault(name, {}), value)
        elif isinstance(value, str) and name not in ("role", "id", "type", "name"):
            into[name] = into.get(name, "") + value
        else:
            into[name] = value


def _seen(message, finish, usage, model):
    calls = [
        Call(call["id"], call["function"]["name"], json.loads(call["function"]["arguments"]))
        for call in message.get("tool_calls", ())
    ]
    counts = ()
    if usage is not None:
        prompt, output = usage.prompt_tokens_details, usage.completion_tokens_details
        written = (prompt.model_extra or {}).get("cache_write_tokens")
        written = getattr(prompt, "cache_write_tokens", written)
        counts = (
            usage.prompt_tokens, prompt.cached_tokens, written, usage.completion_tokens,
            output.reasoning_tokens,
        )  # fmt: skip
        assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
    return Seen(
        text=message.get("content") or "",
        thoughts=message.get("reasoning_content", ""),
        calls=calls,
        finish=finish,
        refused=bool(message.get("refusal")) or finish == "content_filter",
        usage=counts,
        model=model,
        native=message,
    )
