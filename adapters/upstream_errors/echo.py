"""Removal of the caller's own words from an upstream's message, for a log line.

Vendors repeat parts of a request in their errors, but a log never holds a prompt. Masking too much
is harmless: the usage record has the whole sentence. Pure. Imported by the relay.
"""

import re
from collections.abc import Collection, Iterator
from typing import Any

from adapters.faults import MASK
from adapters.json.jsonio import loads_loose

BODY_MAX_BYTES = 65_536  # of a request that is searched: takes some ms
RUN_WORDS = 3  # a run of this many words that is also in the request is the caller's
LONG_WORD_CHARS = 12  # so is a single word of this length
MARKED_WORD_CHARS = 6  # and of this length if it has a digit, as passwords do

_WORD = re.compile(r"\w+")


def without_echo(text: str, body: bytes, names: Collection[str] = ()) -> str | None:
    """Return `text` with the words that are also in the JSON request `body` masked. The words of
    `names` stay.

    None if the body is too large to be searched, or cannot be read.
    """
    if not body:
        return text
    if len(body) > BODY_MAX_BYTES:
        return None
    try:
        request = _plain(" ".join(_texts(loads_loose(body))))
    except (ValueError, RecursionError):
        return None
    matches = list(_WORD.finditer(text))
    words = [match[0].lower() for match in matches]
    allowed = {word for name in names for word in _plain(name).split()}
    hidden = [
        _is_telling(word) and word not in allowed and f" {word} " in request for word in words
    ]
    for at in range(len(words) - RUN_WORDS + 1):
        run = words[at : at + RUN_WORDS]
        if not allowed.issuperset(run) and f" {' '.join(run)} " in request:
            hidden[at : at + RUN_WORDS] = [True] * RUN_WORDS
    return _masked(text, matches, hidden)


def _texts(value: Any) -> Iterator[str]:
    """Yield the texts of a request, without the names of its fields."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _texts(inner)


def _plain(text: str) -> str:
    """Return the words in lower case, with a single blank between them and at both ends."""
    return f" {' '.join(_WORD.findall(text.lower()))} "


def _is_telling(word: str) -> bool:
    long = len(word) >= LONG_WORD_CHARS
    return long or (len(word) >= MARKED_WORD_CHARS and any(char.isdigit() for char in word))


def _masked(text: str, matches: list[re.Match[str]], hidden: list[bool]) -> str:
    """Return the text with each run of hidden words as one mask."""
    parts, at, before = [], 0, False
    for match, hide in zip(matches, hidden, strict=True):
        if not (hide and before):
            parts.append(text[at : match.start()])
            parts.append(MASK if hide else match[0])
        at, before = match.end(), hide
    return "".join((*parts, text[at:]))
