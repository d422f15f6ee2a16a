"""Answers for clients of the messages family: whole answers, counts and streams.

Streams are named events with one content block open at a time, while several slots of
``adapters.ir`` may be open. An event of a slot is kept while another slot's block is open, or that
block is closed early: a text or thought can continue in another block, and a call with complete
arguments needs no more. A thought after a text waits until it has words or another block comes. A
bare signature would otherwise be the last block of the message, where Claude Code looks for the
answer. Source: the answer types of the official SDKs, which require every usage field. Imported by
this folder's ``__init__``.
"""

from collections.abc import Mapping
from typing import Any

from adapters.family.codec import AnswerContext, StreamEncoder
from adapters.faults import Condition, Fault
from adapters.ir.answer import (
    Choice,
    Cited,
    Closed,
    Delta,
    Event,
    Finish,
    Finished,
    Opened,
    Pictured,
    Sealed,
)
from adapters.ir.parts import Media, Part, Reasoning, Refusal, Text, ToolCall
from adapters.json.jsonio import dumps, dumps_text, loads_or_none
from adapters.json.structure import VALUES_AT_ONCE, Steps
from adapters.messages.client import encode_stream_fault
from adapters.messages.parts import UNSIGNED, arguments_of, encode_citation, fit_id
from store.values.usage import Usage

STOP_REASONS: dict[Finish, str] = {
    "stop": "end_turn",
    "stop_sequence": "stop_sequence",
    "length": "max_tokens",
    "tools": "tool_use",
    "filter": "refusal",
    "refusal": "refusal",
    "pause": "pause_turn",
    "context_full": "model_context_window_exceeded",
    "error": "end_turn",  # a model that failed midway
}


def encode_answer(
    choices: tuple[Choice, ...], usage: Usage, context: AnswerContext
) -> Steps[bytes]:
    """Return a whole answer, in steps. Raises UPSTREAM_FAILED if the model failed before any
    output."""
    choice = choices[0] if choices else Choice(())
    content: list[dict[str, Any]] = []
    for place, part in enumerate(choice.parts):
        if not place % VALUES_AT_ONCE:
            yield False
        if (block := _block(part)) is not None:
            content.append(block)
    if len(content) > 1 and content[-1].get("thinking") == "" and content[-2]["type"] == "text":
        del content[-1]  # a bare signature: clients look for the answer in the last block
    if choice.finish == "error" and not content:
        raise Fault(Condition.UPSTREAM_FAILED)
    finished = Finished(choice.finish, 0, choice.stop_sequence, choice.detail)
    message = message_head(context) | {"content": content} | stop_fields(finished)
    return dumps(message | {"usage": usage_fields(usage, context.served.tier)})


def encode_count(tokens: int) -> bytes:
    """Return the answer to a request that counts tokens."""
    return dumps({"input_tokens": tokens})


def message_head(context: AnswerContext) -> dict[str, Any]:
    """Return the fields that every message starts with."""
    return {
        "id": f"msg_{context.id}",
        "type": "message",
        "role": "assistant",
        "model": context.model,
    }


def stop_fields(finished: Finished) -> dict[str, Any]:
    """Return the fields that say why the message ended."""
    reason = STOP_REASONS[finished.finish]
    fields: dict[str, Any] = {"stop_reason": reason, "stop_sequence": finished.stop_sequence}
    if reason == "refusal":
        fields["stop_details"] = {
            "type": "refusal",
            "category": None,
            "explanation": finished.detail or None,
        }
    return fields


def usage_fields(usage: Usage, tier: str = "") -> dict[str, Any]:
    """Return all counts, input without the cache, output with thinking; and the tier in this
    family's words."""
    short, long = usage.cache_write_tokens, usage.cache_write_1h_tokens
    return {
        "input_tokens": usage.input_tokens + usage.more_of("input"),
        "cache_creation_input_tokens": short + long,
        "cache_read_input_tokens": usage.cache_read_tokens + usage.more_of("cache_read"),
        "cache_creation": {"ephemeral_5m_input_tokens": short, "ephemeral_1h_input_tokens": long},
        "output_tokens": usage.outputs,
        "output_tokens_details": {"thinking_tokens": usage.reasoning_tokens},
        "service_tier": "standard" if tier in ("", "default") else tier,
    }


def call_block(call_id: str, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """Return a call of a tool."""
    return {"type": "tool_use", "id": fit_id(call_id), "name": name, "input": arguments}


def _block(part: Part) -> dict[str, Any] | None:
    """Return a block; None for parts that the family has no block for, and for empty text."""
    if isinstance(part, Text | Refusal):
        if not part.text:
            return None
        block: dict[str, Any] = {"type": "text", "text": part.text}
        if isinstance(part, Text) and part.citations:
            block["citations"] = [encode_citation(each) for each in part.citations]
        return block
    if isinstance(part, Media):
        return {"type": "text", "text": Pictured(part.mime, part.data).markdown}
    if isinstance(part, Reasoning):
        signature = part.opaque or UNSIGNED
        return {"type": "thinking", "thinking": part.text, "signature": signature}
    if isinstance(part, ToolCall):
        return call_block(part.id, part.name, arguments_of(part.arguments))
    return None


PING = b'event: ping\ndata: {"type":"ping"}\n\n'
_STOP = b'event: message_stop\ndata: {"type":"message_stop"}\n\n'
_END = b"}}\n\n"
_DELTAS = {
    "text": b'"text_delta","text":',
    "refusal": b'"text_delta","text":',
    "reasoning": b'"thinking_delta","thinking":',
    "call": b'"input_json_delta","partial_json":',
}

_OfSlot = Delta | Sealed | Cited | Closed


class MessagesEncoder(StreamEncoder):
    """Encoder of one stream (see ``family.codec.StreamEncoder``)."""

    def __init__(self, context: AnswerContext) -> None:
        super().__init__(context)
        self._blocks = 0  # opened so far
        self._open: Opened | None = None  # slot of the open block
        self._slot = -1  # its number; -1: none is open
        self._before = b""  # the bytes before the text of its deltas
        self._plain = False  # a text or a thought
        self._repeated = -1  # slot of the last event, if that was a Delta
        self._arguments: list[str] = []  # of the open call
        self._signature = ""  # of the open thought
        self._slots: dict[int, Opened] = {}  # open slots, with or without an open block
        # slots that wait for their turn: their first events
        self._waiting: dict[int, list[Opened | _OfSlot]] = {}
        self._draining = False  # waiting events are being written
        self._bare: list[Opened | _OfSlot] = []  # events of a thought without words after a text
        self._complete: set[int] = set()  # calls whose blocks were closed early
        self._said = self._said_text = False
        self._pictures = 0
        self._finished = Finished("stop")

    def begin(self) -> bytes:
        """Return ``message_start`` with an estimate of the input, and a ping as vendors send it."""
        self.started = True
        usage = usage_fields(Usage(self.context.input_tokens))
        message = message_head(self.context) | {
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": usage,
        }
        return _event("message_start", {"message": message}) + PING

    def write(self, event: Event) -> bytes:
        """Return the frames of an event; the finish is written at the end."""
        if type(event) is Delta:
            slot = self._repeated = event.slot
            if slot == self._slot and self._plain:
                return self._before + dumps_text(event.text) + _END if event.text else b""
            return self._delta(event)
        if isinstance(event, Finished):
            return self._finish(event)
        if isinstance(event, Opened):
            return self._opened(event)
        if isinstance(event, Pictured):
            return self._picture(event)
        if event.slot not in self._slots:
            return b""  # belongs to another choice
        return self._of_slot(event)

    def repeat(self, text: bytes) -> bytes:
        if self._repeated == self._slot:
            return self._before + b'"' + text + b'"' + _END if text else b""
        return self._delta(Delta(self._repeated, text.decode("ascii")))

    def end(self, usage: Usage | None) -> bytes:
        """Return ``message_delta`` and ``message_stop``."""
        sent = b"".join([self._of_slot(Closed(slot)) for slot in list(self._slots)])
        context = self.context
        counts = usage_fields(usage or Usage(context.input_tokens), context.served.tier)
        fields = {"delta": stop_fields(self._finished), "usage": counts}
        return sent + _event("message_delta", fields) + _STOP

    def encode_fault(self, fault: Fault, request_id: str) -> bytes:
        """Return an error event, without ``message_stop``."""
        return encode_stream_fault(fault, request_id)

    def _finish(self, event: Finished) -> bytes:
        if event.choice == 0:
            if event.finish == "error" and not self._said:
                raise Fault(Condition.UPSTREAM_FAILED)
            self._finished = event
        return b""

    def _opened(self, event: Opened) -> bytes:
        if event.choice:
            return b""  # a client of this family gets one choice
        text_before = self._said_text
        self._said = True
        self._said_text |= event.kind in ("text", "refusal")
        sent = self._release()
        self._slots[event.slot] = event
        if event.kind == "reasoning" and text_before:
            self._bare = [event]
            return sent
        return sent + self._open_or_wait(event)

    def _picture(self, event: Pictured) -> bytes:
        """Return a picture as a separate text, the family's only way to show one."""
        self._pictures += 1
        slot = -1 - self._pictures  # used by no decoder
        return (
            self.write(Opened(slot, "text", event.choice))
            + self.write(Delta(slot, event.markdown))
            + self.write(Closed(slot))
        )

    def _release(self) -> bytes:
        """Return the block of a thought without words that turns out not to be the last."""
        if not self._bare:
            return b""
        opened, *rest = self._bare
        self._bare = []
        assert type(opened) is Opened
        sent = [self._open_or_wait(opened)]
        sent += [self._of_slot(event) for event in rest if not isinstance(event, Opened)]
        return b"".join(sent)

    def _delta(self, event: Delta) -> bytes:
        slot = event.slot
        if slot not in self._slots or slot in self._complete or not event.text:
            return b""
        return self._of_slot(event)

    def _of_slot(self, event: _OfSlot) -> bytes:
        """Return the frames of an open slot's event, which goes to its block, waits, or opens a
        block."""
        slot = event.slot
        if self._bare and slot == self._bare[0].slot:
            self._bare.append(event)
            return self._release() if isinstance(event, Delta) else b""
        if slot in self._waiting:
            self._waiting[slot].append(event)
            return b""
        if slot != self._slot:
            return self._of_closed_block(event)
        if isinstance(event, Delta):
            if not self._plain:
                self._arguments.append(event.text)
            return self._before + dumps_text(event.text) + _END
        if isinstance(event, Sealed):
            self._signature = event.opaque
            return b""
        if isinstance(event, Cited):
            delta = {"type": "citations_delta", "citation": encode_citation(event.citation)}
            return _event("content_block_delta", {"index": self._blocks - 1, "delta": delta})
        del self._slots[slot]
        sent = self._close_block()
        return sent if self._draining else sent + self._next()

    def _of_closed_block(self, event: _OfSlot) -> bytes:
        """Return the frames for a slot whose block was closed early; more text needs a new
        block."""
        slot = event.slot
        if isinstance(event, Closed):
            del self._slots[slot]
            self._complete.discard(slot)
            return b""
        if slot in self._complete:
            return b""
        return self._open_or_wait(self._slots[slot]) + self._of_slot(event)

    def _open_or_wait(self, opened: Opened) -> bytes:
        """Return a block for a slot, or let it wait until those before it can be closed."""
        sent = []
        while self._open is not None and (self._plain or self._has_all_arguments()):
            if not self._plain:
                self._complete.add(self._slot)
            sent += [self._close_block(), self._next()]
        if self._open is None:
            sent.append(self._open_block(opened))
        else:
            self._waiting[opened.slot] = [opened]
        return b"".join(sent)

    def _has_all_arguments(self) -> bool:
        if not (self._arguments and self._arguments[-1].rstrip().endswith("}")):
            return False
        arguments = "".join(self._arguments).encode(errors="replace")
        return isinstance(loads_or_none(arguments), dict)

    def _next(self) -> bytes:
        """Return the blocks of waiting slots, until one of them stays open."""
        sent = []
        self._draining = True
        while self._waiting and self._open is None:
            slot = next(iter(self._waiting))
            opened, *rest = self._waiting.pop(slot)
            assert type(opened) is Opened
            sent.append(self._open_block(opened))
            sent += [self._of_slot(event) for event in rest if not isinstance(event, Opened)]
        self._draining = False
        return b"".join(sent)

    def _open_block(self, event: Opened) -> bytes:
        index, kind = self._blocks, event.kind
        self._blocks += 1
        self._open, self._slot = event, event.slot
        self._plain = kind != "call"
        self._arguments, self._signature = [], ""
        self._before = (
            b'event: content_block_delta\ndata: {"type":"content_block_delta","index":%d,'
            b'"delta":{"type":%b' % (index, _DELTAS[kind])
        )
        block: dict[str, object] = {"type": "text", "text": ""}
        if kind == "reasoning":
            block = {"type": "thinking", "thinking": "", "signature": ""}
        elif kind == "call":
            block = call_block(event.id, event.name, {})
        sent = _event("content_block_start", {"index": index, "content_block": block})
        return sent if self._plain else sent + self._before + b'""' + _END

    def _close_block(self) -> bytes:
        assert self._open is not None
        index, sent = self._blocks - 1, b""
        if not (self._plain or self._arguments):
            sent = self._before + b'"{}"' + _END  # no arguments also are an empty object
        if self._open.kind == "reasoning":
            delta = {"type": "signature_delta", "signature": self._signature or UNSIGNED}
            sent = _event("content_block_delta", {"index": index, "delta": delta})
        self._open, self._slot, self._arguments = None, -1, []
        return sent + _event("content_block_stop", {"index": index})


def _event(kind: str, fields: Mapping[str, object]) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), dumps({"type": kind, **fields}))
