"""The schemas of bodies and answers. Those of administered objects are made from the table of
fields that `apply` reads."""

import re
from collections.abc import Mapping
from typing import Any

from store.admin.kinds import KINDS, REQUIRED, SPEND_ORDERS
from store.values.fields import (
    Boolean,
    Choice,
    FieldType,
    HeaderMap,
    Instant,
    Integer,
    ListOf,
    ModelMap,
    Number,
    Optional,
    OptionMap,
    PriceChanges,
    PriceTable,
)
from store.values.pricing import PRICE_NAMES
from store.values.usage_record import FIELDS as RECORD_FIELDS

Schema = dict[str, Any]

_TEXT: Schema = {"type": "string"}
_MONEY: Schema = {"type": "string", "description": 'A decimal number like "2.50".'}
_TIME: Schema = {"type": "string", "format": "date-time"}
_NUMBER: Schema = {"type": "integer"}
_FLAG: Schema = {"type": "boolean"}
_MASK = "*** in answers; leave it out to keep what is there"
_MARKS = re.compile(r"[`]")


def schemas() -> dict[str, Schema]:
    """All of them by name."""
    found = {name: _object(fields) for name, fields in _FIELDS.items()}
    found |= {"Object": {"type": "object"}, "Error": _ERROR, "List": _list({"type": "object"})}
    for kind, spec in KINDS.items():
        name = kind.capitalize()
        fields: dict[str, Schema] = {
            **{part: _of_type(one) for part, one in spec.identity.items() if kind != "key"},
            **{field: _field(one) for field, one in spec.fields.items()},
        }
        if kind == "key":
            fields = {"name": _of_type(spec.identity["name"]), **fields}
        required = [one for one, field in spec.fields.items() if field.default is REQUIRED]
        about = f"{spec.about} New ones need {', '.join([*spec.identity, *required])}."
        found[f"{name}Body"] = {"description": about, **_object(fields)}
        found[name] = {
            "allOf": [{"type": "object", "properties": {"id": _TEXT}}, _ref(name, "Body")]
        }
        found[f"{name}List"] = _list(_ref(name))
    found["Call"] = _object({name: Schema() for name in RECORD_FIELDS})
    for name in ("Call", "Notice", "Audit", "Token"):
        found[f"{name}List"] = _list(_ref(name))
    found["TestResults"] = _list(_ref("TestResult"))
    return dict(sorted(found.items()))


def _object(fields: Mapping[str, Schema]) -> Schema:
    return {"type": "object", "properties": dict(fields)}


def _list(item: Schema) -> Schema:
    after = {"type": ["string", "null"], "description": "The `after` of the next page."}
    fields: dict[str, Schema] = {"items": {"type": "array", "items": item}, "next": after}
    return {**_object(fields), "required": ["items", "next"]}


def _ref(name: str, more: str = "") -> Schema:
    return {"$ref": f"#/components/schemas/{name}{more}"}


def _field(one: Any) -> Schema:
    said = _MARKS.sub("", one.meaning) + (f" {_MASK}." if one.secret else "")
    return {**_of_type(one.type), "description": said}


def _of_type(kind: FieldType) -> Schema:
    if isinstance(kind, Optional):
        inner = _of_type(kind.inner)
        return {**inner, "type": [inner.get("type", "string"), "null"]}
    if isinstance(kind, Boolean):
        return dict(_FLAG)
    if isinstance(kind, Integer):
        return {"type": "integer", "minimum": kind.least, "maximum": kind.most}
    if isinstance(kind, Number):
        return dict(_MONEY)
    if isinstance(kind, Choice):
        return {"type": "string", "enum": list(kind.options)}
    if isinstance(kind, ListOf):
        return {"type": "array", "items": _of_type(kind.item)}
    if isinstance(kind, PriceTable):
        return _object({name: {"type": ["string", "null"]} for name in PRICE_NAMES})
    if isinstance(kind, PriceChanges):
        return {"type": "array", "items": _object({"from": dict(_TIME), **_PRICES})}
    if isinstance(kind, OptionMap):
        return {"type": "object", "additionalProperties": True}
    if isinstance(kind, (ModelMap, HeaderMap)):
        return {"type": "object", "additionalProperties": _TEXT}
    return dict(_TIME) if isinstance(kind, Instant) else dict(_TEXT)


_PRICES: Mapping[str, Schema] = {name: {"type": ["string", "null"]} for name in PRICE_NAMES}
_ERROR: Schema = _object(
    {
        "error": {
            **_object({"code": _TEXT, "message": _TEXT, "field": {"type": ["string", "null"]}}),
            "required": ["code", "message", "field"],
        }
    }
)
_FIELDS: Mapping[str, Mapping[str, Schema]] = {
    "Me": {
        **{"user": _TEXT, "role": _TEXT, "balance": _MONEY},
        "groups": {"type": "array", "items": _TEXT},
    },
    "Secret": {"id": _TEXT, "secret": _TEXT},
    "Token": {
        **dict.fromkeys(("id", "user", "name", "token"), _TEXT),
        "scopes": {"type": "array", "items": _TEXT},
        "created_at": _TIME,
        **{name: {**_TIME, "type": ["string", "null"]} for name in ("used_at", "revoked_at")},
    },
    "Ended": {"ended": _NUMBER, "tokens": _NUMBER},
    "RotateBody": {"overlap_s": _NUMBER},
    "TokenBody": {"name": _TEXT, "scopes": {"type": "array", "items": _TEXT}},
    "NewToken": {"id": _TEXT, "token": _TEXT},
    "WalletBody": {
        "low_below": {"type": ["string", "null"]},
        "spend_order": {"type": "string", "enum": list(SPEND_ORDERS)},
    },
    "CodeBody": {"code": _TEXT},
    "UrlBody": {"url": _TEXT},
    "SetupTest": {"secret": _TEXT, "model": _TEXT, "client": _TEXT},
    "RefundBody": {"reason": _TEXT},
    "FindKeyBody": {"secret": _TEXT},
    "CreditBody": {
        **{"amount": _MONEY, "reason": _TEXT},
        "id": {"type": "string", "description": "The same one twice is booked once."},
        "kind": {"type": "string", "enum": ["credit", "debit"]},
    },
    "Totp": {"totp": {"type": "string", "enum": ["on", "off"]}, "ended": _FLAG},
    "LinkBody": {"subject": {"type": "string", "description": "The user's name there (sub)."}},
    "Link": {
        **{"id": _TEXT, "issuer": _TEXT, "subject": _TEXT, "created_at": _TIME},
        "used_at": {"type": ["string", "null"]},
    },
    "TestBody": {"model": _TEXT, "stream": _FLAG},
    "TestResult": {
        **{"ok": _FLAG, "channel": _TEXT, "model": _TEXT, "upstream_model": _TEXT},
        **{"stream": _FLAG, "status": {"type": ["integer", "null"]}},
        **{"first_byte_ms": {"type": ["integer", "null"]}, "total_ms": _NUMBER},
        "error": {"type": ["string", "null"]},
    },
    "ChannelTests": {
        "channels": {"type": "array", "items": _TEXT, "description": "Their names."},
        "stream": _FLAG,
    },
    "UpstreamModels": {
        **{"ok": _FLAG, "status": {"type": ["integer", "null"]}},
        "error": {"type": ["string", "null"]},
        **_list(
            _object(
                {
                    "name": _TEXT,
                    "served_as": {"type": "array", "items": _TEXT},
                    "known": {"type": "boolean", "description": "There is a model of this name."},
                }
            )
        )["properties"],
    },
    "ReinstateBody": {"key": {"type": ["integer", "null"], "description": "Its position, from 1."}},
    "PriceList": _list(_object({"effective_at": _TIME, **_PRICES}))["properties"],
    "PriceListBody": {
        "prices": {"type": "array", "items": _object({"model": _TEXT, **_PRICES})},
        "dry_run": _FLAG,
    },
    "PriceChanges": {
        "dry_run": _FLAG,
        "changes": {
            "type": "array",
            "items": _object(
                {"model": _TEXT, "before": _object(_PRICES), "after": _object(_PRICES)}
            ),
        },
    },
    "CodesBody": {"amount": _MONEY, "count": _NUMBER, "expires_at": _TIME},
    "CodeChange": {"amount": _MONEY, "expires_at": {"type": ["string", "null"]}, "enabled": _FLAG},
    "NoticeBody": {"text": _TEXT, "level": _TEXT, "since": _TIME, "until": _TIME},
    "Notice": {
        **{"id": _TEXT, "text": _TEXT, "level": _TEXT, "since": _TIME},
        "until": {"type": ["string", "null"]},
    },
    "Audit": {
        **{"id": _TEXT, "at": _TIME, "actor": _TEXT, "address": {"type": ["string", "null"]}},
        **{"action": _TEXT, "kind": _TEXT, "name": _TEXT},
        **{"before": {"type": ["object", "null"]}, "after": {"type": ["object", "null"]}},
    },
}
