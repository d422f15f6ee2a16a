"""Types of the channel fields that are tables: edits of its requests, time-outs of its models.

Paths of edits are names separated by dots, as `tools.*.defer_loading`. `*` stands for all elements
of an array, or all names of an object. For kinds.py and the catalog. Pure.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, ClassVar

from store.values import texts
from store.values.fields import (
    MAX_LIST_LENGTH,
    Integer,
    OptionMap,
    list_of,
    pairs_of,
    table_of,
    within,
)
from store.values.texts import nearest

MAX_EDITS = 64  # of one kind
MAX_PATH_CHARS = 256
MAX_VALUE_CHARS = 16_384  # of a value as JSON
MAX_TIMEOUT_S = 86_400
ALL = "*"

KEPT_FIELDS = frozenset({"model", "stream", "stream_options", "n", "usage"})
"""Fields of a request that the gateway sets or needs for billing. Channels may not edit them."""

Path = tuple[str, ...]


Edit = tuple[str, Path, bytes | None]
"""A kind (remove, default, set), a path, and a value in JSON."""


def body_edits(value: Mapping[str, Any] | None) -> tuple[Edit, ...]:
    """Return the edits in a value of the field, in the order in which they are made."""
    if not value:
        return ()
    return (
        *(("remove", _parts(path), None) for path in value.get("remove", ())),
        *(
            (kind, _parts(path), _encoded(new))
            for kind in ("default", "set")
            for path, new in value.get(kind, {}).items()
        ),
    )


def _parts(path: str) -> Path:
    return tuple(path.split("."))


def _encoded(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), allow_nan=False).encode()


@dataclass(frozen=True, slots=True)
class BodyMap(OptionMap):
    """Edits of a body: tables `set` and `default` of path = value, and a list `remove` of paths."""

    form: ClassVar[str] = "a table of `set` and `default` (path = value) and `remove` (paths)"

    def parse(self, value: object) -> dict[str, Any]:
        edits: dict[str, Any] = {}
        kinds = ("set", "default", "remove")
        for kind, content in table_of(value, "must be a table", len(kinds)).items():
            if kind not in kinds:
                raise ValueError(f'has no field "{kind}"{nearest(str(kind), kinds)}')
            with within(f"{kind}:"):
                if kind == "remove":
                    paths = list_of(content, "must be a list of paths", MAX_EDITS)
                    edits[kind] = list(dict.fromkeys(_path(path) for path in paths))
                else:
                    table = table_of(content, "must be a table of path = value", MAX_EDITS)
                    edits[kind] = {_path(path): _value(path, new) for path, new in table.items()}
        return {kind: edits[kind] for kind in kinds if edits.get(kind)}

    def from_text(self, text: str) -> object:
        return self.value_from_text(text) if text.strip() else {}


def _path(path: object) -> str:
    if not isinstance(path, str) or not path.isprintable() or len(path) > MAX_PATH_CHARS:
        raise ValueError(f"a path must be a text of at most {MAX_PATH_CHARS} characters")
    parts = _parts(path)
    if not all(parts) or parts[0] == ALL:
        raise ValueError(f'"{path}" must be names with points between them, the first no {ALL}')
    if parts[0] in KEPT_FIELDS:
        raise ValueError(f'"{path}": {parts[0]} is set by the gateway')
    return path


def _value(path: object, value: object) -> Any:
    """Return a value with numbers as in JSON."""
    try:
        plain = json.loads(json.dumps(value, default=_number, allow_nan=False))
    except (TypeError, ValueError, RecursionError):
        raise ValueError(f'"{path}" must be a value that JSON has') from None
    if len(_encoded(plain)) > MAX_VALUE_CHARS:
        raise ValueError(f'"{path}" is longer than {MAX_VALUE_CHARS} characters')
    return plain


def _number(value: object) -> int | float:
    if not isinstance(value, Decimal):
        raise TypeError
    return (
        int(value) if value == value.to_integral_value() and "." not in str(value) else float(value)
    )


TIMEOUT_S = Integer(1, MAX_TIMEOUT_S)
TIMES = ("first_byte_timeout_s", "idle_timeout_s")


@dataclass(frozen=True, slots=True)
class TimesMap(OptionMap):
    """Public name of a model -> its time-outs in seconds."""

    form: ClassVar[str] = f"a table of model = a table of {' and '.join(f'`{t}`' for t in TIMES)}"

    def parse(self, value: object) -> dict[str, Any]:
        times: dict[str, Any] = {}
        for name, table in table_of(value, "must be a table of models", MAX_LIST_LENGTH).items():
            with within(f'entry "{name}"'):
                model = texts.model_name(name)
                times[model] = {}
                for field, seconds in table_of(table, "must be a table", len(TIMES)).items():
                    if field not in TIMES:
                        raise ValueError(f'has no field "{field}"{nearest(str(field), TIMES)}')
                    with within(f"{field}:"):
                        times[model][field] = TIMEOUT_S.parse(seconds)
        return times

    def from_text(self, text: str) -> object:
        return text if text.strip() else {}

    def value_from_text(self, text: str) -> object:
        """Return the time-outs of a model: `first_byte_timeout_s=900,idle_timeout_s=60`."""
        pairs = pairs_of(text)
        return {name.strip(): TIMEOUT_S.from_text(seconds.strip()) for name, _, seconds in pairs}
