"""Composition of an answer from request and script: status, headers, and the steps of its body.

Pure except for reading sample files; `perform` sends the steps. A step is bytes (an event of a
stream, a chunk of a plain body) or the way in which the connection ends there.
"""

from __future__ import annotations

import enum
import itertools
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from demo.family import ModelRequest, Route, encode_json
from tests.vendor.directives import PLAIN_SCRIPT, Script
from tests.vendor.family import JSON_TYPE, Refusal, StrictFamily, without_usage
from tests.vendor.sessions import Turn
from tests.vendor.speech import MEBIBYTE, compose

HTML_TYPE = "text/html; charset=utf-8"
STREAM_TYPE = "text/event-stream; charset=utf-8"
REDIRECTED_PATH = "/__redirected"

HTML_PAGE = (
    b"<html><head><title>Demo</title></head>\n"
    b"<body><h1>Not the answer you asked for</h1><hr>demo</body></html>\n"
)
ARRAY_END = b"]"
COMMENT = b": keep-alive\n\n"
EMPTY_EVENTS = b"data:\n\nevent: keepalive\n\nid: 7\n\n"
BOMB_BLOCKS = 256  # of one MiB each
SLOW_PIECE_BYTES = 16
SAMPLE_NAME = re.compile(r"[a-z0-9_]+")
EVENT = re.compile(rb".*?(?:\r\n\r\n|\n\n|\r\r)|.+\Z", re.DOTALL)


class Ending(enum.Enum):
    CUT = "closed in the middle"
    RESET = "reset"
    STALL = "silent for ever"


Step = bytes | Ending


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    content_type: str
    steps: Iterable[Step] = ()
    length: int | None = None  # None: sent as chunks
    streaming: bool = False
    headers: dict[str, str] = field(default_factory=dict)
    script: Script = PLAIN_SCRIPT


def plain_answer(status: int, content_type: str, body: bytes) -> Answer:
    return Answer(status, content_type, (body,), len(body))


def json_answer(status: int, value: Any) -> Answer:
    return plain_answer(status, JSON_TYPE, encode_json(value))


@dataclass(frozen=True, slots=True)
class Composer:
    """The composer of the answer to one valid request."""

    family: StrictFamily
    route: Route
    request: ModelRequest
    script: Script
    samples: Path | None
    request_id: str
    turn: Turn | None = None

    def compose(self) -> Answer:
        script = self.script
        composer = self._of_other_form() if script.other_form else self
        answer = self._instead() or (self._sample() if script.sample else composer._usual())
        headers = dict(answer.headers)
        if script.retry_after is not None:
            headers["retry-after"] = str(script.retry_after)
        for index in range(script.big_headers or 0):
            headers[f"x-demo-padding-{index}"] = "h" * 1000
        if script.gzip or script.gzip_bomb:
            headers["content-encoding"] = "gzip"
            answer = replace(answer, length=None)
        if script.gzip_bomb:
            answer = replace(answer, steps=_bomb(answer))
        if script.no_type:
            answer = replace(answer, content_type="")
        return replace(answer, headers=headers, script=script)

    def _of_other_form(self) -> Composer:
        request = replace(
            self.request, stream=not self.request.stream, include_usage=True, framing="sse"
        )
        return replace(self, request=request)

    def _instead(self) -> Answer | None:
        """Return a whole answer that replaces the requested one, if the script asks for it."""
        script = self.script
        if script.redirect:
            answer = plain_answer(302, HTML_TYPE, HTML_PAGE)
            return replace(answer, headers={"location": REDIRECTED_PATH})
        if script.status is not None:
            return self._error(script.status)
        if script.error200:
            return replace(self._error(500), status=200)
        if script.empty200:
            return plain_answer(200, JSON_TYPE, b"")
        if script.json200:
            return json_answer(200, {"object": "unexpected", "ok": True})
        if script.html200 or (script.garbage is not None and not self.request.stream):
            return plain_answer(200, HTML_TYPE, HTML_PAGE)
        return None

    def _refusal(self, status: int) -> Refusal:
        script = self.script
        message = script.message or f"The demo upstream was told to fail with {status}."
        return Refusal(
            message,
            kind="plain",
            status=status,
            code=script.code,
            error_type=script.type,
            retry_after_s=script.retry_after,
        )

    def _error(self, status: int) -> Answer:
        refusal = self._refusal(status)
        if self.script.body == "html":
            message = refusal.message.encode()
            page = HTML_PAGE.replace(b"Not the answer you asked for", message)
            return plain_answer(status, HTML_TYPE, page)
        return json_answer(status, self.family.refusal(refusal, self.request_id))

    def _usual(self) -> Answer:
        if self.route.task == "count":
            return self._plain(encode_json(self.family.count(self.request)))
        answer = compose(self.request, self.script, self.turn)
        if self.script.nothing:
            answer = replace(answer, pieces=(), thoughts=(), calls=())
        if self.route.task == "compact":
            return self._plain(encode_json(self.family.compaction(self.request, answer)))
        if self.request.stream:
            return self._stream(self.family.stream(self.request, answer, self.script))
        whole = self.family.scripted(self.request, answer, self.script)
        return self._plain(encode_json(without_usage(whole) if self.script.nothing else whole))

    def _sample(self) -> Answer:
        name = self.script.sample or ""
        if not SAMPLE_NAME.fullmatch(name) or self.samples is None:
            raise Refusal("no such sample, or no --samples directory", kind="plain")
        path = self.samples / self.family.name / f"{name}.sse"
        if not self.request.stream or not path.is_file():
            path = path.with_suffix(".json")
        if not path.is_file():
            raise Refusal(f"no sample {path.name} of {self.family.name}", kind="plain")
        data = path.read_bytes()
        if path.suffix == ".sse":
            return self._stream(iter(EVENT.findall(data)))
        return self._plain(data)

    def _plain(self, body: bytes) -> Answer:
        script = self.script
        at, ending, clean = self._end()
        size = script.split or (SLOW_PIECE_BYTES if script.slow_body else len(body)) or 1
        shown = body if at is None else body[:at]
        steps: list[Step] = [shown[start : start + size] for start in range(0, len(shown), size)]
        if ending is not None:
            steps.append(ending)
        return Answer(200, JSON_TYPE, steps, None if clean else len(body))

    def _stream(self, events: Iterator[bytes]) -> Answer:
        array = self.request.framing == "json_array"
        kind = JSON_TYPE if array else STREAM_TYPE
        if array and not self.script.no_done:
            events = itertools.chain(events, (ARRAY_END,))
        steps = self._faulted(events)
        if array:
            steps = _array(steps)
        return Answer(200, kind, steps, streaming=True)

    def _end(self) -> tuple[int | None, Ending | None, bool]:
        """Return where the answer ends early, how, and whether its body is ended properly."""
        script = self.script
        for at, ending in (
            (script.cut, Ending.CUT),
            (script.reset, Ending.RESET),
            (script.stall, Ending.STALL),
        ):
            if at is not None:
                return at, ending, False
        return script.clean_end, None, script.clean_end is not None

    def _faulted(self, events: Iterator[bytes]) -> Iterator[Step]:
        script = self.script
        at, ending, _ = self._end()
        if script.error_event is not None:
            at = script.error_event
        first = last = b""
        for index, event in enumerate(events):
            if index == at:
                break
            if index == script.garbage:
                yield self._dressed(self.family.garbage)
            yield self._dressed(event)
            first, last = first or event, event
        if script.error_event is not None:
            refusal = self._refusal(self.family.error_event_status)
            refusal.after = first, last
            yield self._dressed(self.family.error_event(refusal, self.request_id))
            if self.request.framing == "json_array":
                yield ARRAY_END
        if ending is not None:
            yield ending

    def _dressed(self, event: bytes) -> bytes:
        """Return the event with its line ends, preceded by what the script puts before it."""
        if self.script.comments:
            event = COMMENT + event
        if self.script.empty_data:
            event = EMPTY_EVENTS + event
        if self.script.crlf:
            event = event.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")
        return event


def _array(steps: Iterable[Step]) -> Iterator[Step]:
    """Yield a stream's events as elements of a JSON array, which cannot contain comments."""
    mark = b"["
    for step in steps:
        if isinstance(step, Ending):
            yield step
            continue
        before, _, data = step.partition(b"data: ")
        if data:
            yield (before if before.isspace() else b"") + mark + data.strip()
            mark = b",\r\n"
        elif step.endswith(ARRAY_END):
            yield ARRAY_END if mark != b"[" else mark + ARRAY_END


def _bomb(answer: Answer) -> Iterator[Step]:
    """Yield 256 MiB that a reader may skip, then the answer: about 1 MiB on the wire."""
    line = b":" + b" " * 1022 + b"\n"
    block = line * 1024 if answer.content_type == STREAM_TYPE else b" " * MEBIBYTE
    for _ in range(BOMB_BLOCKS):
        yield block
    yield from answer.steps
