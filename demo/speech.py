"""The vendor's answers: the text, the tool calls, the structured answer, and the token counts.

Independent of the family, and pure except for the ids of calls. A family encodes the result.
"""

import base64
import hmac
import json
import re
import secrets
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from demo.family import Finish, ModelAnswer, ModelRequest, TokenCounts, Tool, ToolCall

# Not secret. It only has to make signatures that no other program makes.
SECRET = b"of the scripted vendor"
SIGNATURE_MARK = b"demo signature "
BYTES_A_TOKEN = 4
IMAGE_TOKENS = 85
MESSAGE_TOKENS = 3
# A string longer than this in a media field is base64, not text.
MEDIA_BYTES_MIN = 512
MEDIA_KEYS = frozenset(("data", "url", "file_data", "image_url"))

PROMPT_SHOWN_CHARACTERS = 60
SCHEMA_DEPTH_MAX = 12
PIECE_CHARACTERS = 18

GREETING = (
    "Hello from the built-in demo upstream! Your gateway works, and this answer came through it "
    "piece by piece. No vendor was asked and nothing left this machine."
)
THOUGHTS = ("The demo has nothing to look up. ", "A short friendly answer will do.")
ANY_SCHEMA = {"type": "object", "properties": {"answer": {"type": "string"}}}
AFTER_TOOLS = "Thank you, the tool results have arrived. That is all the demo needed to know."


def count_tokens(text: str) -> int:
    return -(-len(text.encode("utf-8", "surrogatepass")) // BYTES_A_TOKEN)


def prompt_tokens(*values: Any) -> int:
    """Count the tokens of all text in JSON values. An image counts a fixed number."""
    total = MESSAGE_TOKENS
    waiting: list[tuple[str, Any]] = [("", value) for value in values]
    while waiting:
        key, value = waiting.pop()
        if isinstance(value, dict):
            waiting.extend(value.items())
            total += 1
        elif isinstance(value, list):
            waiting.extend((key, entry) for entry in value)
        elif isinstance(value, str):
            media = key in MEDIA_KEYS and len(value) > MEDIA_BYTES_MIN
            total += IMAGE_TOKENS if media else count_tokens(value)
    return total


def sign(data: bytes) -> str:
    """Return a signature that only this vendor makes."""
    return base64.b64encode(SIGNATURE_MARK + data + hmac.digest(SECRET, data, "sha256")).decode()


def last_words(messages: Sequence[str]) -> str:
    """Return the user's last message that contains text."""
    return next((words for words in reversed(messages) if words), "")


def compose(request: ModelRequest) -> ModelAnswer:
    """Compose the usual answer to a request."""
    calls = tuple(call_of(tool) for tool in chosen_tools(request))
    if calls:
        return answer_with_calls(request, calls)
    return answer_with_text(request, pieces_of(text_of(request)))


def thoughts_of(request: ModelRequest) -> tuple[tuple[str, ...], int]:
    """Return the thoughts before an answer, and their tokens."""
    thoughts = THOUGHTS if request.thinking else ()
    return thoughts, count_tokens("".join(thoughts))


def answer_with_calls(request: ModelRequest, calls: tuple[ToolCall, ...]) -> ModelAnswer:
    thoughts, reasoning = thoughts_of(request)
    output = reasoning + sum(count_tokens(call.name + call.arguments) for call in calls)
    if request.limit_tokens is None or output <= request.limit_tokens:
        counts = TokenCounts(request.input_tokens, output, reasoning)
        return ModelAnswer(counts, "tools", (), thoughts, calls)
    # A limit that cuts a call leaves no call that can be run.
    return ModelAnswer(TokenCounts(request.input_tokens, request.limit_tokens, 0), "length")


def answer_with_text(request: ModelRequest, pieces: tuple[str, ...]) -> ModelAnswer:
    """Cut the text at the first stop sequence and at the token limit, as a vendor does."""
    thoughts, reasoning = thoughts_of(request)
    finish: Finish = "stop"
    matched = None
    text = "".join(pieces)
    stops = [(text.find(stop), stop) for stop in request.stops if stop and stop in text]
    if stops:
        end, matched = min(stops)
        pieces, finish = _first_bytes(pieces, len(text[:end].encode())), "stop_sequence"
    if request.limit_tokens is not None:
        if reasoning > request.limit_tokens:
            thoughts = _first_bytes(thoughts, request.limit_tokens * BYTES_A_TOKEN)
            reasoning = request.limit_tokens
        left = request.limit_tokens - reasoning
        if count_tokens("".join(pieces)) > left:
            pieces, finish, matched = _first_bytes(pieces, left * BYTES_A_TOKEN), "length", None
    output = reasoning + count_tokens("".join(pieces))
    counts = TokenCounts(request.input_tokens, output, reasoning)
    return ModelAnswer(counts, finish, pieces, thoughts, (), matched)


def _first_bytes(pieces: Iterable[str], left_bytes: int) -> tuple[str, ...]:
    first = []
    for piece in pieces:
        data = piece.encode()
        if len(data) > left_bytes:
            rest = data[:left_bytes].decode("utf-8", "ignore")
            if rest:
                first.append(rest)
            break
        first.append(piece)
        left_bytes -= len(data)
    return tuple(first)


def text_of(request: ModelRequest) -> str:
    """Return the text without lone surrogates, which a prompt may contain but UTF-8 cannot
    encode."""
    return _words(request).encode("utf-8", "replace").decode()


def _words(request: ModelRequest) -> str:
    if request.schema is not None:
        return json.dumps(dummy(request.schema or ANY_SCHEMA), ensure_ascii=False)
    if not request.fresh:
        return AFTER_TOOLS
    text = GREETING
    prompt = " ".join(request.prompt.split())
    if prompt:
        cut = prompt[:PROMPT_SHOWN_CHARACTERS].rstrip()
        text += f" You wrote: “{cut}{'…' if cut != prompt else ''}”"
    if request.images:
        text += f" I was shown {request.images} image{'s' if request.images > 1 else ''}."
    return text


def pieces_of(text: str) -> tuple[str, ...]:
    """Cut a text into deltas of a few words."""
    return tuple(re.findall(rf".{{1,{PIECE_CHARACTERS}}}(?:\s+|$)|\S+\s*|\s+", text))


def chosen_tools(request: ModelRequest, *, all_tools: bool = False) -> Sequence[Tool]:
    """Return the tools to call: those that the prompt names, or one if the client forces it."""
    if not request.tools or not request.fresh or request.tool_mode == "none":
        return ()
    chosen = [tool for tool in request.tools if all_tools or tool.name in request.prompt]
    if not chosen and request.tool_mode == "any":
        chosen = [request.tools[0]]
    return chosen if request.parallel else chosen[:1]


def call_of(tool: Tool) -> ToolCall:
    name = secrets.token_hex(6)
    if tool.custom:
        return ToolCall(name, tool.name, "a line of free text", custom=True)
    arguments = dummy({"type": "object", **tool.schema})
    return ToolCall(name, tool.name, json.dumps(arguments, ensure_ascii=False))


def dummy(schema: Any, root: Any = None, depth: int = 0) -> Any:
    """Return a value that conforms to a simple JSON schema; None if the schema is not
    understood."""
    root = schema if root is None else root
    if not isinstance(schema, Mapping) or depth > SCHEMA_DEPTH_MAX:
        return None
    if "$ref" in schema:
        return dummy(_referred(root, str(schema["$ref"])), root, depth + 1)
    if "const" in schema:
        return schema["const"]
    if schema.get("enum"):
        return schema["enum"][0]
    for several in ("anyOf", "oneOf", "allOf"):
        if schema.get(several):
            return dummy(schema[several][0], root, depth + 1)
    kind = schema.get("type", "object" if "properties" in schema else None)
    if isinstance(kind, list):
        kind = kind[0] if kind else None
    kind = kind.lower() if isinstance(kind, str) else None
    if kind == "object":
        properties = schema.get("properties") or {}
        return {name: dummy(value, root, depth + 1) for name, value in properties.items()}
    if kind == "array":
        if depth >= SCHEMA_DEPTH_MAX:
            return []
        return [dummy(schema.get("items"), root, depth + 1)] * max(1, schema.get("minItems", 1))
    return _dummy_leaf(kind, schema)


def _dummy_leaf(kind: Any, schema: Mapping[str, Any]) -> Any:
    if kind == "string":
        return "demo".ljust(schema.get("minLength", 0), "o")[: schema.get("maxLength")]
    if kind == "integer":
        return schema.get("minimum", 7 if schema.get("maximum", 7) >= 7 else schema["maximum"])
    if kind == "number":
        return schema.get("minimum", 1.5 if schema.get("maximum", 2) >= 1.5 else schema["maximum"])
    return True if kind == "boolean" else None


def _referred(root: Any, reference: str) -> Any:
    target = root
    for part in reference.removeprefix("#").strip("/").split("/"):
        if not isinstance(target, Mapping):
            return None
        target = target.get(part) if part else target
    return target
