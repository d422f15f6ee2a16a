"""The anthropic SDK."""

from typing import Any

import anthropic
import httpx2

from tests.sdk.world import TIMEOUT_S
from tests.translation.talk import KETTLE, PIXEL_BASE64, PLACE, TOOLS, Call, Model, Seen, User

FAMILY = "messages"
ERROR = anthropic.APIError


class Client:
    def __init__(self, base_url, key, wire):
        http_client = httpx2.Client(transport=wire, timeout=TIMEOUT_S)
        self._sdk = anthropic.Anthropic(
            api_key=key, base_url=base_url, max_retries=0, http_client=http_client
        )

    def ask(self, want, *, stream):
        asked = _request(want)
        if not stream:
            answer = self._sdk.messages.create(**asked)
            return _seen(answer, answer._request_id)
        with self._sdk.messages.stream(**asked) as events:
            stops = [event.type for event in events].count("message_stop")
            assert stops == 1
            return _seen(events.get_final_message(), events.response.headers["request-id"])


def _request(want):
    asked: dict[str, Any] = {
        "model": want.model, "max_tokens": want.limit,
        "messages": [_message(turn) for turn in want.turns],
    }  # fmt: skip
    if want.system:
        asked["system"] = want.system
    if want.tools:
        asked["tools"] = [{"name": name, "input_schema": PLACE} for name in TOOLS]
    if want.force:
        asked["tool_choice"] = {"type": "tool", "name": want.force}
    if want.schema:
        asked["output_config"] = {"format": {"type": "json_schema", "schema": KETTLE}}
    if want.temperature is not None:  # not a parameter of the SDK
        asked["extra_body"] = {"temperature": want.temperature}
        asked["extra_headers"] = {"anthropic-version": "2023-06-01"}
    if want.thinking:
        asked["thinking"] = {"type": "adaptive", "display": "summarized"}
        asked["output_config"] = {"effort": "medium"}
    if want.stop:
        asked["stop_sequences"] = [want.stop]
    return asked


def _message(turn):
    if isinstance(turn, User):
        content: list[Any] = [{"type": "text", "text": turn.text}]
        if turn.image:
            source = {"type": "base64", "media_type": "image/png", "data": PIXEL_BASE64}
            content.append({"type": "image", "source": source})
        return {"role": "user", "content": content}
    if isinstance(turn, Model):
        return {"role": "assistant", "content": turn.text}
    if isinstance(turn, Seen):
        return {"role": "assistant", "content": turn.native}
    results = [
        {
            "type": "tool_result", "tool_use_id": result.call.id, "content": result.text,
            **({"is_error": True} if result.error else {}),
        }
        for result in turn
    ]  # fmt: skip
    return {"role": "user", "content": results}


def _seen(answer, request_id):
    blocks = answer.content
    usage = answer.usage
    read, written = usage.cache_read_input_tokens or 0, usage.cache_creation_input_tokens or 0
    details = usage.output_tokens_details
    return Seen(
        text="".join(block.text for block in blocks if block.type == "text"),
        thoughts="".join(block.thinking for block in blocks if block.type == "thinking"),
        calls=[Call(b.id, b.name, b.input) for b in blocks if b.type == "tool_use"],
        finish=answer.stop_reason,
        stop=answer.stop_sequence,
        refused=answer.stop_reason == "refusal",
        usage=(
            usage.input_tokens + read + written, read, written, usage.output_tokens,
            details.thinking_tokens if details else None,
        ),
        model=answer.model,
        request_id=request_id,
        native=[block.model_dump(exclude_none=True) for block in blocks],
    )  # fmt: skip
