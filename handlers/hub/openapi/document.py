"""The OpenAPI document of the JSON API, and the endpoint that serves it.

Operations come from the table. The schemas of administered objects are generated from the table of
fields that `apply` uses.
"""

import json
import re
from collections.abc import Mapping
from functools import cache
from typing import Any

from handlers.hub.openapi.table import ADMIN, OPEN, PARAMETERS, ROWS, Endpoint
from handlers.hub.web.base import Api, Failure
from store.admin.kinds import KINDS, REQUIRED, SPEND_ORDERS
from store.values import fields as types
from store.values.meters import METERS
from store.values.price_fields import PriceChanges, PriceTable, RateList
from store.values.usage_record import FIELDS as RECORD_FIELDS

OPENAPI = "3.1.0"
_PLACEHOLDER = re.compile(r"\{(\w+)\}")
_FAILURES = {
    "400": "The request is invalid; `field` names the wrong field.",
    "401": "No session and no token.",
    "403": "The token lacks the scope, or the XSRF token is missing.",
    "404": "The object does not exist for this user.",
    "409": "The name exists, or others have changed the object since `version`.",
    "429": "Too many tries; see Retry-After.",
}
_ABOUT = """\
Everything the Hub's pages do, for scripts. Authenticate with a token as
`Authorization: Bearer slt-…`, or with the cookie of a session; changes then need the header
X-XSRFToken with the `_xsrf` of a form of that session. Names in paths are percent-encoded. Lists:
`?limit=…&after=CURSOR`. Money is decimal text, times are RFC 3339."""


def document() -> dict[str, Any]:
    """Return the OpenAPI document."""
    paths: dict[str, dict[str, Any]] = {}
    for row in ROWS:
        paths.setdefault(row.path, {})[row.method.lower()] = _operation(row)
    return {
        "openapi": OPENAPI,
        "info": {"title": "Sluice API Hub", "version": "1", "description": _ABOUT},
        "paths": paths,
        "components": {
            "schemas": schemas_by_name(),
            "parameters": {
                name: _parameter(name, "query", PARAMETERS[name]) for name in PARAMETERS
            },
            "responses": {code: _failure(text) for code, text in _FAILURES.items()},
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer"},
                "session": {"type": "apiKey", "in": "cookie", "name": "sluice_session"},
            },
        },
        "security": [{"token": []}, {"session": []}],
    }


def _operation(row: Endpoint) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": _id_of(row),
        "summary": row.summary,
        "tags": [_tag_of(row)],
        "parameters": [
            *(_parameter(name, "path", "") for name in _PLACEHOLDER.findall(row.path)),
            *({"$ref": f"#/components/parameters/{name}"} for name in row.query),
        ],
        "responses": {str(row.status): _answer(row), **_failures(row)},
    }
    if row.scope == OPEN:
        operation["security"] = []
    else:
        operation["description"] = f"A token needs the scope `{row.scope}`."
    if row.body:
        operation["requestBody"] = {"content": {"application/json": {"schema": _ref(row.body)}}}
    return operation


def _answer(row: Endpoint) -> dict[str, Any]:
    if row.status == 204:
        return {"description": "Done; no content."}
    schema = _ref(row.answer) if row.answer else {"type": "string"}
    return {"description": row.summary, "content": {row.media: {"schema": schema}}}


def _failures(row: Endpoint) -> dict[str, Any]:
    """Return the errors that an operation can answer."""
    codes = {"401", "403"} if row.scope != OPEN else set()
    if row.query or row.body:
        codes.add("400")
    if row.scope == ADMIN or "{" in row.path:
        codes.add("404")
    if row.status == 201:
        codes.add("409")
    if row.path.endswith("/redeem"):
        codes.add("429")
    return {code: {"$ref": f"#/components/responses/{code}"} for code in sorted(codes)}


def _failure(description: str) -> dict[str, Any]:
    content = {"application/json": {"schema": _ref("Error")}}
    return {"description": description, "content": content}


def _parameter(name: str, place: str, description: str) -> dict[str, Any]:
    parameter: dict[str, Any] = {"name": name, "in": place, "schema": {"type": "string"}}
    if place == "path":
        return {**parameter, "required": True}
    return {**parameter, "description": description}


def _id_of(row: Endpoint) -> str:
    words = re.findall(r"\w+", row.path.removeprefix("/api/").replace("-", "_").replace(".", "_"))
    return "_".join([row.method.lower(), *words])


def _tag_of(row: Endpoint) -> str:
    return "administration" if row.scope == ADMIN else row.path.split("/")[2].partition(".")[0]


class OpenApiDocument(Api):
    """GET /api/openapi.json, without authentication."""

    async def prepare(self) -> None:
        """Skip authentication."""

    async def get(self) -> None:
        self.finish(_text())


class UnknownApi(Api):
    """The answer for API paths without a handler."""

    def check_xsrf_cookie(self) -> None:
        """Skip the check: nothing changes."""

    async def prepare(self) -> None:
        raise Failure(404, "not_found", "there is no such path")


@cache
def _text() -> str:
    return json.dumps(document(), ensure_ascii=False)


Schema = dict[str, Any]

_TEXT: Schema = {"type": "string"}
_MONEY: Schema = {"type": "string", "description": 'A decimal number like "2.50".'}
_TIME: Schema = {"type": "string", "format": "date-time"}
_NUMBER: Schema = {"type": "integer"}
_FLAG: Schema = {"type": "boolean"}
_OWN_ID: Schema = {"type": "string", "description": "A repeated id is booked once."}
_VERSION: Schema = {
    "type": "string",
    "description": "Of one object; a change that holds an older one is answered 409.",
}
_TEXTS: Schema = {"type": "array", "items": _TEXT}
_NULLABLE: Schema = {"type": ["string", "null"]}
_NUMBER_OR_NULL: Schema = {"type": ["integer", "null"]}
_MASK = "*** in answers; leave it out to keep what is there"
_MARKS = re.compile(r"[`]")


def schemas_by_name() -> dict[str, Schema]:
    """Return all schemas by name."""
    schemas = {name: _object(fields) for name, fields in _FIELDS.items()}
    schemas |= {"Object": {"type": "object"}, "Error": _ERROR, "List": _list({"type": "object"})}
    for kind, spec in KINDS.items():
        name = kind.capitalize()
        fields: dict[str, Schema] = {
            **{part: _of_type(type_) for part, type_ in spec.identity.items() if kind != "key"},
            **{name: _field(row) for name, row in spec.fields.items()},
        }
        if kind == "key":
            fields = {"name": _of_type(spec.identity["name"]), **fields}
        fields["version"] = _VERSION
        required = [name for name, row in spec.fields.items() if row.default is REQUIRED]
        about = f"{spec.about} New ones need {', '.join([*spec.identity, *required])}."
        schemas[f"{name}Body"] = {"description": about, **_object(fields)}
        schemas[name] = {
            "allOf": [{"type": "object", "properties": {"id": _TEXT}}, _ref(name, "Body")]
        }
        schemas[f"{name}List"] = _list(_ref(name))
    schemas["Call"] = _object({name: _RECEIPT.get(name, Schema()) for name in RECORD_FIELDS})
    schemas["CallWithCost"] = {"allOf": [_ref("Call"), _object(_COST)]}
    for name in ("Call", "Notice", "Audit", "Token"):
        schemas[f"{name}List"] = _list(_ref(name))
    schemas["TestResults"] = _list(_ref("TestResult"))
    return dict(sorted(schemas.items()))


def _object(fields: Mapping[str, Schema]) -> Schema:
    return {"type": "object", "properties": dict(fields)}


def _list(item: Schema) -> Schema:
    after = {"type": ["string", "null"], "description": "The `after` of the next page."}
    fields: dict[str, Schema] = {"items": {"type": "array", "items": item}, "next": after}
    return {**_object(fields), "required": ["items", "next"]}


def _ref(name: str, more: str = "") -> Schema:
    return {"$ref": f"#/components/schemas/{name}{more}"}


def _choice(*options: str) -> Schema:
    return {"type": "string", "enum": list(options)}


def _field(row: Any) -> Schema:
    description = _MARKS.sub("", row.meaning) + (f" {_MASK}." if row.secret else "")
    return {**_of_type(row.type), "description": description}


def _of_type(kind: types.FieldType) -> Schema:
    if isinstance(kind, types.Optional):
        inner = _of_type(kind.inner)
        return {**inner, "type": [inner.get("type", "string"), "null"]}
    for plain, schema in ((types.Boolean, _FLAG), (types.Number, _MONEY), (types.Instant, _TIME)):
        if isinstance(kind, plain) and not isinstance(kind, types.Integer):
            return schema
    if isinstance(kind, types.Integer):
        return {"type": "integer", "minimum": kind.least, "maximum": kind.most}
    if isinstance(kind, types.Choice):
        return _choice(*kind.options)
    if isinstance(kind, types.ListOf):
        return {"type": "array", "items": _of_type(kind.item)}
    if isinstance(kind, PriceTable):
        return _object(_PRICES)
    if isinstance(kind, RateList):
        return _RATES
    if isinstance(kind, PriceChanges):
        change = _object({"from": _TIME, **_PRICES, "rate": _RATES})
        return {"type": "array", "items": change}
    if isinstance(kind, types.OptionMap):
        return {"type": "object", "additionalProperties": True}
    if isinstance(kind, (types.ModelMap, types.HeaderMap)):
        return {"type": "object", "additionalProperties": _TEXT}
    return _TEXT


_PRICES: Mapping[str, Schema] = dict.fromkeys(METERS, _NULLABLE)
_PRICE: Schema = _object(_PRICES)
_WHEN: Mapping[str, Schema] = {
    **dict.fromkeys(("tier", "speed", "geo"), _TEXT),
    "input_over": {"type": "integer"},
}
_RATES: Schema = {"type": "array", "items": _ref("Rate")}
_COUNTS: Schema = {"type": "object", "additionalProperties": _NUMBER}
_UNPRICED: Schema = _object({"meter": _TEXT, "count": _NUMBER})
_OTHER_MODEL: Schema = _object({"model": _TEXT, "tokens": _COUNTS, "cost": _MONEY})
_RECEIPT: Mapping[str, Schema] = {
    "meters": {**_COUNTS, "description": "Counts above 0 by meter."},
    "rate": {**_object(_WHEN), "description": "Conditions of its rate; none: the plain one."},
    "served": _object(dict.fromkeys(("tier", "speed", "geo"), _TEXT)),
    "unpriced": {
        **{"type": "array", "items": _UNPRICED},
        "description": "Meters and features without a price.",
    },
    "other_models": {"type": "array", "items": _OTHER_MODEL},
}
_COST_LINE: Mapping[str, Schema] = {
    "meter": _NULLABLE,
    "model": {**_NULLABLE, "description": "Another model inside the call, in place of a meter."},
    "count": _NUMBER,
    "price": {**_NULLABLE, "description": "For the unit of the meter; null of another model."},
    "amount": {**_MONEY, "description": "Exact, before the multiplier."},
}
_COST: Mapping[str, Schema] = {
    "cost_lines": {"type": "array", "items": _object(_COST_LINE)},
    "refunds": {"type": "array", "items": {"type": "object"}},
}
_PRICE_OR_NULL: Schema = {**_PRICE, "type": ["object", "null"]}
_OFFER: Mapping[str, Schema] = {
    **{"name": _TEXT, "served_as": _TEXTS},
    "known": {"type": "boolean", "description": "A model has this name."},
}
_DRAFT_MODEL: Mapping[str, Schema] = {
    "upstream": {**_TEXT, "description": "Its name at the vendor."},
    **{"name": _TEXT, "chosen": _FLAG, "price": _PRICE, "cost": _PRICE_OR_NULL},
}
_DRAFT: Mapping[str, Schema] = {
    "pay": {
        **_choice("factor", "models", "unknown"),
        "description": "How the operator's cost is known.",
    },
    **{"cost_factor": _TEXT, "priority": _NUMBER, "weight": _NUMBER},
}
_ERROR_FIELDS: Mapping[str, Schema] = {"code": _TEXT, "message": _TEXT, "field": _NULLABLE}
_ERROR: Schema = _object({"error": {**_object(_ERROR_FIELDS), "required": [*_ERROR_FIELDS]}})
_FIELDS: Mapping[str, Mapping[str, Schema]] = {
    "Me": {"user": _TEXT, "role": _TEXT, "balance": _MONEY, "groups": _TEXTS},
    "Secret": {"id": _TEXT, "secret": _TEXT},
    "Token": {
        **dict.fromkeys(("id", "user", "name", "token"), _TEXT),
        "scopes": _TEXTS,
        "created_at": _TIME,
        **{name: {**_TIME, **_NULLABLE} for name in ("used_at", "revoked_at")},
    },
    "Ended": {"ended": _NUMBER, "tokens": _NUMBER},
    "RotateBody": {"overlap_s": _NUMBER},
    "TokenBody": {"name": _TEXT, "scopes": _TEXTS},
    "NewToken": {"id": _TEXT, "token": _TEXT},
    "WalletBody": {"low_below": _NULLABLE, "spend_order": _choice(*SPEND_ORDERS)},
    "CodeBody": {"code": _TEXT},
    "UrlBody": {"url": _TEXT},
    "SetupTest": {"key": _TEXT, "model": _TEXT, "client": _TEXT},
    "TryBody": {
        "key": {**_TEXT, "description": "The id of the key that the call is made as."},
        "model": _TEXT,
        "entry": {**_TEXT, "description": "The family; without it the model's own."},
        "turns": {
            "type": "array",
            "items": {"type": "object", "properties": {"role": _TEXT, "text": _TEXT}},
        },
        **dict.fromkeys(("system", "effort"), _TEXT),
        "max_tokens": {"type": "integer"},
        **{name: {"type": "number"} for name in ("temperature", "top_p")},
        **{name: {"type": "boolean"} for name in ("stream", "search")},
        "further": {"type": "object", "description": "More fields of the body, as they are."},
    },
    "RefundBody": {
        "amount": {**_MONEY, "description": "A part; without it all that is left."},
        **{"reason": _TEXT, "id": _OWN_ID},
    },
    "FindKeyBody": {"secret": _TEXT},
    "StopBody": {"reason": _TEXT},
    "InviteBody": {
        "role": _choice("member", "admin"),
        "groups": _TEXTS,
        "balance": _MONEY,
    },
    "CreditBody": {
        **{"amount": _MONEY, "reason": _TEXT},
        "id": _OWN_ID,
        "kind": _choice("credit", "debit"),
    },
    "Totp": {"totp": _choice("on", "off"), "ended": _FLAG},
    "LinkBody": {"subject": {"type": "string", "description": "The user's name there (sub)."}},
    "Link": {
        **dict.fromkeys(("id", "issuer", "subject"), _TEXT),
        **{"created_at": _TIME, "used_at": _NULLABLE},
    },
    "TestBody": {"model": _TEXT, "stream": _FLAG},
    "TestResult": {
        **{"ok": _FLAG, "channel": _TEXT, "model": _TEXT, "upstream_model": _TEXT},
        **{"stream": _FLAG, "status": _NUMBER_OR_NULL, "first_byte_ms": _NUMBER_OR_NULL},
        **{"total_ms": _NUMBER, "error": _NULLABLE, "answer": _NULLABLE},
    },
    "ChannelDraft": {
        "channel": {"type": "object", "description": "Its account, without secrets."},
        "secrets": {**_COUNTS, "description": "How many of each are in the draft."},
        "list": _object({"ok": _FLAG, "status": _NUMBER_OR_NULL, "error": _NULLABLE}),
        "models": {
            "type": "array",
            "items": _object(
                {
                    **_DRAFT_MODEL,
                    **{"kind": _TEXT, "listed": {"type": ["object", "null"]}},
                    "test": {"type": ["object", "null"]},
                }
            ),
        },
        **_DRAFT,
    },
    "ChannelDraftBody": {
        "channel": _ref("ChannelBody"),
        "models": {"type": "array", "items": _object(_DRAFT_MODEL)},
        **_DRAFT,
    },
    "DraftTestBody": {"models": {**_TEXTS, "description": "At the vendor."}, "stream": _FLAG},
    "DraftSaveBody": {"enabled": _FLAG},
    "ChannelTests": {"channels": {**_TEXTS, "description": "Their names."}, "stream": _FLAG},
    "UpstreamModels": {
        **{"ok": _FLAG, "status": _NUMBER_OR_NULL, "error": _NULLABLE},
        **_list(_object({**_OFFER, "proposed": _PRICE_OR_NULL}))["properties"],
    },
    "ReinstateBody": {"key": {"type": ["integer", "null"], "description": "Its position, from 1."}},
    "Rate": {"when": _object(_WHEN), "factor": _NULLABLE, **_PRICES},
    "PriceList": _list(
        _object({"effective_at": _TIME, **_PRICES, "rate": _RATES, "source": _NULLABLE})
    )["properties"],
    "PriceListBody": {
        "prices": {
            "type": "array",
            "items": _object({"model": _TEXT, "version": _TEXT, **_PRICES}),
        },
        "dry_run": _FLAG,
    },
    "PriceTicks": {
        "take": {
            "type": "array",
            "items": _object(
                {
                    **{"model": _TEXT, "rate": _TEXT, "meter": _TEXT},
                    **{"before": _NULLABLE, "after": _MONEY, "accept_rise": _FLAG},
                }
            ),
        },
        "dry_run": _FLAG,
    },
    "PriceChanges": {
        "dry_run": _FLAG,
        "changes": {
            "type": "array",
            "items": _object({"model": _TEXT, "before": _PRICE, "after": _PRICE}),
        },
    },
    "CodesBody": {"amount": _MONEY, "count": _NUMBER, "expires_at": _TIME},
    "CodeChange": {"amount": _MONEY, "expires_at": _NULLABLE, "enabled": _FLAG},
    "AlertRuleBody": {
        **{"kind": _TEXT, "settings": {"type": "object"}, "again_minutes": _NUMBER},
        **{"destinations": {"type": "array", "items": _TEXT}, "enabled": _FLAG},
        "version": _VERSION,
    },
    "AlertRule": {
        **dict.fromkeys(("id", "kind", "state", "changed_by"), _TEXT),
        **{"settings": {"type": "object"}, "again_minutes": _NUMBER, "enabled": _FLAG},
        **{"destinations": {"type": "array", "items": _TEXT}},
        **{"firing": {"type": "array", "items": {"type": "object"}}},
        **{"fired_at": _NULLABLE, "changed_at": _TIME, "version": _VERSION},
    },
    "AlertDestinationBody": dict.fromkeys(("name", "kind", "address", "chat"), _TEXT),
    "MailTestBody": {"to": _TEXT},
    "NoticeBody": {"text": _TEXT, "level": _TEXT, "since": _TIME, "until": _TIME},
    "Notice": {
        **dict.fromkeys(("id", "text", "level"), _TEXT),
        **{"since": _TIME, "until": _NULLABLE},
    },
    "Audit": {
        **{"id": _TEXT, "at": _TIME, "actor": _TEXT, "address": _NULLABLE},
        **dict.fromkeys(("action", "kind", "name"), _TEXT),
        **{name: {"type": ["object", "null"]} for name in ("before", "after")},
    },
}
