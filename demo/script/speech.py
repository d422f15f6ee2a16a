"""What the vendor says: the text, the tool calls, the structured answer, and the token counts.

Family-neutral, and pure but for the ids of calls; a family writes the result down in its format.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Iterable, Mapping
from typing import Any

from demo.script.directives import Script, without_directives
from demo.script.family import Ask, Call, Counts, Finish, Said, Tool

BYTES_A_TOKEN = 4
IMAGE_TOKENS = 85
MESSAGE_TOKENS = 3
# A string longer than this in a media field is base64, not words.
MEDIA_BYTES_MIN = 512
MEDIA_KEYS = frozenset(("data", "url", "file_data", "image_url"))

ABSURD_TOKENS = 10**15
PROMPT_SHOWN_CHARACTERS = 60
SCHEMA_DEPTH_MAX = 12
PIECE_CHARACTERS = 18
FLOOD_PIECE_BYTES = 4096
MEBIBYTE = 1024 * 1024

GREETING = (
    "Hello from the built-in demo upstream! Your gateway works, and this answer came through it "
    "piece by piece. No vendor was asked and nothing left this machine."
)
THOUGHTS = ("The demo has nothing to look up. ", "A short friendly answer will do.")
DECLINED = "I am sorry, the demo will not answer that."
AFTER_TOOLS = "Thank you, the tool results have arrived. That is all the demo needed to know."


def count_tokens(text: str) -> int:
    return -(-len(text.encode("utf-8", "surrogatepass")) // BYTES_A_TOKEN)


def prompt_tokens(*values: Any) -> int:
    """Tokens of everything that is text in the given JSON values; an image counts a flat number."""
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


def say(ask: Ask, script: Script) -> Said:
    """The answer to what was asked, as far as the script leaves it open."""
    thoughts = THOUGHTS if ask.thinking else ()
    reasoning = count_tokens("".join(thoughts))
    if script.flood is not None:
        count = script.flood * MEBIBYTE // FLOOD_PIECE_BYTES
        pieces = ("Here it comes. ", *("z" * FLOOD_PIECE_BYTES,) * count)
        output = reasoning + sum(map(len, pieces)) // BYTES_A_TOKEN
        counts = _counts(ask, script, output, reasoning)
        return Said(counts, "stop", pieces, thoughts)
    if script.refusal:
        output = reasoning + count_tokens(DECLINED)
        pieces = _pieces(DECLINED, script)
        return Said(_counts(ask, script, output, reasoning), "refusal", pieces, thoughts)
    calls = _calls(ask, script)
    if calls:
        output = reasoning + sum(count_tokens(call.name + call.arguments) for call in calls)
        if ask.limit_tokens is None or output <= ask.limit_tokens:
            return Said(_counts(ask, script, output, reasoning), "tools", (), thoughts, calls)
        # A bound that cuts a call leaves no call that could be run.
        return Said(_counts(ask, script, ask.limit_tokens, 0), "length")
    return _bounded(ask, script, _pieces(_text(ask, script), script), thoughts)


def _bounded(ask: Ask, script: Script, pieces: tuple[str, ...], thoughts: tuple[str, ...]) -> Said:
    """Cuts the answer at the first stop sequence and at the token bound, as a vendor does."""
    finish: Finish = "stop"
    matched = None
    text = "".join(pieces)
    stops = [(text.find(stop), stop) for stop in ask.stops if stop and stop in text]
    if stops:
        end, matched = min(stops)
        pieces, finish = _first_bytes(pieces, len(text[:end].encode())), "stop_sequence"
    reasoning = count_tokens("".join(thoughts))
    if ask.limit_tokens is not None:
        if reasoning > ask.limit_tokens:
            thoughts = _first_bytes(thoughts, ask.limit_tokens * BYTES_A_TOKEN)
            reasoning = ask.limit_tokens
        room = ask.limit_tokens - reasoning
        if count_tokens("".join(pieces)) > room:
            pieces, finish, matched = _first_bytes(pieces, room * BYTES_A_TOKEN), "length", None
    output = reasoning + count_tokens("".join(pieces))
    counts = _counts(ask, script, output, reasoning)
    return Said(counts, finish, pieces, thoughts, (), matched)


def _counts(ask: Ask, script: Script, output: int, reasoning: int) -> Counts:
    if script.usage == "zero":
        return Counts(0, 0, 0)
    if script.usage == "absurd":
        return Counts(ABSURD_TOKENS, ABSURD_TOKENS, 0)
    if script.tokens is not None:
        whole, cached, written, output, reasoning = script.tokens
        return Counts(whole, output, reasoning, cached, written)
    return Counts(ask.input_tokens, output, reasoning)


def _first_bytes(pieces: Iterable[str], room_bytes: int) -> tuple[str, ...]:
    kept = []
    for piece in pieces:
        data = piece.encode()
        if len(data) > room_bytes:
            rest = data[:room_bytes].decode("utf-8", "ignore")
            if rest:
                kept.append(rest)
            break
        kept.append(piece)
        room_bytes -= len(data)
    return tuple(kept)


def _text(ask: Ask, script: Script) -> str:
    """Without lone surrogates, which a prompt may hold and UTF-8 cannot."""
    return _words(ask, script).encode("utf-8", "replace").decode()


def _words(ask: Ask, script: Script) -> str:
    if script.text is not None:
        return script.text
    if ask.turn is not None:
        return ask.turn.say
    if ask.schema is not None:
        schema = ask.schema or {"type": "object", "properties": {"answer": {"type": "string"}}}
        return json.dumps(dummy(schema), ensure_ascii=False)
    if not ask.fresh:
        return AFTER_TOOLS
    text = GREETING
    asked = " ".join(without_directives(ask.prompt).split())
    if asked:
        cut = asked[:PROMPT_SHOWN_CHARACTERS].rstrip()
        text += f" You wrote: “{cut}{'…' if cut != asked else ''}”"
    if ask.images:
        text += f" I was shown {ask.images} image{'s' if ask.images > 1 else ''}."
    return text


def _pieces(text: str, script: Script) -> tuple[str, ...]:
    """The deltas: of the number and the size the script asks for, else a few words each."""
    if script.chunks is not None and script.text is None:
        return tuple(_numbered(index, script.bytes) for index in range(script.chunks))
    if script.chunks is not None:
        size = -(-len(text) // script.chunks) or 1
        return tuple(text[at : at + size] for at in range(0, len(text), size))
    if script.bytes is not None:
        return tuple(_cut_bytes(text, script.bytes))
    words = re.findall(rf".{{1,{PIECE_CHARACTERS}}}(?:\s+|$)|\S+\s*|\s+", text)
    return tuple(words)


def _numbered(index: int, size_bytes: int | None) -> str:
    """A delta that tells its place, so that a lost or doubled one is seen."""
    piece = f"{index} "
    return piece if size_bytes is None else piece.ljust(size_bytes, "x")[:size_bytes]


def _cut_bytes(text: str, size_bytes: int) -> Iterable[str]:
    piece, piece_bytes = "", 0
    for character in text:
        width = len(character.encode("utf-8", "surrogatepass"))
        if piece and piece_bytes + width > size_bytes:
            yield piece
            piece, piece_bytes = "", 0
        piece += character
        piece_bytes += width
    if piece:
        yield piece


def _calls(ask: Ask, script: Script) -> tuple[Call, ...]:
    if ask.turn is not None:
        return ask.turn.calls
    if not ask.tools or not ask.fresh or ask.tool_mode == "none":
        return ()
    chosen = [tool for tool in ask.tools if script.tools or tool.name in ask.prompt]
    if not chosen and ask.tool_mode == "any":
        chosen = [ask.tools[0]]
    if not ask.parallel:
        chosen = chosen[:1]
    return tuple(_call(tool) for tool in chosen)


def _call(tool: Tool) -> Call:
    name = secrets.token_hex(6)
    if tool.custom:
        return Call(name, tool.name, "a line of free text", custom=True)
    arguments = dummy({"type": "object", **tool.schema})
    return Call(name, tool.name, json.dumps(arguments, ensure_ascii=False))


def dummy(schema: Any, root: Any = None, depth: int = 0) -> Any:
    """A value that conforms to a simple JSON schema; null where the schema says nothing known."""
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
    found = root
    for part in reference.removeprefix("#").strip("/").split("/"):
        if not isinstance(found, Mapping):
            return None
        found = found.get(part, None) if part else found
    return found
