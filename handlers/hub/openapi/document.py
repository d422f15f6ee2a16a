"""The OpenAPI document of the JSON API, made from the table."""

import re
from functools import cache
from typing import Any

from handlers.hub.openapi.schemas import schemas
from handlers.hub.openapi.table import ADMIN, OPEN, PARAMETERS, ROWS, Row

OPENAPI = "3.1.0"
_PLACEHOLDER = re.compile(r"\{(\w+)\}")
_FAILURES = {
    "400": "What was sent cannot be; `field` names what is wrong.",
    "401": "No session and no token.",
    "403": "The token lacks the scope, or the XSRF token is missing.",
    "404": "There is no such thing for the one who asks.",
    "409": "The name exists.",
    "429": "Too many tries; see Retry-After.",
}
_ABOUT = """\
Everything the Hub's pages do, for scripts. Asked with the cookie of a session, then changes need
the header X-XSRFToken with the `_xsrf` of a form of that session, or with a token as
`Authorization: Bearer slt-…`. Names in paths are percent-encoded. Lists: `?limit=…&after=CURSOR`.
Money is decimal text, times are RFC 3339."""


@cache
def document() -> dict[str, Any]:
    """The whole document."""
    paths: dict[str, dict[str, Any]] = {}
    for row in ROWS:
        paths.setdefault(row.path, {})[row.method.lower()] = _operation(row)
    return {
        "openapi": OPENAPI,
        "info": {"title": "Sluice API Hub", "version": "1", "description": _ABOUT},
        "paths": paths,
        "components": {
            "schemas": schemas(),
            "parameters": {
                name: _parameter(name, "query", PARAMETERS[name]) for name in PARAMETERS
            },
            "responses": {code: _failure(said) for code, said in _FAILURES.items()},
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer"},
                "session": {"type": "apiKey", "in": "cookie", "name": "sluice_session"},
            },
        },
        "security": [{"token": []}, {"session": []}],
    }


def _operation(row: Row) -> dict[str, Any]:
    said: dict[str, Any] = {
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
        said["security"] = []
    else:
        said["description"] = f"A token needs the scope `{row.scope}`."
    if row.body:
        said["requestBody"] = {"content": {"application/json": {"schema": _ref(row.body)}}}
    return said


def _answer(row: Row) -> dict[str, Any]:
    if row.status == 204:
        return {"description": "Done; no content."}
    schema = _ref(row.answer) if row.answer else {"type": "string"}
    return {"description": row.summary, "content": {row.media: {"schema": schema}}}


def _failures(row: Row) -> dict[str, Any]:
    """The errors that an operation may answer."""
    able = {"401", "403"} if row.scope != OPEN else set()
    if row.query or row.body:
        able.add("400")
    if row.scope == ADMIN or "{" in row.path:
        able.add("404")
    if row.status == 201:
        able.add("409")
    if row.path.endswith("/redeem"):
        able.add("429")
    return {code: {"$ref": f"#/components/responses/{code}"} for code in sorted(able)}


def _failure(said: str) -> dict[str, Any]:
    content = {"application/json": {"schema": _ref("Error")}}
    return {"description": said, "content": content}


def _parameter(name: str, place: str, said: str) -> dict[str, Any]:
    found: dict[str, Any] = {"name": name, "in": place, "schema": {"type": "string"}}
    return {**found, "required": True} if place == "path" else {**found, "description": said}


def _ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


def _id_of(row: Row) -> str:
    words = re.findall(r"\w+", row.path.removeprefix("/api/").replace("-", "_").replace(".", "_"))
    return "_".join([row.method.lower(), *words])


def _tag_of(row: Row) -> str:
    return "administration" if row.scope == ADMIN else row.path.split("/")[2].partition(".")[0]
