"""Identity of a request's conversation: the same in all its turns, different between two.

Each family names its own fields. Prompt caches match the start of a request, so a conversation is
identified by its first texts: the system prompt and the user's first turn. Tools are ignored,
because agents load and drop them during a conversation. Of long texts only the two ends and the
length count, and only the first turns are decoded, so that the thousandth turn costs no more than
the second.
"""

from collections.abc import Iterable

from adapters.faults import Fault
from adapters.json.jsonio import MAX_VALUE_BYTES, Spans, decode_element

ENDS_CHARS = 256  # of each end of a text; bytes if the text is still encoded
MAX_TEXTS = 32  # of one turn
MAX_TURNS = 8  # up to and including the user's first one
# How much of the list of turns is read. The smaller window nearly always suffices.
WINDOWS_BYTES = (4096, 65536)
# Fields that clients move along with the last turn, or that hold no text.
_NOT_WORDS = frozenset({"cache_control", "prompt_cache_breakpoint", "role", "type", "id", "status"})


def explicit_name(value: object) -> bytes:
    """Return the conversation's own name from the client; empty if there is none."""
    return _ends(value).encode(errors="replace") if isinstance(value, str) else b""


def text_field(spans: Spans, name: str) -> object:
    """Return a field that should be a string; None if it is no string, or too long for a name."""
    place = spans.get(name)
    if place is None or not spans.body.startswith(b'"', place.start):
        return None
    return spans.value(name) if place.end - place.start <= MAX_VALUE_BYTES else None


def object_field(spans: Spans, name: str, inner: str) -> object:
    """Return a field of an object; None if it is missing or unreadable. It raises no Fault, because
    judging the field is up to the vendor."""
    place = spans.get(name)
    if place is None or not spans.body.startswith(b"{", place.start):
        return None
    try:
        return spans.value(name).get(inner)
    except Fault:
        return None


def opening(spans: Spans, system: Iterable[str], turns: str) -> bytes:
    """Return the start of a conversation, or nothing: the system's fields, then the list `turns`
    up to the user's first turn. A turn without a role is the user's."""
    body, parts = spans.body, []
    for name in system:
        if (place := spans.get(name)) is not None:
            start, end = place.start, place.end
            if end - start <= 2 * ENDS_CHARS:
                parts.append(body[start:end])
            else:
                last = body[end - ENDS_CHARS : end]
                parts.append(b"%b%d%b" % (body[start : start + ENDS_CHARS], end - start, last))
    if (place := spans.get(turns)) is not None:
        words = "\0".join(_first_turns(body, place.start, place.end))
        parts.append(words.encode(errors="replace"))
    return b"\0".join(parts)


def _first_turns(body: bytes, start: int, end: int) -> list[str]:
    texts: list[str] = []
    stopped: int | None = None
    text = ""
    for window in WINDOWS_BYTES:
        text = body[start : min(end, start + window)].decode(errors="replace")
        if not text.startswith("["):
            return [_ends(text)]  # a string in place of the list: its first window will do
        texts, stopped = _to_user(text)
        if stopped is None or start + window >= end:
            return texts
    # The turn is longer than the last window; the content of the window has to do.
    return [*texts, _ends(text[stopped:])]


def _to_user(text: str) -> tuple[list[str], int | None]:
    """Return the texts up to the user's first turn, and the offset where the window cut it off."""
    texts: list[str] = []
    at = 1
    for _ in range(MAX_TURNS):
        element = decode_element(text, at)
        if element is None:
            return texts, at
        turn, at = element
        if not isinstance(turn, dict):
            texts += _texts(turn)
            break
        words = turn.get("content") or turn.get("parts") or turn
        if isinstance(words, str):
            texts.append(_ends(words))
        else:
            texts += _texts(words)
        if turn.get("role") in ("user", None):
            break
    return texts, None


def _texts(value: object) -> list[str]:
    """Return the strings in a turn in their order, however they are nested."""
    texts: list[str] = []
    rest = [value]
    while rest and len(texts) < MAX_TEXTS:
        item = rest.pop()
        if isinstance(item, str):
            texts.append(_ends(item))
        elif isinstance(item, list):
            rest += reversed(item)
        elif isinstance(item, dict):
            rest += reversed([inner for name, inner in item.items() if name not in _NOT_WORDS])
    return texts


def _ends(text: str) -> str:
    if len(text) <= 2 * ENDS_CHARS:
        return text
    return f"{text[:ENDS_CHARS]}{len(text)}{text[-ENDS_CHARS:]}"
