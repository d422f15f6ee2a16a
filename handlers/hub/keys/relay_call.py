"""A test call: a real one, to the relay of this installation, with a secret that its owner has.

The call goes to the relay's own address and nowhere else; it is authenticated, charged and recorded
as any other. The secret is kept nowhere.
"""

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from tornado.httpclient import HTTPError, HTTPRequest
from tornado.simple_httpclient import SimpleAsyncHTTPClient

from conf.settings import ServerSettings
from operations.client_settings import MESSAGES_VERSION, PROMPT, base_url

MAX_BODY_BYTES = 64 * 1024
MAX_TEXT_CHARS = 2000
MAX_TOKENS = 200
CONNECT_TIMEOUT_S = 5
TIMEOUT_S = 90
AGENT = "sluice-hub-test"


@dataclass(frozen=True, slots=True)
class Asked:
    """What is called: a model, as a client of the family would, with a secret."""

    family: str
    model: str
    secret: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Answered:
    """How a call went. `status` None: no answer, `error` says why. `text`: what the model said, or
    the body of an error; `request_id` names the usage record, if there is one."""

    status: int | None
    request_id: str | None
    first_byte_ms: int | None
    total_ms: int
    text: str
    error: str | None = None


async def call(server: ServerSettings, asked: Asked) -> Answered:
    """Make the call; the answer is cut at MAX_BODY_BYTES."""
    path, headers, body = _REQUESTS[asked.family](asked)
    own = base_url(ServerSettings(host=server.host, port=server.port))
    received = bytearray()
    began = time.monotonic()
    first: list[float] = []

    def take(chunk: bytes) -> None:
        if not first:
            first.append(time.monotonic())
        received.extend(chunk[: max(0, MAX_BODY_BYTES - len(received))])

    request = HTTPRequest(
        own + path,
        method="POST",
        headers={**headers, "Content-Type": "application/json", "User-Agent": AGENT},
        body=json.dumps(body),
        connect_timeout=CONNECT_TIMEOUT_S,
        request_timeout=TIMEOUT_S,
        follow_redirects=False,
        streaming_callback=take,
    )
    client = SimpleAsyncHTTPClient(force_instance=True)
    status: int | None = None
    request_id = error = None
    try:
        answer = await client.fetch(request, raise_error=False)
        status, request_id = answer.code, answer.headers.get("x-request-id")
    except (OSError, HTTPError) as failure:  # no answer: a status of the relay's own raises nothing
        error = str(failure)
    finally:
        client.close()
    total_ms = _ms(time.monotonic() - began)
    first_ms = _ms(first[0] - began) if first else None
    text = received.decode("utf-8", "replace")
    said = _said(asked.family, text) if status == OK else text
    return Answered(status, request_id, first_ms, total_ms, said[:MAX_TEXT_CHARS], error)


OK = 200

Request = tuple[str, Mapping[str, str], Mapping[str, Any]]


def _chat(asked: Asked) -> Request:
    messages = [{"role": "user", "content": PROMPT}]
    body = {"model": asked.model, "stream": True, "messages": messages}
    return "/v1/chat/completions", _bearer(asked), body


def _responses(asked: Asked) -> Request:
    return "/v1/responses", _bearer(asked), {"model": asked.model, "stream": True, "input": PROMPT}


def _messages(asked: Asked) -> Request:
    body = {
        "model": asked.model,
        "max_tokens": MAX_TOKENS,
        "stream": True,
        "messages": [{"role": "user", "content": PROMPT}],
    }
    return "/v1/messages", {"x-api-key": asked.secret, "anthropic-version": MESSAGES_VERSION}, body


def _generate(asked: Asked) -> Request:
    path = f"/v1beta/models/{quote(asked.model, safe='')}:streamGenerateContent?alt=sse"
    body = {"contents": [{"role": "user", "parts": [{"text": PROMPT}]}]}
    return path, {"x-goog-api-key": asked.secret}, body


def _bearer(asked: Asked) -> dict[str, str]:
    return {"Authorization": f"Bearer {asked.secret}"}


_REQUESTS: Mapping[str, Callable[[Asked], Request]] = {
    "chat_completions": _chat,
    "responses": _responses,
    "messages": _messages,
    "generate_content": _generate,
}
FAMILIES = tuple(_REQUESTS)


def _said(family: str, stream: str) -> str:
    """The text of a stream's events."""
    found = []
    for line in stream.splitlines():
        if not line.startswith("data:"):
            continue
        try:
            event = json.loads(line.removeprefix("data:"))
        except ValueError:
            continue  # [DONE], or where the answer was cut
        if isinstance(event, dict):
            found.append(_text_of(family, event))
    return "".join(found)


def _text_of(family: str, event: Mapping[str, Any]) -> str:
    """The text that one event adds; "" where it adds none."""
    try:
        match family:
            case "chat_completions":
                text = event["choices"][0]["delta"]["content"]
            case "responses":
                text = event["delta"] if event["type"] == "response.output_text.delta" else ""
            case "messages":
                text = event["delta"]["text"]
            case _:
                parts = event["candidates"][0]["content"]["parts"]
                text = "".join(part.get("text", "") for part in parts)
    except (KeyError, IndexError, TypeError, AttributeError):
        return ""
    return text if isinstance(text, str) else ""


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
