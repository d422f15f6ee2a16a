"""Requests to every endpoint of the JSON API that no honest script sends, the same in every run:
none causes an internal error."""

import http.client
import json
import random
from urllib.parse import quote

import pytest

from handlers.hub.openapi.document import schemas_by_name
from handlers.hub.openapi.table import PARAMETERS, ROWS
from store.hub import tokens
from tests.handlers.hub.script import CHANNEL, MODEL
from tests.support.ports import HOST

SEED = 20261127
EACH = 12  # requests for each endpoint
KNOWN = {"name": ["alice", "default", "gpt-4.1", "main", "none"], "user": ["alice"], "plan": ["p"]}
LEFT_OUT = {"/api/usage/tail"}  # never ends
HALF = "\ud800"
TEXTS = ["", " ", HALF, f"a{HALF}b", "\x00", "a\x00b", "\r\n", "\u202e", "𝒳" * 40, "x" * 70_000,
         "alice", "default", "main", "gpt-4.1", "read", "admin", "1", "1e400", "-1", "2.5", "true",
         "24h", "2030-01-01T00:00:00Z", "9999-12-31T23:59:59-23:59", "0001-01-01T00:00:00+23:59",
         "http://[::1", f"http://{HALF}.test", "http://127.0.0.1:9", "file:/dev/zero", "env:HOME",
         "../../x", "%", "%_\\", "***", "key/with/slashes", "/dev/zero"]  # fmt: skip
VALUES = [None, True, False, 0, -1, 1, 2**31, 2**63, 2**64, 10**400, 0.5, -0.0, 1e308, float("inf"),
          float("nan"), [], {}, [[]], [None], [{}], {"": ""}, {HALF: HALF}, [HALF], [1, "a", None],
          {"a": {"a": {}}}, {"a": [1]}, {"x": ["y"]}, ["x"], [["x"]], [0] * 300]  # fmt: skip
BYTES = [b"", b"\xff\xfe", b"[" * 5000, b"{", b"null", b"[]", b'"x"', b'{"a":1}{', b"\xed\xa0\x80"]


def value(rng):
    return rng.choice(TEXTS) if rng.random() < 0.5 else rng.choice(VALUES)


def fitting(schema, rng):
    """Return a plausible value for a field, or one with something wrong inside."""
    if rng.random() < 0.35:
        return value(rng)
    kind = schema.get("type", "string")
    kind = kind[0] if isinstance(kind, list) else kind
    if "enum" in schema:
        return rng.choice(schema["enum"])
    if kind == "array":
        return [fitting(schema.get("items", {}), rng) for _ in range(rng.randrange(3))]
    if kind == "object":
        inner = schema.get("properties") or {"gpt-4.1": {}, rng.choice(TEXTS): {}}
        return {name: fitting(one, rng) for name, one in inner.items() if rng.random() < 0.7}
    if kind == "integer":
        return rng.choice([0, 1, 5, -1, 2**63])
    return True if kind == "boolean" else rng.choice(TEXTS)


def word(text):
    """Return a text for a URL; lone surrogates become their bytes."""
    return quote(text[:2000].encode("utf-8", "surrogatepass"), safe="")


def path_of(row, rng):
    parts = []
    for part in row.path.split("/"):
        named = part.startswith("{")
        known = KNOWN.get(part.strip("{}"), ["none"])
        parts.append(word(rng.choice([*known * 4, *TEXTS])) if named else part)
    names = [*row.query, rng.choice(list(PARAMETERS)), "none"]
    query = [f"{name}={word(str(value(rng)))}" for name in rng.sample(names, rng.randrange(3))]
    return "/".join(parts) + ("?" + "&".join(query) if query else "")


def body_of(row, known, rng):
    """Return JSON for the endpoint, as bytes; also for endpoints without a schema."""
    if rng.random() < 0.1:
        return rng.choice(BYTES)
    fields = known.get(row.body, {}).get("properties", {"x": {}})
    body = {name: fitting(one, rng) for name, one in fields.items() if rng.random() < 0.6}
    if rng.random() < 0.1:
        body[rng.choice(TEXTS)] = value(rng)
    return json.dumps(body, ensure_ascii=rng.random() < 0.5).encode("utf-8", "surrogatepass")


def headers_of(token, rng):
    odd = rng.choice(
        [b"\xff\xfe", b"\xed\xa0\x80", b"a=\x80", b"x" * 3000, b"%00", b'"', b"zh;q=x"]
    )
    name = rng.choice(["Accept-Language", "Cookie", "X-Forwarded-For", "User-Agent", "X-Odd"])
    return {"Authorization": f"Bearer {token}", name: odd.decode("latin-1")}


@pytest.mark.parametrize("who", ["alice", "boss"])
def test_nothing_is_an_internal_error(hub, db, apply, caplog, who):
    apply({"model": [MODEL], "channel": [CHANNEL], "plan": [{"name": "p", "quota": "1"} | WINDOW]})
    scopes = ["admin"] if who == "boss" else ["read", "keys"]
    _, token = tokens.create(db, who, scopes, actor="tester")
    known, wrong, statuses = schemas_by_name(), [], set()
    connection = http.client.HTTPConnection(HOST, hub.port, timeout=60)
    for row in ROWS:
        if row.path in LEFT_OUT or (who == "alice" and row.path.startswith("/api/admin/")):
            continue
        for number in range(EACH):
            rng = random.Random(f"{SEED} {row.method} {row.path} {number}")
            path, body = path_of(row, rng), body_of(row, known, rng)
            connection.request(row.method, path, body, headers_of(token, rng))
            answer = connection.getresponse()
            said = answer.read()
            statuses.add(answer.status)
            if answer.status >= 500 and not is_ours(row, answer.status):
                wrong.append((row.method, path[:200], answer.status, body[:300], said[:200]))
    connection.close()
    assert wrong == [], (len(wrong), wrong[:5])
    assert {200, 400, 404} <= statuses
    assert "Traceback" not in caplog.text and "Uncaught" not in caplog.text


WINDOW = {"window": "month"}


def is_ours(row, status):
    """Return True for an expected status: no gateway's ops port can be asked to drain here."""
    return row.path.startswith("/api/admin/system") and status in (502, 503)
