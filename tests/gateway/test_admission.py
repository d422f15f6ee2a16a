"""Who may call, with what bytes, and what refusals say: before any upstream is asked.

One gateway with small bodies and little patience. What each dialect says of a condition stands in
test_errors.py, what HTTP, JSON and the fields of requests may be in the tests of their packages.
"""

import contextlib
import gzip
import hashlib
import json
import shutil
import subprocess
import time

import pytest

from store.catalog import wrong_paths
from store.db.database import discard, open_database
from tests.support.client import Connection, encode_head, exchange, wait_until
from tests.support.dialects import (
    ALL,
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
    error_of,
    path_of,
    text_of,
)
from tests.support.documents import PRICE, UPSTREAM_KEY, channel

PROXY = "127.0.0.9"  # an address of this machine that counts as a trusted proxy
COUNT_PATH = "/v1/messages/count_tokens"
LIMIT_BYTES = 1 << 20
SECONDS = 2  # each time-out of the gateway
ANSWERS_WITHIN_S = 10
UNKNOWN_KEY = "sk-test-of-nobody-0123456789"
SECRETS = {
    name: f"sk-test-{name}-0123456789"
    for name in ("disabled", "revoked", "expired", "network", "narrow", "chatter", "poor", "banned")
}
SETTINGS = {
    "server.max_body_bytes": LIMIT_BYTES,
    "server.header_timeout_s": SECONDS,
    "server.body_timeout_s": 2 * SECONDS,
    "server.keepalive_timeout_s": 2 * SECONDS,
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
            key("expired", expires_at="2020-01-01T00:00:00Z"),
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
    """One key disabled, one revoked, one user disabled, one model off."""
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
    """A call of these bytes; "Content_Type" in the place of Content-Type."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    path = path or path_of(family, "open-model")
    return exchange(gateway.port, "POST", path, {**credentials(family), **named}, data)


def encoded(family=CHAT, **changes):
    """The bytes of a good call with some fields changed."""
    return json.dumps({**ask(family, "open-model"), **changes}).encode()


def check_refused_record(gateway, answer, number, **fields):
    record = gateway.record(answer.call_id)
    expected = {"outcome": "refused", "error_code": REFUSALS[number].code, "attempts": [],
                "status": answer.status, "cost": "0", "charges": [], "usage_source": "none",
                "channel": None, "upstream_model": None, **fields}  # fmt: skip
    assert {name: record[name] for name in expected} == expected
    assert record["error_message"]


# ---- credentials ---------------------------------------------------------------------------------

BEARER, WRONG_BEARER = f"Bearer {SECRET}", "Bearer sk-wrong-0123456789"
CREDENTIALS = [
    # (family, query, headers, the refusal or None)
    (CHAT, "", {"Authorization": BEARER}, None),
    (CHAT, "", {"Authorization": f'Bearer "{SECRET}"'}, "E03"),
    (CHAT, "", {"Authorization": f"Bearer {SECRET.upper()}"}, "E03"),
    (CHAT, "", {"Authorization": "Bearer " + "k" * 10_000}, "E03"),
    (CHAT, "", {"Authorization": f"Bearer {UPSTREAM_KEY}"}, "E03"),
    (CHAT, "", {"Authorization": "Bearer sk-\xfc\xfc\xfc-0123456789"}, "E03"),
    (CHAT, "", {"x-api-key": SECRET}, "E01"),
    (MESSAGES, "", {"x-api-key": SECRET}, None),
    (MESSAGES, "", {"Authorization": BEARER, "x-api-key": "sk-wrong-0123456789"}, None),
    (MESSAGES, "", {"Authorization": WRONG_BEARER, "x-api-key": SECRET}, "E03"),
    (MESSAGES, "", {"Authorization": SECRET, "x-api-key": SECRET}, "E02"),
    (GENERATE, f"?alt=sse&key={SECRET}&x=1", {}, None),
    (GENERATE, "", {"x-goog-api-key": f"Bearer {SECRET}"}, "E03"),
    (GENERATE, f"?key={UNKNOWN_KEY}", {"x-goog-api-key": SECRET}, None),
    (GENERATE, f"?key={SECRET}", {"x-goog-api-key": UNKNOWN_KEY}, "E03"),
    (GENERATE, f"?key={SECRET}", {"Authorization": f"Bearer {UNKNOWN_KEY}"}, None),
    (GENERATE, f"?key={UNKNOWN_KEY}", {"Authorization": BEARER}, "E03"),
    (GENERATE, "", {"x-goog-api-key": SECRET, "Authorization": WRONG_BEARER}, None),
    (GENERATE, f"?api_key={SECRET}", {}, "E01"),
]


@pytest.mark.parametrize(("family", "query", "headers", "number"), CREDENTIALS)
def test_the_first_credential_of_a_family_decides_alone(gateway, family, query, headers, number):
    path = path_of(family, "open-model") + query
    answer = exchange(gateway.port, "POST", path, headers, ask(family, "open-model"))
    if number:
        check_refusal(answer, family, number)
    else:
        assert answer.status == 200, answer.body


def test_two_authorization_headers_are_no_credential(gateway):
    body = encoded()
    head = encode_head("POST", PATHS[CHAT], credentials(), body)
    doubled = head[:-2] + f"Authorization: Bearer {SECRETS['narrow']}\r\n\r\n".encode()
    with Connection(gateway.port) as connection:
        connection.send(doubled + body)
        assert connection.read().status in (400, 401)


@pytest.mark.parametrize(
    ("name", "number"),
    [("disabled", "E04"), ("revoked", "E04"), ("banned", "E04"), ("expired", "E05"),
     ("network", "E06"), ("poor", "E18")],
)  # fmt: skip
def test_a_known_key_that_may_not_call_is_recorded_with_the_model(gateway, name, number):
    answer = call(gateway, headers=credentials(secret=SECRETS[name]), stream=True)
    check_refusal(answer, CHAT, number)
    check_refused_record(gateway, answer, number, model="open-model", key_name=name, stream=True)


def test_the_record_of_a_refused_call_names_the_model_of_a_packed_body(gateway):
    headers = credentials(RESPONSES, SECRETS["expired"])
    answer = send(gateway, gzip.compress(encoded(RESPONSES)), RESPONSES, Content_Encoding="gzip",
                  **headers)  # fmt: skip
    check_refused_record(gateway, answer, "E05", model="open-model")


@pytest.mark.parametrize(
    ("path", "prompt", "model"),
    [(PATHS[MESSAGES], "x", "open-model"), (COUNT_PATH, "x", "open-model"),
     (PATHS[MESSAGES], "x" * 70_000, None)],
    ids=["call", "count", "not looked into"],
)  # fmt: skip
def test_an_entry_is_closed_to_a_group_without_it(gateway, path, prompt, model):
    headers, body = credentials(MESSAGES, SECRETS["chatter"]), ask(MESSAGES, "open-model", prompt)
    answer = exchange(gateway.port, "POST", path, headers, body)
    check_refusal(answer, MESSAGES, "E07")
    check_refused_record(gateway, answer, "E07", model=model, endpoint=path, group="chatters")
    assert call(gateway, headers=credentials(secret=SECRETS["chatter"])).status == 200


# ---- models --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "model",
    [ALIAS, "elsewhere-model", "off-model", "orphan", "open-model ", "OPEN-MODEL", "open-mode",
     "../open-model", "open-model\x00", "x" * 5000, "modèle", "'; --"],
)  # fmt: skip
def test_a_model_that_is_not_offered(gateway, model):
    answer = call(gateway, model=model)
    check_refusal(answer, CHAT, "E08")
    record = gateway.record(answer.call_id)
    assert len(record["model"]) <= 128 and record["model"][:9] == model[:9]


@pytest.mark.parametrize("family", [RESPONSES, MESSAGES, GENERATE])
def test_a_family_without_a_channel_for_the_model(gateway, family):
    message = check_refusal(call(gateway, family, "chat-only"), family, "E08")
    assert "'chat-only' is not served at this entry; call it at /v1/chat/completions." in message


@pytest.mark.parametrize("family", LIST_PATHS)
@pytest.mark.parametrize("name", ["main", "narrow", "chatter"])
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


# ---- paths and methods ---------------------------------------------------------------------------

POSTED = [
    *((path_of(family, "open-model"), family) for family in ALL),
    (COUNT_PATH, MESSAGES),
    (path_of(GENERATE, "open-model", stream=True), GENERATE),
    ("/v1/models/open-model:countTokens", GENERATE),
    ("/v1/responses/compact", RESPONSES),
]


@pytest.mark.parametrize(("path", "family"), POSTED)
@pytest.mark.parametrize("headers", [{}, {"Authorization": BEARER}], ids=["no key", "key"])
def test_a_wrong_method_names_the_right_one(gateway, path, family, headers):
    for method in ("GET", "DELETE"):  # the method is judged before the key
        check_refusal(exchange(gateway.port, method, path, headers), family, "E33")
    answer = exchange(gateway.port, "HEAD", path, headers)
    assert (answer.status, answer.headers["allow"], answer.body) == (405, "POST", b"")


def test_a_doubled_path_is_shown_to_the_owner_of_its_key(gateway):
    doubled = "/v1/messages/v1/messages"
    headers = {"x-api-key": SECRET, "User-Agent": "anthropic-python 2.11.0"}
    for sent in (headers, headers, headers, {"x-api-key": UNKNOWN_KEY}):
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
    "value",
    ["", None, "application/x-www-form-urlencoded", "multipart/form-data; boundary=x",
     "application/jsonp", "application", "text/json-application/json"],
)  # fmt: skip
def test_a_body_that_is_not_called_json(gateway, value):
    data = encoded()
    answer = send(gateway, data, Content_Type=value, Content_Length=str(len(data)))
    check_refusal(answer, CHAT, "E16")


@pytest.mark.parametrize("value", ["application/json; charset=utf-8", "Application/JSON;charset=x"])
def test_a_body_that_is_called_json(gateway, value):
    assert send(gateway, encoded(), Content_Type=value, Content_Encoding="identity").status == 200


@pytest.mark.parametrize(
    ("family", "stream", "chunked"),
    [(CHAT, True, False), (RESPONSES, False, True), (MESSAGES, True, True),
     (GENERATE, False, False)],
)  # fmt: skip
def test_the_vendor_gets_the_plain_body_of_a_packed_one(gateway, vendor, family, stream, chunked):
    vendor.reset()
    # "include_usage" is there already, so that nothing has to be put into a body
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


def test_curl_shows_the_answer_to_a_body_that_is_too_large(gateway, tmp_path):
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    upload = tmp_path / "body.json"
    with upload.open("wb") as file:
        file.truncate(200_000_000)
    headers = {"Content-Type": "application/json", "Expect": "", **credentials()}
    argv = ["curl", "--silent", "--show-error", "--max-time", "30"]
    argv += [part for name, value in headers.items() for part in ("-H", f"{name}: {value}")]
    argv += ["--write-out", "\n%{http_code}", "--data-binary", f"@{upload}"]
    argv.append(f"http://127.0.0.1:{gateway.port}{PATHS[CHAT]}")
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    body, _, status = done.stdout.rpartition("\n")
    assert (status, "larger than 1 MiB" in body) == ("413", True), done


def test_a_client_that_sends_all_of_it_before_it_reads(gateway):
    """As http.client of the standard library does, and what stands on it."""
    headers = {"Content-Type": "application/json", **credentials()}
    status, _, body = gateway.call("POST", PATHS[CHAT], bytes(12_000_000), headers)
    assert (status, b"larger than 1 MiB" in body) == (413, True)


# ---- JSON ----------------------------------------------------------------------------------------


def with_text(text, family=CHAT):
    """The body of a good call with `text` behind its first brace."""
    return encoded(family).replace(b"{", b"{" + text, 1)


WRONG = {
    # name: (the body, the refusal, the model of the record)
    "a string": (b'"x"', "E11", None),
    "a rest": (encoded() + b"x", "E11", None),
    "NaN": (with_text(b'"temperature":NaN,'), "E11", None),
    "a wrong escape": (with_text(b'"x":"\\x41",'), "E11", None),
    "overlong UTF-8": (with_text(b'"x":"\xc0\xaf",'), "E11", None),
    "half a surrogate pair": (encoded(model="\udc00"), "E11", None),
    "a deep one": (with_text(b'"x":' + b'{"a":' * 100_000 + b"1" + b"}" * 100_000 + b","),
                   "E11", None),
    "a wrong field": (encoded(n="2"), "E12", "open-model"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_a_body_that_is_wrong_is_refused_and_recorded(gateway, name):
    body, number, model = WRONG[name]
    answer = send(gateway, body)
    check_refusal(answer, CHAT, number)
    check_refused_record(gateway, answer, number, model=model, endpoint=PATHS[CHAT])


PASSED_ON = {
    "1e999 deep inside": b'"metadata":{"x":1e999,"y":[1E+400]},',
    "a surrogate pair": b'"x":"\\ud83d\\ude00",',
    "long numbers": b'"x":[1.10,1e5,-0.0,123456789012345678901234567890],',
    "control fields": b'"api_base":"http://203.0.113.1","base_url":"http://203.0.113.1",'
    b'"api_key":"sk-evil","custom_llm_provider":"x","channel":"far",',
    "odd blanks": b'\r\n\t  "x"  :\n[ ] ,\r\n',
    "escapes": b'"x":"\\u0041\\/\\u00fc",',
}


@pytest.mark.parametrize("family", [CHAT, GENERATE])
@pytest.mark.parametrize("name", PASSED_ON)
def test_the_bytes_of_a_body_reach_the_vendor_as_they_are(gateway, vendor, family, name):
    vendor.reset()
    body = with_text(PASSED_ON[name], family)
    # The vendor refuses unknown fields but in chat completions, and metadata that is no text.
    refused = family != CHAT or b"metadata" in body
    assert send(gateway, body, family).status == (400 if refused else 200)
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
    ("no model, fields", "POST", PATHS[CHAT], {}, b"{}", "E10"),
    ("fields, wallet", "POST", PATHS[CHAT], {"Authorization": f"Bearer {SECRETS['poor']}"},
     b'{"model":"open-model"}', "E13"),
    ("model, wallet", "POST", PATHS[CHAT], {"Authorization": f"Bearer {SECRETS['poor']}"},
     b'{"model":"gone","messages":[]}', "E08"),
]  # fmt: skip


@pytest.mark.parametrize(("method", "path", "headers", "body", "number"), [o[1:] for o in ORDER],
                         ids=[o[0] for o in ORDER])  # fmt: skip
def test_the_first_check_decides(gateway, method, path, headers, body, number):
    """Who waits for a "100 Continue" is refused at once."""
    with Connection(gateway.port) as connection:
        sent = {"Expect": "100-continue"} if headers.get("Content-Length") else {}
        connection.request(method, path, {**credentials(), **sent, **headers}, body)
        check_refusal(connection.read(), CHAT, number)


# ---- who the client is ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "headers", "address"),
    [
        ("127.0.0.1", {"X-Forwarded-For": "203.0.113.7"}, "127.0.0.1"),  # nobody trusts it
        (PROXY, {"X-Forwarded-For": "198.51.100.1, 203.0.113.7, 10.1.2.3"}, "203.0.113.7"),
        (PROXY, {"X-Forwarded-For": "203.0.113.7\r\nX-Forwarded-For: 10.1.2.3"}, "203.0.113.7"),
        (PROXY, {"X-Real-IP": "203.0.113.7", "Forwarded": "for=203.0.113.7"}, PROXY),
    ],
)
def test_the_client_address(gateway, source, headers, address):
    with Connection(gateway.port, source=source) as connection:
        connection.request("POST", PATHS[CHAT], {**credentials(), **headers},
                           ask(CHAT, "open-model"))  # fmt: skip
        answer = connection.read()
    assert answer.status == 200
    assert gateway.record(answer.call_id)["client_ip"] == address


@pytest.mark.parametrize(
    ("source", "forwarded", "status"),
    [(PROXY, "203.0.113.7", 200), (PROXY, "198.51.100.7", 403), ("127.0.0.1", "203.0.113.7", 403)],
)
def test_a_key_of_a_network(gateway, source, forwarded, status):
    headers = {**credentials(CHAT, SECRETS["network"]), "X-Forwarded-For": forwarded}
    with Connection(gateway.port, source=source) as connection:
        connection.request("POST", PATHS[CHAT], headers, ask(CHAT, "open-model"))
        assert connection.read().status == status


@pytest.mark.parametrize(
    ("sent", "recorded"),
    [("trace-1.2:3/~!", "trace-1.2:3/~!"), ("c" * 128, "c" * 128), ("c" * 129, None),
     ("with blank", None), ("", None), ("\xfc", None), (None, None)],
)  # fmt: skip
def test_the_clients_own_request_id(gateway, sent, recorded):
    headers = {**credentials(), "X-Client-Request-Id": sent,
               "X-Request-Id": "01ARZ3NDEKTSV4RRFFQ69G5FAV"}  # fmt: skip
    answer = call(gateway, headers=headers)
    check_ids(answer)
    assert answer.call_id not in (sent, "01ARZ3NDEKTSV4RRFFQ69G5FAV")
    assert gateway.record(answer.call_id)["client_request_id"] == recorded


def test_nothing_of_the_clients_head_reaches_the_vendor_but_what_belongs_there(gateway, vendor):
    vendor.reset()
    own = {"Cookie": "session=1", "X-Forwarded-For": "203.0.113.7", "X-Api-Key": "sk-other-012345",
           "User-Agent": "secret-agent/1", "Via": "1.1 proxy", "OpenAI-Organization": "org-mine",
           "X-Stainless-Os": "Linux", "Proxy-Authorization": "Basic eDp5", "X-Request-Id": "x",
           "X-Client-Request-Id": "trace-1", "Origin": "http://x"}  # fmt: skip
    assert call(gateway, MESSAGES, headers={**credentials(MESSAGES), **own}).status == 200
    (entry,) = vendor.log()
    allowed = {"host", "authorization", "content-type", "accept", "accept-encoding", "user-agent",
               "content-length", "anthropic-version"}  # fmt: skip
    assert set(entry["headers"]) <= allowed, entry["headers"]
    assert entry["headers"]["authorization"] == f"Bearer {UPSTREAM_KEY}"
    assert "secret-agent" not in entry["headers"].get("user-agent", "")
    assert SECRET not in json.dumps(entry)


# ---- connections ---------------------------------------------------------------------------------


def rest_of(connection):
    """What came until the connection was closed; None: it stays open."""
    connection.socket.settimeout(ANSWERS_WITHIN_S)
    try:
        return connection.until_closed()
    except TimeoutError:
        return None


def test_a_slow_head_and_a_silent_kept_connection_are_closed_in_their_time(gateway):
    with Connection(gateway.port) as slow, Connection(gateway.port) as kept:
        slow.send(b"POST /v1/messages HTTP/1.1\r\nHost: x\r\n")
        for _ in range(2):
            kept.request("GET", "/livez")
            assert kept.read().status == 200
            time.sleep(SECONDS + 0.5)  # longer than a first head may take
        assert rest_of(slow) is not None and rest_of(kept) == b""


def test_a_body_that_trickles_is_not_waited_for(gateway):
    headers = {**credentials(), "Content-Length": "1000"}
    began = time.monotonic()
    with Connection(gateway.port) as connection:
        connection.send(encode_head("POST", PATHS[CHAT], headers, b"") + b'{"model": "open-model"')
        connection.socket.settimeout(0.2)
        while time.monotonic() - began < ANSWERS_WITHIN_S:
            with contextlib.suppress(TimeoutError):
                answer = connection.read()
                break
            connection.send(b" ")
        else:
            pytest.fail("the body is waited for")
        check_refusal(answer, CHAT, "E36")
        assert rest_of(connection) is not None


@pytest.mark.parametrize("second", ["Transfer-Encoding: chunked", "Content-Length: 3"])
def test_framing_on_which_two_servers_could_disagree_is_never_run(gateway, vendor, second):
    vendor.reset()
    with Connection(gateway.port) as connection:
        head = encode_head("POST", PATHS[CHAT], credentials(), encoded())
        connection.send(head[:-2] + f"{second}\r\n\r\n".encode() + encoded())
        answer = connection.read()
        check_ids(answer)
        assert (answer.status, answer.headers["connection"]) == (400, "close")
        assert error_of(CHAT, answer.body, answer.call_id)[0] == "invalid_request_error"
        assert rest_of(connection) == b""
    assert vendor.log() == []
