"""Identity of a request's conversation: the same in all its turns, different between two.

Each family names its own fields. Prompt caches match the beginning of a request, so a conversation
is identified by its first texts: the system prompt and the user's first turn. Tools are ignored:
agents load and drop them in between. Of long texts only the ends and the length count, and only the
first turns are decoded, so that the thousandth turn costs no more than the second.
"""

from collections.abc import Iterable

from adapters.faults import Fault
from adapters.json.jsonio import MAX_VALUE_BYTES, Spans, decode_element

ENDS_CHARS = 256  # of a text (bytes, of one as it was sent), from its beginning and its end
MAX_TEXTS = 32  # of a turn
MAX_TURNS = 8  # before and with the user's first one
# How much of the list of turns is read; the smaller window suffices nearly always.
WINDOWS_BYTES = (4096, 65536)
# Fields that clients move along with the last turn, or that are no text.
_NOT_WORDS = frozenset({"cache_control", "prompt_cache_breakpoint", "role", "type", "id", "status"})


def explicit_name(value: object) -> bytes:
    """Return the conversation's own name, as the client gave it; empty when it gave none."""
    return _ends(value).encode(errors="replace") if isinstance(value, str) else b""


def text_field(spans: Spans, name: str) -> object:
    """Return a field that should be a string; None when it is none, or too long for a name."""
    place = spans.get(name)
    if place is None or not spans.body.startswith(b'"', place.start):
        return None
    return spans.value(name) if place.end - place.start <= MAX_VALUE_BYTES else None


def object_field(spans: Spans, name: str, inner: str) -> object:
    """Return a field of an object; None when there is none, or it cannot be read: no fault is made
    of what is the vendor's to judge."""
    place = spans.get(name)
    if place is None or not spans.body.startswith(b"{", place.start):
        return None
    try:
        return spans.value(name).get(inner)
    except Fault:
        return None


def opening(spans: Spans, system: Iterable[str], turns: str) -> bytes:
    """Return the beginning of a conversation, or nothing: fields about the system, then the list
    `turns` through the first one of the user, who speaks where there is no role."""
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
            return [_ends(text)]  # one string may stand for the list: its first window will do
        texts, stopped = _to_user(text)
        if stopped is None or start + window >= end:
            return texts
    # The turn is longer than the last window, whose content has to do.
    return [*texts, _ends(text[stopped:])]


def _to_user(text: str) -> tuple[list[str], int | None]:
    """Return the words up to the user's first turn, and where the text stopped short of it."""
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
    """Return the strings in a turn in their order, in whatever they are packed."""
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
