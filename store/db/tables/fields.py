"""The base of all tables' models, and fields that peewee does not have."""

import json
from typing import Any

import peewee

# Maximum lengths of texts in keys or indexes, in characters.
ID = 26
"""A ULID."""
WORD = 32
"""One of a few words, or a short part of a secret."""
MARK = 64
"""A digest in hexadecimal digits, an account, a code, an address."""
NAME = 128
MODEL = 256
TEXT = 255
"""A text from a client or an operator, cut or checked before."""


class Row(peewee.Model):
    """Base of all tables."""

    class Meta:
        legacy_table_names = False  # an index is named after its table


class Flag(peewee.SmallIntegerField):
    """True or False, stored as 1 or 0."""

    def db_value(self, value: Any) -> Any:
        return None if value is None else int(bool(value))

    def python_value(self, value: Any) -> Any:
        return None if value is None else bool(value)


class LongText(peewee.TextField):
    """A text that may exceed 64 KiB."""

    field_type = "LONGTEXT"


class Json(peewee.TextField):
    """A JSON value stored as text, the same on both databases, byte for byte."""

    def db_value(self, value: Any) -> Any:
        if value is None:
            return None
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))

    def python_value(self, value: Any) -> Any:
        return None if value is None else json.loads(value)


class LongJson(Json):
    """A JSON value that may exceed 64 KiB."""

    field_type = "LONGTEXT"


class Digest(peewee.BlobField):
    """A digest of 32 bytes."""

    field_type = "DIGEST"


class Limited(Row):
    """Base of tables whose rows have limits (0: none). Not a table itself."""

    rpm = peewee.BigIntegerField(default=0)
    tpm = peewee.BigIntegerField(default=0)
    concurrency = peewee.BigIntegerField(default=0)


class Beginning(peewee.Node):
    """A long text in an index. MySQL indexes this many characters of it, SQLite all."""

    def __init__(self, field: peewee.Field, chars: int) -> None:
        self.field, self.chars = field, chars

    def __sql__(self, ctx: Any) -> Any:
        """Write the SQL. The parameter marker shows the dialect."""
        ctx.sql(self.field)
        return ctx.literal(f"({self.chars})") if ctx.state.param == "%s" else ctx


class SparseIndex(peewee.ModelIndex):
    """An index of the rows that have a value. MySQL has no such indexes and indexes all rows."""

    def __sql__(self, ctx: Any) -> Any:
        """Write the SQL. The parameter marker shows the dialect."""
        super().__sql__(ctx)  # type: ignore[no-untyped-call]
        if ctx.state.param == "%s":
            return ctx
        (part,) = self._expressions  # type: ignore[attr-defined]
        with ctx.scope_values(subquery=True):
            return ctx.literal(" WHERE ").sql(getattr(part, "field", part)).literal(" IS NOT NULL")
