"""Ids in requests and answers of chat completions that stand for what an account keeps: files,
spoken answers, voices of its own. Imported by this folder's ``client`` and ``upstream``."""

from typing import Any

from adapters.family.kept import (
    KeptFields,
    Marks,
    RefList,
    field_value,
    marked_elements,
    objects,
)
from adapters.json.jsonio import DECODE_ERRORS, Spans, Struct, decoder
from adapters.json.structure import Steps

_MARKS = Marks("file_id", "audio")
_SPOKEN = b'"audio":'


def _read(spans: Spans, refs: RefList) -> Steps[None]:
    for path, audio in objects(field_value(spans, "audio"), "audio"):
        for inner, voice in objects(audio.get("voice"), f"{path}.voice"):
            refs.add("given", f"{inner}.id", voice.get("id"))

    def message(start: str, value: Any) -> None:
        for path, turn in objects(value, start):
            for inner, part in objects(turn.get("content"), f"{path}.content"):
                for place, file in objects(part.get("file"), f"{inner}.file"):
                    refs.add("given", f"{place}.file_id", file.get("file_id"))
            for inner, audio in objects(turn.get("audio"), f"{path}.audio"):
                refs.add("answer", f"{inner}.id", audio.get("id"))

    yield from marked_elements(spans, "messages", _MARKS, message)


KEPT = KeptFields(frozenset({"audio"}), (("messages", _MARKS),), _read)


class _Audio(Struct, gc=False):
    id: str | None = None


class _Message(Struct, gc=False):
    audio: _Audio | None = None


class _Choice(Struct, gc=False):
    message: _Message


class _Answer(Struct, gc=False):
    choices: list[_Choice]


_decode = decoder(_Answer)


def made_ids(body: bytes, stored: bool) -> list[str]:
    """The ids that a whole answer hands out: of what was spoken."""
    if _SPOKEN not in body:
        return []
    try:
        messages = [choice.message for choice in _decode(body).choices]
    except DECODE_ERRORS:
        return []
    return [one.audio.id for one in messages if one.audio is not None and one.audio.id]
