"""Types of the fields of the operator's document: text and numbers in, checked values out.

Each type converts a document value (TOML or JSON) into the stored value, back into a document
value, and a command-line word into a document value. All raise ValueError with the fact and the
remedy, never with the value of a secret. Pure.
"""

import datetime
import json
import re
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, ClassVar

from store.values import texts
from store.values.texts import nearest
from store.values.times import MAX_INSTANT_MS

MAX_DECIMAL_EXPONENT = 30
MAX_LIST_LENGTH = 10_000
MAX_EXTRA_HEADERS = 32
MAX_OPTIONS = 32
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_RFC_3339 = re.compile(
    r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d{1,6})?([Zz]|[+-]\d\d:\d\d)", re.ASCII
)


class FieldType:
    """A type of values: how they are checked, printed, described and read from the command line."""

    @property
    def form(self) -> str:
        """Describe the allowed values, for docs/document.md."""
        raise NotImplementedError

    def parse(self, value: object) -> Any:
        """Return the value as it is stored. Raises ValueError."""
        raise NotImplementedError

    def plain(self, value: Any) -> Any:
        """Return a stored value as a document value."""
        return value

    def from_text(self, text: str) -> object:
        """Return a word of the command line as a document value."""
        return text


@dataclass(frozen=True, slots=True)
class Text(FieldType):
    """A string that passes a check; the check may normalise it."""

    check: Callable[[str], str]
    form: str = "a string"

    def parse(self, value: object) -> str:
        if not isinstance(value, str):
            raise ValueError("must be a string")
        return self.check(value)


@dataclass(frozen=True, slots=True)
class Choice(FieldType):
    """One of some words."""

    options: Collection[str]

    @property
    def form(self) -> str:
        return "one of " + ", ".join(f"`{option}`" for option in self.options)

    def parse(self, value: object) -> str:
        if isinstance(value, str) and value in self.options:
            return value
        hint = nearest(value, self.options) if isinstance(value, str) else ""
        raise ValueError(f"must be one of {', '.join(self.options)}{hint}")


@dataclass(frozen=True, slots=True)
class Integer(FieldType):
    """An integer between two bounds."""

    least: int
    most: int

    @property
    def form(self) -> str:
        return f"a whole number from {self.least} to {self.most}"

    def parse(self, value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise ValueError("must be a whole number")
        if not self.least <= value <= self.most:
            raise ValueError(f"must be between {self.least} and {self.most}")
        return value

    def from_text(self, text: str) -> object:
        return int(text) if re.fullmatch(r"-?[0-9]{1,19}", text, re.ASCII) else text


@dataclass(frozen=True, slots=True)
class Boolean(FieldType):
    """The values true and false."""

    form: ClassVar[str] = "true or false"

    def parse(self, value: object) -> bool:
        if not isinstance(value, bool):
            raise ValueError("must be true or false")
        return value

    def from_text(self, text: str) -> object:
        return {"true": True, "false": False}.get(text, text)


@dataclass(frozen=True, slots=True)
class Number(FieldType):
    """A decimal string (or a plain number), stored as a scaled integer."""

    read: Callable[[str], int]
    write: Callable[[int], str]

    form: ClassVar[str] = 'a decimal string like `"2.50"`'

    def parse(self, value: object) -> int:
        return self.read(decimal_text(value))

    def plain(self, value: Any) -> str:
        return self.write(value)


@contextmanager
def within(place: str) -> Iterator[None]:
    """Put the place before the message of a ValueError."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{place} {error}") from None


def list_of(value: object, message: str, most: int) -> list[Any]:
    """Return a list of at most `most` elements. Raises ValueError."""
    if not isinstance(value, list):
        raise ValueError(message)
    if len(value) > most:
        raise ValueError(f"has more than {most} elements")
    return value


def table_of(value: object, message: str, most: int) -> dict[Any, Any]:
    """Return a table of at most `most` entries. Raises ValueError."""
    if not isinstance(value, dict):
        raise ValueError(message)
    if len(value) > most:
        raise ValueError(f"has more than {most} entries")
    return value


def pairs_of(text: str) -> list[tuple[str, str, str]]:
    """Split `a=b,c` into names and values, each with its separator, which is empty if there is no
    value."""
    return [part.strip().partition("=") for part in text.split(",") if part.strip()]


def decimal_text(value: object) -> str:
    """Return a decimal string, also for a plain number. Raises ValueError."""
    if isinstance(value, str):
        return value
    if isinstance(value, Decimal) and value.is_finite():
        # Bounded first: the text of 1e999999 would be a million characters long.
        if abs(value.adjusted()) > MAX_DECIMAL_EXPONENT:
            raise ValueError("is out of range")
        return format(value, "f")
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    raise ValueError('must be a decimal string like "2.50"')


@dataclass(frozen=True, slots=True)
class Optional(FieldType):
    """Another type, or null (on the command line: nothing) for 'not set'."""

    inner: FieldType

    @property
    def form(self) -> str:
        return self.inner.form

    def parse(self, value: object) -> Any:
        return None if value is None else self.inner.parse(value)

    def plain(self, value: Any) -> Any:
        return None if value is None else self.inner.plain(value)

    def from_text(self, text: str) -> object:
        return None if text == "" else self.inner.from_text(text)


@dataclass(frozen=True, slots=True)
class ListOf(FieldType):
    """A list without repetitions, in the given order. On the command line, separated by commas."""

    item: FieldType

    @property
    def form(self) -> str:
        return f"a list; each {self.item.form}"

    def parse(self, value: object) -> list[Any]:
        items = []
        for index, element in enumerate(list_of(value, "must be a list", MAX_LIST_LENGTH)):
            with within(f"element {index + 1}"):
                items.append(self.item.parse(element))
        return list(dict.fromkeys(items))

    def plain(self, value: Any) -> list[Any]:
        return [self.item.plain(element) for element in value]

    def from_text(self, text: str) -> object:
        return [self.item.from_text(part.strip()) for part in text.split(",") if part.strip()]


@dataclass(frozen=True, slots=True)
class ModelMap(FieldType):
    """Public model name -> upstream name. On the command line `a=b,c`, where c has the same
    name."""

    form: ClassVar[str] = "a table of public name = upstream name"

    def parse(self, value: object) -> dict[str, str]:
        message, names = 'must be a table of public name = "upstream name"', {}
        for public, upstream in table_of(value, message, MAX_LIST_LENGTH).items():
            with within(f'entry "{public}"'):
                names[texts.model_name(public)] = UPSTREAM_NAME.parse(upstream)
        return names

    def from_text(self, text: str) -> object:
        return {public: upstream or public for public, _, upstream in pairs_of(text)}


@dataclass(frozen=True, slots=True)
class Sealed:
    """A stored secret. No document contains one; it stands for an unchanged value."""

    token: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class HeaderMap(FieldType):
    """Header name in lower case -> value. A single edit leaves the others Sealed."""

    form: ClassVar[str] = "a table of header = value"

    def parse(self, value: object) -> dict[str, str | Sealed]:
        table = table_of(value, 'must be a table of name = "value"', MAX_EXTRA_HEADERS)
        headers: dict[str, str | Sealed] = {}
        for key, content in table.items():
            with within(f'entry "{key}"'):
                name = texts.header_name(key)
                if name in headers:
                    raise ValueError("is given twice")
                sealed = isinstance(content, Sealed)
                headers[name] = content if sealed else _HEADER_VALUE.parse(content)
        return headers

    def from_text(self, text: str) -> object:
        return {name: value for name, _, value in pairs_of(text)}


@dataclass(frozen=True, slots=True)
class OptionMap(FieldType):
    """Name of an option -> a word, number, true, false or a list of words. The wire formats define
    the options and their values (`store.admin.plan.Upstreams`)."""

    form: ClassVar[str] = "a table of option = value"

    def parse(self, value: object) -> dict[str, object]:
        table = table_of(value, "must be a table of option = value", MAX_OPTIONS)
        for name, option in table.items():
            if not isinstance(name, str) or len(name) > texts.MAX_NAME_CHARS:
                raise ValueError(
                    f"the name of an option has at most {texts.MAX_NAME_CHARS} characters"
                )
            items = option if isinstance(option, list) else [option]
            if len(items) > MAX_OPTIONS or not all(map(_is_plain, items)):
                raise ValueError(
                    f'entry "{name}" must be a word, a number, true, false or a list of words'
                )
        return dict(table)

    def from_text(self, text: str) -> object:
        return {name: self.value_from_text(value) for name, _, value in pairs_of(text)}

    def value_from_text(self, text: str) -> object:
        """Return one value: a word, a number, true or false, or a list in JSON."""
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            return text


def _is_plain(value: object) -> bool:
    return isinstance(value, (bool, int)) or (isinstance(value, str) and len(value) <= 200)


@dataclass(frozen=True, slots=True)
class Instant(FieldType):
    """A time with its time zone, stored in milliseconds since 1970 UTC."""

    form: ClassVar[str] = "a time like `2027-01-01T00:00:00Z`"

    def parse(self, value: object) -> int:
        if isinstance(value, str) and _RFC_3339.fullmatch(value):
            value = datetime.datetime.fromisoformat(value.upper())
        if not isinstance(value, datetime.datetime) or value.tzinfo is None:
            raise ValueError('must be a time like "2027-01-01T00:00:00Z"')
        at_ms = round(value.timestamp() * 1000)
        if not 0 <= at_ms <= MAX_INSTANT_MS:
            raise ValueError("must lie in the years from 1970 to 9999")
        return at_ms

    def plain(self, value: Any) -> str:
        # Not from a float, which loses milliseconds of distant years.
        moment = _EPOCH + datetime.timedelta(milliseconds=value)
        precision = "milliseconds" if value % 1000 else "seconds"
        return moment.isoformat(timespec=precision).replace("+00:00", "Z")


UPSTREAM_NAME = Text(texts.upstream_name)
_HEADER_VALUE = Text(texts.header_value)
