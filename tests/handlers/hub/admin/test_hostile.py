"""Bodies that no honest script sends: refused, never an internal error."""

import pytest

BODIES = (
    "[" * 100_000,
    '{"a":' * 50_000,
    "[]",
    '"text"',
    "NaN",
    '{"name": NaN, "price": {"input": Infinity}}',
    '{"name": "\\ud800", "price": {"input": "1", "output": "1"}}',
    '{"name": ["x"], "keys": {"a": [1]}, "models": [[1]]}',
    '{"name": "x\\u0000y"}',
    '{"text": "\\ud800", "level": ["info"], "since": {"a": 1}}',
    '{"amount": "1e400", "reason": "\\ud800", "id": "x", "count": 1e400}',
    '{"amount": "1", "reason": "\\u0000", "id": "\\ud800"}',
    '{"prices": [{"model": "\\ud800", "input": 1e400}], "dry_run": false}',
    '{"prices": [[1]], "dry_run": "yes"}',
    "\xff\xfe",
)
PATHS = (
    *(f"/api/admin/{one}" for one in ("users", "groups", "models", "channels", "plans", "codes")),
    *("/api/admin/subscriptions", "/api/admin/prices", "/api/admin/notices"),
    *("/api/admin/users/alice/credit", "/api/admin/channels/none/test"),
)


@pytest.mark.parametrize("path", PATHS)
def test_no_body_is_an_internal_error(api, path):
    for body in BODIES:
        answer = api.ask("POST", path, body.encode("latin-1"))
        assert 400 <= answer.status < 500, f"{body[:60]}: {answer.status} {answer.text[:200]}"
        assert set(answer.json["error"]) == {"code", "message", "field"}


def test_no_query_or_name_is_an_internal_error(api):
    for name in ("%00", "%FF", "..", "%2F%2F", "a" * 2000, "%3Cscript%3E"):
        for path in ("users", "models", "channels", "subscriptions", "codes", "notices"):
            for method in ("GET", "PATCH", "DELETE"):
                answer = api.ask(method, f"/api/admin/{path}/{name}", "{}")
                assert 400 <= answer.status < 500, f"{method} {path}/{name}: {answer.status}"
    for query in ("limit=-1", "limit=999999999999", "limit=%00", "after=%00", "search=%25%5C_"):
        for path in ("users", "subscriptions", "codes", "audit"):
            answer = api.get(f"/api/admin/{path}?{query}")
            assert answer.status in (200, 400), f"{path}?{query}: {answer.status}"
