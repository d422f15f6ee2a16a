"""openapi.json: it describes each route of the application, and nothing else."""

import re

import pytest

from handlers.hub.openapi.document import document
from handlers.hub.openapi.table import PARAMETERS, ROWS
from handlers.hub.routes import ROUTES
from handlers.hub.web.base import Api
from tests.handlers.hub.browser import Browser

METHODS = ("get", "post", "patch", "put", "delete")
API = [
    (re.compile(pattern + "$"), handler)
    for pattern, handler in ROUTES
    if pattern.startswith("/api/") and issubclass(handler, Api)
]


def filled(path):
    """Return a path with a value for each placeholder."""
    return re.sub(r"\{\w+\}", "x-1", path)


def route_of(path):
    """Return the first route that matches a path, like the application."""
    return next((found for found in API if found[0].match(filled(path))), None)


def offered(handler):
    """Return the methods that a handler defines itself or inherits from the Hub's base classes,
    without Tornado's defaults."""
    return {one.upper() for one in METHODS if "tornado" not in getattr(handler, one).__module__}


def test_each_described_operation_exists():
    assert len(ROWS) > 50
    for row in ROWS:
        found = route_of(row.path)
        assert found is not None, f"no route answers {row.path}"
        assert row.method in offered(found[1]), f"{row.method} {row.path} is not answered"


def test_each_route_is_described():
    assert len(API) > 30
    described = {}
    for row in ROWS:
        described.setdefault(route_of(row.path)[0], set()).add(row.method)
    for pattern, handler in API:
        missing = offered(handler) - described.get(pattern, set())
        assert not missing, f"handlers/hub/openapi/table.py lacks {missing} {pattern.pattern}"


def references(value):
    if isinstance(value, dict):
        if "$ref" in value:
            yield value["$ref"]
        for inner in value.values():
            yield from references(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from references(inner)


def test_everything_that_is_referred_to_is_there():
    whole = document()
    for reference in set(references(whole)):
        place = whole
        for part in reference.removeprefix("#/").split("/"):
            assert part in place, reference
            place = place[part]
    used = {name for row in ROWS for name in row.query}
    assert used == set(PARAMETERS)
    ids = [one["operationId"] for path in whole["paths"].values() for one in path.values()]
    assert len(ids) == len(set(ids)) == len(ROWS)


def test_it_is_answered_to_everybody(hub, alice):
    for browser in (alice, Browser(hub.port)):
        answer = browser.get("/api/openapi.json")
        assert answer.status == 200 and answer.json == document()
    channel = document()["components"]["schemas"]["ChannelBody"]["properties"]
    assert channel["models"]["type"] == "object" and channel["weight"]["minimum"] == 1


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
def test_a_path_that_is_none_is_a_json_404(alice, method):
    for path in ("/api", "/api/nothing", "/api/admin/nothing"):
        answer = alice.ask(method, path)
        assert answer.status == 404 and answer.json["error"]["code"] == "not_found"
