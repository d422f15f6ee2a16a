"""Admission before any upstream is asked: who may call, which bytes are accepted, what refusals
say.

One gateway with a small limit of bodies. test_errors.py checks each dialect's wording of a
condition; the tests of the packages check the rules of HTTP, JSON and request fields.
"""

import gzip
import hashlib
import json

import pytest

from store.catalog import wrong_paths
from store.db.database import discard, open_database
from tests.support.client import Connection, exchange, wait_until
from tests.support.dialects import (
    CHAT,
    GENERATE,
    MESSAGES,
    PATHS,
    REFUSALS,
    RESPONSES,
    SECRET,
    ask,
    check_ids,
    check_refusal,
    credentials,
    path_of,
    text_of,
)
from tests.support.documents import PRICE, channel

PROXY = "127.0.0.9"  # a local address that counts as a trusted proxy
LIMIT_BYTES = 1 << 20
SECRETS = {
    name: f"sk-test-{name}-0123456789"
    for name in ("disabled", "revoked", "network", "narrow", "chatter", "poor", "banned")
}
SETTINGS = {
    "server.max_body_bytes": LIMIT_BYTES,
    "server.trusted_proxies": json.dumps([f"{PROXY}/32", "10.0.0.0/8"]),
}
MODELS = (
    *("open-model", "Org/slash-model", "chat-only", "translated", "elsewhere-model", "off-model"),
    "orphan",
)
ALIAS = "vendor-name-of-the-open-model"
LIST_PATHS = {CHAT: "/v1/models", MESSAGES: "/v1/models", GENERATE: "/v1beta/models"}


def content(vendor):
    served = {"open-model": ALIAS, "Org/slash-model": "demo-small", "off-model": "demo-small"}
    return {
        "model": [{"name": name, "price": PRICE} for name in MODELS],
        "group": [
            {"name": "all"},
            {"name": "chatters", "entries": ["chat_completions"]},
            {"name": "elsewhere", "models": ["elsewhere-model"]},
        ],
        "channel": [
            channel("chat", CHAT, vendor.url, {**served, "translated": "demo-small"},
                    groups=["all", "chatters"]),
            channel("chat-only", CHAT, vendor.url, {"chat-only": "demo-small"},
                    groups=["all", "chatters"], translate=False),
            *(channel(family, family, vendor.url, served)
              for family in (MESSAGES, RESPONSES, GENERATE)),
            channel("far", CHAT, vendor.url, {"elsewhere-model": "demo-small"},
                    groups=["elsewhere"]),
        ],
        "user": [
            {"name": "owner", "balance": "1000"},
            {"name": "pauper"},
            {"name": "banned", "balance": "1"},
        ],
        "key": [
            {"user": "owner", "name": "main", "group": "all", "secret": SECRET},
            *(key(name) for name in ("disabled", "revoked")),
            key("network", networks=["203.0.113.0/24"]),
            key("narrow", models=["open-model"]),
            key("chatter", group="chatters"),
            key("poor", user="pauper"),
            key("banned", user="banned"),
        ],
    }  # fmt: skip


def key(name, user="owner", group="all", **more):
    return {"user": user, "name": name, "group": group, "secret": SECRETS[name], **more}


@pytest.fixture(scope="module")
def gateway(launch, vendor):
    """Return a gateway with a disabled key, a revoked key, a disabled user and a disabled model."""
    made = launch(content(vendor), SETTINGS)
    ids = key_ids(made)
    made.run("key", "disable", ids["disabled"])
    made.run("key", "revoke", ids["revoked"])
    made.run("user", "disable", "banned")
    made.run("model", "disable", "off-model")

    def known():
        return call(made, model="off-model").status == 404 and all(
            call(made, headers=credentials(secret=SECRETS[name])).status == 401
            for name in ("disabled", "revoked", "banned")
        )

    assert wait_until(known), "a change did not arrive"
    return made


def key_ids(gateway):
    listed = json.loads(gateway.run("key", "list", "--json"))
    return {entry["name"]: entry["id"] for entry in listed}


def call(gateway, family=CHAT, model="open-model", headers=None, **more):
    path = path_of(family, model, more.get("stream", False))
    body = ask(family, model, **more)
    return exchange(gateway.port, "POST", path, headers or credentials(family), body)


def send(gateway, data, family=CHAT, path=None, **headers):
    """Make a call with these bytes; "Content_Type" stands for Content-Type."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    path = path or path_of(family, "open-model")
    return exchange(gateway.port, "POST", path, {**credentials(family), **named}, data)


def encoded(family=CHAT, **changes):
    """Return the bytes of a valid call with some fields changed."""
    return json.dumps({**ask(family, "open-model"), **changes}).encode()


def check_refused_record(gateway, answer, number, **fields):
    record = gateway.record(answer.call_id)
    expected = {"outcome": "refused", "error_code": REFUSALS[number].code, "attempts": [],
                "status": answer.status, "cost": "0", "charges": [], "usage_source": "none",
                "channel": None, "upstream_model": None, **fields}  # fmt: skip
    assert {name: record[name] for name in expected} == expected
    assert record["error_message"]


# ---- credentials ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "number"), [("revoked", "E04"), ("banned", "E04")])
def test_a_known_key_that_may_not_call_is_recorded_with_the_model(gateway, name, number):
    """This holds for a compressed body too; other reasons: test_errors.py."""
    headers = credentials(RESPONSES, SECRETS[name])
    body = gzip.compress(encoded(RESPONSES, stream=True))
    answer = send(gateway, body, RESPONSES, Content_Encoding="gzip", **headers)
    check_refusal(answer, RESPONSES, number)
    check_refused_record(gateway, answer, number, model="open-model", key_name=name, stream=True)


# ---- models --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "model", [ALIAS, "elsewhere-model", "off-model", "orphan", "OPEN-MODEL", "x" * 5000]
)
def test_a_model_that_is_not_offered(gateway, model):
    answer = call(gateway, model=model)
    check_refusal(answer, CHAT, "E08")
    record = gateway.record(answer.call_id)
    assert len(record["model"]) <= 128 and record["model"][:9] == model[:9]


@pytest.mark.parametrize(
    ("family", "name"),
    [(CHAT, "chatter"), (MESSAGES, "chatter"), (MESSAGES, "narrow"), (GENERATE, "main")],
)
def test_the_list_shows_exactly_what_the_key_can_call(gateway, family, name):
    headers = credentials(family, SECRETS.get(name, SECRET))
    answer = exchange(gateway.port, "GET", LIST_PATHS[family], headers)
    assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
    check_ids(answer)
    if family == GENERATE:
        shown = {entry["name"].removeprefix("models/") for entry in answer.json["models"]}
    else:
        shown = {entry["id"] for entry in answer.json["data"]}
    callable_now = {m for m in MODELS if call(gateway, family, m, headers).status == 200}
    assert shown == callable_now
    assert bool(shown) is not (family != CHAT and name == "chatter")


def test_a_doubled_path_is_shown_to_the_owner_of_its_key(gateway):
    doubled = "/v1/messages/v1/messages"
    headers = {"x-api-key": SECRET, "User-Agent": "anthropic-python 2.11.0"}
    for sent in (headers, headers, headers, {"x-api-key": "sk-of-nobody-0123456789"}):
        assert gateway.call("POST", doubled, {"model": "open-model"}, sent)[0] == 404
    db, key_id = open_database(gateway.store_url), key_ids(gateway)["main"]

    def noticed():
        rows = wrong_paths.of_keys(db, [key_id], 0)
        return rows if sum(row.calls for row in rows) >= 3 else None

    [row] = wait_until(noticed)
    discard(db)
    assert (row.method, row.path, row.calls) == ("POST", doubled, 3)
    assert (row.address, row.agent) == ("127.0.0.1", "anthropic-python 2.11.0")


# ---- bodies --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "called_json"),
    [("", False), (None, False), ("multipart/form-data; boundary=x", False),
     ("application/jsonp", False), ("text/json-application/json", False),
     ("Application/JSON;charset=x", True)],
)  # fmt: skip
def test_a_body_is_called_json_or_refused(gateway, value, called_json):
    data = encoded()
    answer = send(gateway, data, Content_Type=value, Content_Encoding="identity",
                  Content_Length=str(len(data)))  # fmt: skip
    if called_json:
        assert answer.status == 200
    else:
        check_refusal(answer, CHAT, "E16")


@pytest.mark.parametrize(
    ("family", "stream", "chunked"),
    [(CHAT, True, False), (RESPONSES, False, True), (MESSAGES, True, True),
     (GENERATE, False, False)],
)  # fmt: skip
def test_the_vendor_gets_the_plain_body_of_a_packed_one(gateway, vendor, family, stream, chunked):
    vendor.reset()
    # Includes "include_usage", so that the gateway adds nothing to the body.
    options = {"stream_options": {"include_usage": True}} if family == CHAT else {}
    body = ask(family, "Org/slash-model", "[[demo ms=0]]", stream=stream, **options)
    if family != GENERATE:
        body["model"] = "Org/slash-model"
    plain = json.dumps(body).encode()
    data, headers = gzip.compress(plain), {}
    if chunked:
        half = len(data) // 2
        pieces = b"".join(b"%x\r\n%b\r\n" % (len(p), p) for p in (data[:half], data[half:]))
        data, headers = pieces + b"0\r\n\r\n", {"Transfer_Encoding": "chunked"}
    path = path_of(family, "Org%2Fslash-model", stream)
    answer = send(gateway, data, family, path, Content_Encoding="gzip", **headers)
    assert answer.status == 200 and answer.whole and text_of(family, answer.body)
    (entry,) = vendor.log()
    plain = plain.replace(b"Org/slash-model", b"demo-small")
    assert entry["sha256"] == hashlib.sha256(plain).hexdigest()
    assert entry["headers"]["content-length"] == str(len(plain))
    assert not {"content-encoding", "transfer-encoding"} & set(entry["headers"])


PASSED_ON = (
    b'"a":[1e999,1.10,1e5,-0.0,123456789012345678901234567890],\r\n\t  "b"  :\n[ ] ,\r\n'
    b'"c":"\\u0041\\/\\u00fc\\ud83d\\ude00","base_url":"http://203.0.113.1","api_key":"sk-evil",'
    b'"custom_llm_provider":"x","channel":"far",'
)


@pytest.mark.parametrize(("family", "status"), [(CHAT, 200), (GENERATE, 400)])
def test_the_bytes_of_a_body_reach_the_vendor_as_they_are(gateway, vendor, family, status):
    """The vendor refuses unknown fields except in chat completions."""
    vendor.reset()
    body = encoded(family).replace(b"{", b"{" + PASSED_ON, 1)
    assert send(gateway, body, family).status == status
    (entry,) = vendor.log()
    mapped = body.replace(b'"open-model"', json.dumps(ALIAS).encode(), 1)
    assert entry["body"].encode() == mapped


LARGE = {"Content-Length": "40000000"}
ORDER = [
    ("path, key", "POST", "/v1/message", {"Authorization": "Bearer x"}, b"x", "E31"),
    ("method, key", "GET", PATHS[CHAT], {"Authorization": "Bearer x"}, None, "E33"),
    ("key, type", "POST", PATHS[CHAT],
     {"Authorization": "Bearer x", "Content-Type": "x"}, b"x", "E03"),
    ("disabled, type", "POST", PATHS[CHAT],
     {"Authorization": f"Bearer {SECRETS['disabled']}", "Content-Type": "x"}, b"x", "E04"),
    ("type, size", "POST", PATHS[CHAT], {"Content-Type": "x", **LARGE}, b"", "E16"),
    ("size, encoding", "POST", PATHS[CHAT], {"Content-Encoding": "x", **LARGE}, b"", "E15"),
    ("encoding, JSON", "POST", PATHS[CHAT], {"Content-Encoding": "x"}, b"x", "E17"),
    ("JSON, model", "POST", PATHS[CHAT], {}, b'{"model":"gone"', "E11"),
    ("model, fields", "POST", PATHS[CHAT], {}, b'{"model":"gone"}', "E08"),
    ("fields, wallet", "POST", PATHS[CHAT], {"Authorization": f"Bearer {SECRETS['poor']}"},
     b'{"model":"open-model"}', "E13"),
]  # fmt: skip


@pytest.mark.parametrize(("method", "path", "headers", "body", "number"), [o[1:] for o in ORDER],
                         ids=[o[0] for o in ORDER])  # fmt: skip
def test_the_first_check_decides(gateway, method, path, headers, body, number):
    """A client that waits for "100 Continue" is refused at once."""
    with Connection(gateway.port) as connection:
        sent = {"Expect": "100-continue"} if headers.get("Content-Length") else {}
        connection.request(method, path, {**credentials(), **sent, **headers}, body)
        check_refusal(connection.read(), CHAT, number)


# ---- the client's address ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "forwarded", "status"),
    [(PROXY, "203.0.113.7", 200), (PROXY, "198.51.100.7", 403), ("127.0.0.1", "203.0.113.7", 403)],
)
def test_a_key_of_a_network(gateway, source, forwarded, status):
    headers = {**credentials(CHAT, SECRETS["network"]), "X-Forwarded-For": forwarded}
    with Connection(gateway.port, source=source) as connection:
        connection.request("POST", PATHS[CHAT], headers, ask(CHAT, "open-model"))
        answer = connection.read()
    assert answer.status == status
    client_ip = forwarded if source == PROXY else source
    assert gateway.record(answer.call_id)["client_ip"] == client_ip
