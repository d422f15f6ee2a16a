"""Error messages of the store in the page's language.

The texts `refused.NAME` of the default language are the messages of the store and of `operations`,
with their values named in braces; other languages translate them. A test compares them with the
sources. A message without such a text is shown unchanged.
"""

import re
from collections.abc import Callable, Mapping
from functools import cache

from handlers.hub.web.strings import DEFAULT, strings
from store.values.passwords import FAULTS

MAX_CHARS = 2000
MAX_DEPTH = 5
_SECTION = "refused."
_BRACES = re.compile(r"\{(\w+)\}")
_LABEL = re.compile(r'[a-z]+ "[^"]*": ')
_WORD = re.compile(r"[\w.\[\]-]+")
_AND = " and "
_REFUSALS = frozenset({"fault", "rest"})  # values that are themselves error messages

Sentence = tuple[str, tuple[str, ...], tuple[str, ...]]
"""A text's name, the literal parts between its values, and the names of the values."""


@cache
def sentences() -> tuple[Sentence, ...]:
    """Return the texts of error messages: first those that contain another message, then those with
    more literal text."""
    rows = []
    for name, text in strings(DEFAULT).items():
        if name.startswith(_SECTION):
            parts = _BRACES.split(text)
            rows.append((name, tuple(parts[::2]), tuple(parts[1::2])))
    return tuple(
        sorted(rows, key=lambda row: (_REFUSALS.isdisjoint(row[2]), -sum(map(len, row[1]))))
    )


def refusal_in_words(words: Mapping[str, str], message: str) -> str:
    """Return an error message in the language of `words`, without the name of its object. A message
    without a translation is returned unchanged."""
    if len(message) > MAX_CHARS:
        return message
    return _in_words(words, message, MAX_DEPTH) or message


def beside(field: str, message: str) -> str:
    """Return an error message for display next to its field, without the field's name."""
    return message.partition(f": {field}: ")[2] or message


def _in_words(words: Mapping[str, str], message: str, depth: int) -> str | None:
    """Return an error message in the language of `words`. None: a part of it has no translation."""
    if depth == 0:
        return None
    for fault, text in FAULTS.items():
        if message.endswith(text):
            return words[f"password_{fault}"]
    label = _LABEL.match(message)
    if label and (rest := _in_words(words, message[label.end() :], depth)):
        return rest
    for name, texts, parts in sentences():
        values = _values(texts, parts, message)
        translated = None if values is None else _values_in_words(words, values, depth - 1)
        if translated is not None:
            text = words[name].format(**translated)
            # Keep the case of a name at the beginning.
            is_begun = depth == MAX_DEPTH and texts[0].partition(" ")[0].isalpha()
            return text[:1].upper() + text[1:] if is_begun else text
    return None


def _values(texts: tuple[str, ...], parts: tuple[str, ...], message: str) -> dict[str, str] | None:
    """Return the values of a message by name. None: the message does not match this text."""
    if not message.startswith(texts[0]) or not message.endswith(texts[-1]):
        return None
    if not parts:
        return {} if message == texts[0] else None
    values, start, last = {}, len(texts[0]), len(message) - len(texts[-1])
    for place, name in enumerate(parts, 1):
        end = last if place == len(parts) else message.find(texts[place], start, last)
        value = message[start : max(start, end)]
        if end < start or (";" in value and name not in _REFUSALS):
            return None
        values[name], start = value, end + len(texts[place])
    return values


def _values_in_words(
    words: Mapping[str, str], values: Mapping[str, str], depth: int
) -> dict[str, str] | None:
    """Return the values in the language of `words`. None: a value does not fit its name."""
    translated: dict[str, str] = {}
    for name, value in values.items():
        in_words = _IN_WORDS.get(name)
        text = in_words(words, value, depth) if in_words else value
        if text is None:
            return None
        translated[name] = text
    return translated


def _fields(words: Mapping[str, str], value: str, _: int) -> str | None:
    names = value.split(_AND)
    if not all(map(_WORD.fullmatch, names)):
        return None
    labels = (words.get(f"admin.f_{it}", words.get(f"alerts.f_{it}", it)) for it in names)
    return ", ".join(labels)


def _kind(words: Mapping[str, str], value: str, _: int) -> str | None:
    return words.get(f"admin.kind_{value}", value) if _WORD.fullmatch(value) else None


_IN_WORDS: Mapping[str, Callable[[Mapping[str, str], str, int], str | None]] = {
    **dict.fromkeys(_REFUSALS, _in_words),
    "field": _fields,
    "fields": _fields,
    "secrets": _fields,
    "kind": _kind,
    "other": _kind,
}
"""The translators of values, by the values' names in the texts."""
