"""Parts of content blocks that both directions of the codec read or write.

Here: ids and arguments of calls, citations, opaque thoughts, and the removal of everything from a
client's history that no vendor of this family made.

A thought from another family's upstream is shown as a thinking block whose signature is its maker's
wrapped state, or UNSIGNED if it has none. A cited source has UNSIGNED in place of the vendor's
index. Both have the same prefix, by which they are found and removed before a vendor of this family
sees them. Imported by this folder.
"""

import base64
import binascii
import re
from collections.abc import Callable
from typing import Any

from adapters.family.opaque import PREFIX
from adapters.faults import Fault
from adapters.ir.answer import MAX_CITATIONS
from adapters.ir.parts import Citation
from adapters.json.jsonio import Spans, dumps, elements, loads, loads_or_none, replace

_FIT_ID = re.compile(r"[a-zA-Z0-9_-]+")
_ID_PREFIX = "gw_"


def fit_id(call_id: str) -> str:
    """Return the id in a form that the family accepts."""
    if _FIT_ID.fullmatch(call_id) and not call_id.startswith(_ID_PREFIX):
        return call_id
    encoded = base64.urlsafe_b64encode(call_id.encode(errors="replace"))
    return _ID_PREFIX + encoded.rstrip(b"=").decode()


def original_id(fit: str) -> str:
    """Return the id that ``fit_id`` got; any other id unchanged."""
    if not fit.startswith(_ID_PREFIX):
        return fit
    text = fit[len(_ID_PREFIX) :]
    try:
        decoded = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode()
    except (binascii.Error, ValueError):
        return fit
    return decoded if decoded and fit_id(decoded) == fit else fit


def arguments_of(text: str) -> dict[str, Any]:
    """Return the arguments of a call as an object. Anything else is put into an object, so that one
    broken call does not fail a whole conversation."""
    if not text.strip():
        return {}
    try:
        value = loads(text.encode())
    except (Fault, UnicodeEncodeError):  # no JSON, or not accepted by every reader
        return {"_raw": text.encode(errors="replace").decode()}
    return value if isinstance(value, dict) else {"value": value}


# Replaces a vendor's signature or index on blocks that no vendor of this family made. It is the
# prefix of all wrapped state, by which such blocks are found, with nothing after it.
UNSIGNED = PREFIX

_CITATION_KINDS = ("web_search_result_location", "search_result_location")


def decode_citations(value: object) -> tuple[Citation, ...]:
    """Return the citations of a text block that refer to the web."""
    if not isinstance(value, list):
        return ()
    read = map(decode_citation, value[:MAX_CITATIONS])
    return tuple(citation for citation in read if citation is not None)


def decode_citation(value: object) -> Citation | None:
    """Return one citation; None if it names no place on the web."""
    if not isinstance(value, dict) or value.get("type") not in _CITATION_KINDS:
        return None
    url = value.get("url") or value.get("source")
    if not isinstance(url, str):
        return None
    title, quoted = value.get("title"), value.get("cited_text")
    return Citation(
        url,
        title if isinstance(title, str) else "",
        quoted=quoted if isinstance(quoted, str) else "",
    )


def encode_citation(citation: Citation) -> dict[str, Any]:
    """Return a citation for a client, with UNSIGNED in place of the vendor's index."""
    return {
        "type": "web_search_result_location",
        "url": citation.url,
        "title": citation.title or None,
        "cited_text": citation.quoted,
        "encrypted_index": UNSIGNED,
    }


def sealed_thought(thinking: str, signature: str) -> str:
    """Return a thought with its signature as one text, which ``thought_of`` reads back."""
    block = {"type": "thinking", "thinking": thinking, "signature": signature}
    return dumps(block).decode("ascii")


def sealed_data(data: str) -> str:
    """Return a redacted thought as one text."""
    return dumps({"type": "redacted_thinking", "data": data}).decode("ascii")


def thought_of(opaque: str) -> dict[str, Any] | None:
    """Return the sealed block; None for anything else."""
    block = loads_or_none(opaque.encode(errors="replace")) if opaque else None
    if not isinstance(block, dict):
        return None
    names = {"thinking": ("thinking", "signature"), "redacted_thinking": ("data",)}
    fields = names.get(str(block.get("type")))
    if fields is None or not all(isinstance(block.get(name), str) for name in fields):
        return None
    return {name: block[name] for name in ("type", *fields)}


_MARK = UNSIGNED.encode()
_THOUGHTS = ("thinking", "redacted_thinking")


def without_foreign(spans: Spans, upstream_model: str) -> bytes:
    """Return a body of this family without foreign blocks, for an upstream of this family.

    Thinking by a budget is turned off if the current round of tools has lost its thoughts, because
    the vendor would refuse to continue.
    """
    return _without(spans, _MARK, is_foreign)


def without_reasoning(spans: Spans, upstream_model: str) -> bytes:
    """Return a body without any thoughts, whatever their origin; the same object if there are
    none."""
    return _without(spans, b'thinking"', _is_thought)


def _is_thought(block: object) -> bool:
    return isinstance(block, dict) and block.get("type") in _THOUGHTS


def _without(spans: Spans, mark: bytes, is_removed: Callable[[object], bool]) -> bytes:
    """Return the body without the selected blocks; only turns that contain ``mark`` are read."""
    place = spans.get("messages")
    listed = elements(spans.body[place.start : place.end]) if place is not None else None
    if place is None or not listed:
        return spans.body
    turns: list[bytes] = []
    lost = False  # the current round of tools has lost a thought
    for raw in listed:
        text = bytes(raw)
        if mark not in text:
            lost = lost and _goes_on(text)
            turns.append(text)
        else:
            cleaned, without_thoughts = _cleaned(text, is_removed)
            lost = without_thoughts or (lost and _goes_on(text))
            if cleaned:  # else nothing is left; the vendor joins neighbours of one role
                turns.append(cleaned)
    if turns == [bytes(raw) for raw in listed]:
        return spans.body
    edits = {place: b"[" + b",".join(turns) + b"]"}
    thinking = spans.get("thinking")
    if lost and thinking is not None and _by_budget(spans.value("thinking")):
        edits[thinking] = b'{"type":"disabled"}'
    return replace(spans.body, edits)


def is_foreign(block: object) -> bool:
    """Return true for a content block that is a thought from another family's upstream."""
    if not isinstance(block, dict):
        return False
    name = {"thinking": "signature", "redacted_thinking": "data"}.get(str(block.get("type")))
    value = block.get(name) if name else None
    return isinstance(value, str) and value.startswith(UNSIGNED)


def _goes_on(turn: bytes) -> bool:
    """Return true if the turn continues a round of tools: it is the assistant's or has results."""
    return b'"assistant"' in turn or b'"tool_result"' in turn


def _cleaned(text: bytes, is_removed: Callable[[object], bool]) -> tuple[bytes, bool]:
    """Return a turn without the removed blocks (empty if nothing is left), and whether it calls
    tools but has lost a thought."""
    turn = loads(text)
    content = turn.get("content") if isinstance(turn, dict) else None
    if not isinstance(content, list):
        return text, False
    blocks = [_without_sources(block) for block in content if not is_removed(block)]
    if blocks == content:
        return text, False
    lost = len(blocks) < len(content) and _calls(blocks)
    return (dumps(turn | {"content": blocks}) if blocks else b""), lost


def _without_sources(block: object) -> object:
    if not isinstance(block, dict) or not isinstance(block.get("citations"), list):
        return block
    own = [
        source
        for source in block["citations"]
        if not (isinstance(source, dict) and source.get("encrypted_index") == UNSIGNED)
    ]
    return {name: value for name, value in block.items() if name != "citations"} | (
        {"citations": own} if own else {}
    )


def _calls(blocks: list[Any]) -> bool:
    return any(isinstance(block, dict) and block.get("type") == "tool_use" for block in blocks)


def _by_budget(thinking: object) -> bool:
    return isinstance(thinking, dict) and thinking.get("type") == "enabled"
