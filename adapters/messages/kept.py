"""Ids in requests and answers of messages that stand for what an account keeps: messages of a
thread, containers, files, skills. Imported by this folder's ``client`` and ``upstream``."""

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

_MARKS = Marks("file_id")
_CONTAINER = b'"container":'
_PREVIOUS = "previous_message_id"
# The SDKs go on with the whole conversation by themselves when they are told these.
_UNSUPPORTED = {"error_code": "thread_unsupported_request", "unsupported": ["model"]}
_NOT_FOUND = {"error_code": "thread_not_found"}


def _read(spans: Spans, refs: RefList) -> Steps[None]:
    for path, thread in objects(field_value(spans, "thread"), "thread"):
        refs.need_thread(path, _UNSUPPORTED)
        refs.add("answer", f"{path}.{_PREVIOUS}", thread.get(_PREVIOUS), details=_NOT_FOUND)
    for path, diagnostics in objects(field_value(spans, "diagnostics"), "diagnostics"):
        refs.add("answer", f"{path}.{_PREVIOUS}", diagnostics.get(_PREVIOUS))
    _read_container(field_value(spans, "container"), refs)

    def message(start: str, value: Any) -> None:
        for path, turn in objects(value, start):
            _read_content(turn.get("content"), f"{path}.content", refs)

    yield from marked_elements(spans, "messages", _MARKS, message)


def _read_container(value: object, refs: RefList) -> None:
    refs.add("either", "container", value)
    for path, container in objects(value, "container"):
        refs.add("either", f"{path}.id", container.get("id"))
        for inner, skill in objects(container.get("skills"), f"{path}.skills"):
            if skill.get("type") != "anthropic":  # those are everybody's
                refs.add("given", f"{inner}.skill_id", skill.get("skill_id"))


def _read_content(value: object, start: str, refs: RefList) -> None:
    """Blocks that show a file to the model; results of the vendor's own tools only repeat what an
    answer said."""
    for path, block in objects(value, start):
        kind = block.get("type")
        if kind == "container_upload":
            refs.add("given", f"{path}.file_id", block.get("file_id"))
        elif kind == "tool_result":
            _read_content(block.get("content"), f"{path}.content", refs)
        for inner, source in objects(block.get("source"), f"{path}.source"):
            refs.add("given", f"{inner}.file_id", source.get("file_id"))
            _read_content(source.get("content"), f"{inner}.content", refs)


KEPT = KeptFields(frozenset({"thread", "diagnostics", "container"}), (("messages", _MARKS),), _read)


class _Container(Struct, gc=False):
    id: str | None = None


class _Answer(Struct, gc=False):
    container: _Container | None = None


_decode = decoder(_Answer)


def made_ids(body: bytes, stored: bool) -> list[str]:
    """The ids that a whole answer hands out besides its own: its container's."""
    if _CONTAINER not in body:
        return []
    try:
        container = _decode(body).container
    except DECODE_ERRORS:
        return []
    return [container.id] if container is not None and container.id else []
