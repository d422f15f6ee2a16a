"""The directives by which a prompt or an upstream model name tells the vendor how to behave.

`[[demo ms=5 cut=3]]` in the user's last message, or the upstream model `script.ms=5.cut=3` (values
there cannot contain dots). If both are present, the prompt's directives win. A value with blanks
is quoted as in JSON: `text="one two"`. An event number counts events from 0, without comments and
pings; in an answer that is not a stream the same number counts bytes of the body. Pure: text in,
`Script` out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any

MODEL_PREFIX = "script."
DIRECTIVE = re.compile(r"\[\[demo\b(.*?)\]\]", re.DOTALL)
WORD = re.compile(r'([A-Za-z0-9_]+)(?:=("(?:[^"\\]|\\.)*"|\S*))?(?=\s|$)')

DAY_MS = 86_400_000
EVENTS_MAX = 10_000_000
PIECE_BYTES_MAX = 64 * 1024 * 1024
MEBIBYTES_MAX = 4096
HEADERS_KIBIBYTES_MAX = 16_384

Parse = Callable[[str, str | None], Any]


class ScriptError(ValueError):
    """An unknown directive, or a directive's invalid value."""


def _parse_flag(word: str, value: str | None) -> bool:
    if value is not None:
        raise ScriptError(f"the script word '{word}' takes no value")
    return True


def _flag() -> Any:
    return field(default=False, metadata={"parse": _parse_flag})


def _number(low: int, high: int, default: int | None = None) -> Any:
    def parse(word: str, value: str | None) -> int:
        if value is None or not re.fullmatch(r"[0-9]{1,12}", value):
            raise ScriptError(f"the script word '{word}' needs a whole number: {word}=N")
        if not low <= int(value) <= high:
            raise ScriptError(f"the script word '{word}' takes {low} to {high}")
        return int(value)

    return field(default=default, metadata={"parse": parse})


def _text() -> Any:
    def parse(word: str, value: str | None) -> str:
        if value is None:
            raise ScriptError(f"the script word '{word}' needs a value: {word}=…")
        return value

    return field(default=None, metadata={"parse": parse})


def _choice(*allowed: str) -> Any:
    def parse(word: str, value: str | None) -> str:
        if value not in allowed:
            raise ScriptError(f"the script word '{word}' takes one of {', '.join(allowed)}")
        return value

    return field(default=None, metadata={"parse": parse})


def _counts() -> Any:
    def parse(word: str, value: str | None) -> tuple[int, ...]:
        if value is None or not re.fullmatch(r"[0-9]{1,9}(,[0-9]{1,9}){4}", value):
            wanted = f"{word}=INPUT,CACHED,WRITTEN,OUTPUT,REASONING"
            raise ScriptError(f"the script word '{word}' needs five numbers: {wanted}")
        found = tuple(map(int, value.split(",")))
        if found[1] + found[2] > found[0] or found[4] > found[3]:
            raise ScriptError(f"the script word '{word}' has parts that are more than the whole")
        return found

    return field(default=None, metadata={"parse": parse})


def _events() -> Any:
    return _number(0, EVENTS_MAX)


@dataclass(frozen=True, slots=True)
class Script:
    """A script, with a field for each directive; None, 0 and False mean that it is absent."""

    # Timing.
    first_ms: int = _number(0, DAY_MS, 0)  # before the head
    ms: int | None = _number(0, DAY_MS)  # between two events
    slow_body: bool = _flag()  # a plain answer is sent slowly
    # Content.
    text: str | None = _text()
    chunks: int | None = _number(1, EVENTS_MAX)  # number of text deltas
    bytes: int | None = _number(1, PIECE_BYTES_MAX)  # their size
    tools: bool = _flag()
    refusal: bool = _flag()  # the model declines
    sample: str | None = _text()  # a sample file, byte for byte
    tokens: tuple[int, ...] | None = _counts()  # reported instead of the real counts
    tier: str | None = _text()  # service tier, in each event of chat completions
    usage: str | None = _choice("absurd", "repeated", "cumulative", "finish_chunk")
    no_done: bool = _flag()  # the stream has no terminal marker
    nothing: bool = _flag()  # a plain stop without content or usage
    no_call_ids: bool = _flag()  # tool calls of chat completions have no id
    flood: int | None = _number(1, MEBIBYTES_MAX)  # MiB of 4 KiB deltas at full speed
    # Bytes on the wire.
    split: int | None = _number(1, PIECE_BYTES_MAX)  # the size of each write
    comments: bool = _flag()
    no_type: bool = _flag()  # the head has no content type
    other_form: bool = _flag()  # events instead of an object, or an object instead of events
    empty_data: bool = _flag()  # events without data before each event
    crlf: bool = _flag()
    gzip: bool = _flag()
    gzip_bomb: bool = _flag()
    big_headers: int | None = _number(1, HEADERS_KIBIBYTES_MAX)
    # Errors of the vendor.
    status: int | None = _number(400, 599)
    body: str | None = _choice("html")
    type: str | None = _text()
    code: str | None = _text()
    message: str | None = _text()
    retry_after: int | None = _number(0, DAY_MS)
    html200: bool = _flag()
    empty200: bool = _flag()
    json200: bool = _flag()
    error200: bool = _flag()
    redirect: bool = _flag()
    error_event: int | None = _events()
    garbage: int | None = _events()
    # Faults of the connection.
    reset_before_head: bool = _flag()
    close_before_head: bool = _flag()
    stall_before_head: bool = _flag()
    stall_after_head: bool = _flag()
    cut: int | None = _events()
    clean_end: int | None = _events()
    reset: int | None = _events()
    stall: int | None = _events()


PARSERS: dict[str, Parse] = {entry.name: entry.metadata["parse"] for entry in fields(Script)}
PLAIN_SCRIPT = Script()


def read_script(prompt: str, model: str) -> Script:
    """Return the script. Raises ScriptError naming the first unknown directive or wrong value."""
    found: dict[str, Any] = {}
    if model.startswith(MODEL_PREFIX):
        for part in model.removeprefix(MODEL_PREFIX).split("."):
            word, equals, value = part.partition("=")
            found[word] = _value(word, value if equals else None)
    for directive in DIRECTIVE.findall(prompt):
        found.update(_directive(directive))
    return Script(**found) if found else PLAIN_SCRIPT


def without_directives(prompt: str) -> str:
    return DIRECTIVE.sub("", prompt).strip()


def _directive(text: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    at = 0
    while at < len(text):
        if text[at].isspace():
            at += 1
            continue
        match = WORD.match(text, at)
        if match is None:
            raise ScriptError(f"unknown script word '{text[at:].split()[0]}'")
        word, value = match[1], match[2]
        if value is not None and value.startswith('"') and len(value) > 1:
            value = _unquote(word, value)
        found[word] = _value(word, value)
        at = match.end()
    return found


def _unquote(word: str, value: str) -> str:
    try:
        text: str = json.loads(value, strict=False)
    except ValueError as error:
        raise ScriptError(f"the value of the script word '{word}' is no JSON string") from error
    return text


def _value(word: str, value: str | None) -> Any:
    parse = PARSERS.get(word)
    if parse is None:
        raise ScriptError(f"unknown script word '{word}'")
    return parse(word, value)
