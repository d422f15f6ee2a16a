"""Who may call, with what bytes, and what the others are told: before any upstream is asked."""

import contextlib
import gzip
import json
import re
import socket
import ssl
import time
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import quote

import pytest

from tests.support.client import Connection, encode_head, exchange, wait_until
from tests.support.dialects import (
    ALL,
    BOTH,
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
PUBLIC_URL = "https://gateway.example"
COUNT_PATH = "/v1/messages/count_tokens"
KIB, MIB = 1 << 10, 1 << 20
LIMIT_BYTES = MIB
SECONDS = 2  # each time-out of the strict gateway
ANSWERS_WITHIN_S = 10
SECRETS = {
    name: f"sk-test-{name}-0123456789"
    for name in ("disabled", "revoked", "expired", "network", "narrow", "chatter", "poor", "banned")
}
OPEN_SETTINGS = {
    "server.public_url": PUBLIC_URL,
    "server.trusted_proxies": json.dumps([f"{PROXY}/32", "10.0.0.0/8"]),
}
STRICT_SETTINGS = {
    "server.max_body_bytes": LIMIT_BYTES,
    "server.header_timeout_s": SECONDS,
    "server.body_timeout_s": SECONDS,
    "server.keepalive_timeout_s": 2 * SECONDS,
    "server.trusted_proxies": json.dumps([f"{PROXY}/32"]),
}
MODELS = (
    *("open-model", "Org/slash-model", "chat-only", "translated", "elsewhere-model", "off-model"),
    "orphan",
)
ALIAS = "vendor-name-of-the-open-model"
UNRECORDED = []
NAMED_IN_BODY = (CHAT, RESPONSES, MESSAGES)  # the model; elsewhere it stands in the path
LISTED = (CHAT, MESSAGES, GENERATE)  # responses has the list of chat completions
LIST_PATHS = {CHAT: "/v1/models", MESSAGES: "/v1/models", GENERATE: "/v1beta/models"}
PROMPTS = {CHAT: "messages", RESPONSES: "input", MESSAGES: "messages", GENERATE: "contents"}
BOUNDS = {CHAT: "max_tokens", RESPONSES: "max_output_tokens", MESSAGES: "max_tokens",
          GENERATE: "maxOutputTokens"}  # fmt: skip


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
    """Usual settings; one key disabled, one revoked, one user disabled, one model off."""
    made = launch(content(vendor), OPEN_SETTINGS)
    ids = {entry["name"]: entry["id"] for entry in json.loads(made.run("key", "list", "--json"))}
    made.run("key", "disable", ids["disabled"])
    made.run("key", "revoke", ids["revoked"])
    made.run("user", "disable", "banned")
    made.run("model", "disable", "off-model")

    def known():
        headers = credentials(CHAT, SECRETS["banned"])
        return call(made, CHAT, "open-model", headers).status == 401 and (
            call(made, CHAT, "off-model").status == 404
        )

    assert wait_until(known), "a change did not arrive"
    return made


@pytest.fixture(scope="module")
def strict(launch, vendor):
    """Small bodies only, and little patience."""
    return launch(content(vendor), STRICT_SETTINGS)


def call(gateway, family, model, headers=None, **more):
    path = url(family, model, more.get("stream", False))
    return exchange(gateway.port, "POST", path, headers or credentials(family),
                    ask(family, model, **more))  # fmt: skip


def url(family, model="open-model", stream=False):
    """Where a call goes; a name that stands in the path is quoted as clients do it."""
    return path_of(family, quote(model, safe=""), stream)


def endpoint(family, stream=False):
    """The endpoint of a record."""
    verb = ":streamGenerateContent" if stream else ":generateContent"
    return PATHS[family].replace(":generateContent", verb)


def check_refused_record(gateway, answer, number, **fields):
    record = gateway.record(answer.call_id)
    said = (record["outcome"], record["error_code"], record["status"])
    assert said == ("refused", REFUSALS[number].code, answer.status)
    assert (record["cost"], record["charges"], record["attempts"]) == ("0", [], [])
    assert (record["channel"], record["upstream_model"]) == (None, None)
    assert record["error_message"] and record["usage_source"] == "none"
    for name, value in fields.items():
        assert record[name] == value, name
    return record


def check_unrecorded(gateway, *answers):
    """None of these calls has a record: the last test of this file looks."""
    UNRECORDED.append((gateway, answers))


# ---- credentials ---------------------------------------------------------------------------------

WRONG_CREDENTIALS = [
    ("none", {}, "E01"),
    ("bare", {"Authorization": SECRET}, "E02"),
    ("basic", {"Authorization": f"Basic {SECRET}"}, "E02"),
    ("no blank", {"Authorization": f"Bearer{SECRET}"}, "E02"),
    ("no key", {"Authorization": "Bearer"}, "E02"),
    ("two blanks", {"Authorization": f"Bearer  {SECRET}"}, "E02"),
    ("two keys", {"Authorization": f"Bearer {SECRET} {SECRET}"}, "E02"),
    ("quoted", {"Authorization": f'Bearer "{SECRET}"'}, "E03"),
    ("empty", {"Authorization": ""}, "E02"),
    ("unknown", {"Authorization": "Bearer sk-test-of-nobody-0123456789"}, "E03"),
    ("a part", {"Authorization": f"Bearer {SECRET[:-1]}"}, "E03"),
    ("more", {"Authorization": f"Bearer {SECRET}x"}, "E03"),
    ("other case", {"Authorization": f"Bearer {SECRET.upper()}"}, "E03"),
    ("10 KB", {"Authorization": "Bearer " + "k" * 10_000}, "E03"),
    ("the upstream's", {"Authorization": f"Bearer {UPSTREAM_KEY}"}, "E03"),
    ("not ASCII", {"Authorization": "Bearer sk-\xfc\xfc\xfc-0123456789"}, "E03"),
]


HEADERS_NAMED = {MESSAGES: "x-api-key", GENERATE: "x-goog-api-key"}


@pytest.mark.parametrize("family", ALL)
@pytest.mark.parametrize(
    ("headers", "number"), [c[1:] for c in WRONG_CREDENTIALS], ids=[c[0] for c in WRONG_CREDENTIALS]
)
def test_a_wrong_credential_is_refused_and_not_recorded(gateway, family, headers, number):
    sent = dict(headers)
    if family == MESSAGES:
        sent["anthropic-version"] = "2023-06-01"
    answer = call(gateway, family, "open-model", sent or {"Accept": "*/*"})
    message = check_refusal(answer, family, number)
    if number == "E03" and family == MESSAGES:
        assert message == "invalid x-api-key"  # as its vendor says it, in whichever header
    else:
        for named, header in HEADERS_NAMED.items():
            assert (header in message) is (family == named and number == "E01")
    check_unrecorded(gateway, answer)


@pytest.mark.parametrize("path", [PATHS[MESSAGES], COUNT_PATH])
@pytest.mark.parametrize(
    ("headers", "number"),
    [
        ({"x-api-key": SECRET}, None),
        ({"x-api-key": "sk-test-of-nobody-0123456789"}, "E03"),
        ({"x-api-key": ""}, "E01"),
        ({"x-api-key": f"Bearer {SECRET}"}, "E03"),
        ({"Authorization": f"Bearer {SECRET}", "x-api-key": "sk-wrong-0123456789"}, None),
        ({"Authorization": "Bearer sk-wrong-0123456789", "x-api-key": SECRET}, "E03"),
        ({"Authorization": SECRET, "x-api-key": SECRET}, "E02"),
        ({"x-goog-api-key": SECRET}, "E01"),
    ],
    ids=lambda value: "+".join(value) if isinstance(value, dict) else value,
)
def test_the_first_credential_of_messages_decides_alone(gateway, path, headers, number):
    body = ask(MESSAGES, "open-model")
    if path == COUNT_PATH:
        del body["max_tokens"]
    answer = exchange(gateway.port, "POST", path, headers, body)
    if number:
        check_refusal(answer, MESSAGES, number)
    else:
        assert answer.status == 200, answer.body


UNKNOWN_KEY = "sk-test-of-nobody-0123456789"


@pytest.mark.parametrize("verb", ["generateContent", "streamGenerateContent", "countTokens"])
@pytest.mark.parametrize(
    ("query", "headers", "number"),
    [
        ("", {"x-goog-api-key": SECRET}, None),
        (f"?key={SECRET}", {}, None),
        (f"?alt=sse&key={SECRET}&x=1", {}, None),
        ("", {"Authorization": f"Bearer {SECRET}"}, None),
        ("", {"x-goog-api-key": UNKNOWN_KEY}, "E03"),
        ("", {"x-goog-api-key": ""}, "E01"),
        ("", {"x-goog-api-key": f"Bearer {SECRET}"}, "E03"),
        (f"?key={UNKNOWN_KEY}", {}, "E03"),
        ("?key=", {}, "E01"),
        ("?key", {}, "E01"),
        (f"?key={UNKNOWN_KEY}", {"x-goog-api-key": SECRET}, None),
        (f"?key={SECRET}", {"x-goog-api-key": UNKNOWN_KEY}, "E03"),
        (f"?key={SECRET}", {"Authorization": f"Bearer {UNKNOWN_KEY}"}, None),
        (f"?key={UNKNOWN_KEY}", {"Authorization": f"Bearer {SECRET}"}, "E03"),
        ("", {"x-goog-api-key": SECRET, "Authorization": "Bearer sk-wrong-0123456789"}, None),
        ("", {"Authorization": SECRET}, "E02"),
        ("", {"x-api-key": SECRET}, "E01"),
        (f"?api_key={SECRET}", {}, "E01"),
    ],
)
def test_the_first_credential_of_generate_content_decides_alone(
    gateway, verb, query, headers, number
):
    body = ask(GENERATE, "open-model")
    if verb == "countTokens":
        del body["generationConfig"]
    path = f"/v1beta/models/open-model:{verb}{query}"
    answer = exchange(gateway.port, "POST", path, headers, body)
    if number:
        check_refusal(answer, GENERATE, number)
        check_unrecorded(gateway, answer)
    else:
        assert answer.status == 200, answer.body


@pytest.mark.parametrize("family", [CHAT, RESPONSES])
def test_openai_entries_take_no_other_header_than_authorization(gateway, family):
    for name in ("x-api-key", "x-goog-api-key"):
        check_refusal(call(gateway, family, "open-model", {name: SECRET}), family, "E01")


def test_two_authorization_headers_are_no_credential(gateway):
    body = json.dumps(ask(CHAT, "open-model")).encode()
    head = encode_head("POST", PATHS[CHAT], credentials(), body)
    doubled = head[:-2] + f"Authorization: Bearer {SECRETS['narrow']}\r\n\r\n".encode()
    with Connection(gateway.port) as connection:
        connection.send(doubled + body)
        assert connection.read().status in (400, 401)


KNOWN_KEYS = [("disabled", "E04"), ("revoked", "E04"), ("banned", "E04"), ("expired", "E05"),
              ("network", "E06")]  # fmt: skip


@pytest.mark.parametrize("family", ALL)
@pytest.mark.parametrize(("name", "number"), KNOWN_KEYS)
def test_a_known_key_that_may_not_call_is_recorded_with_the_model(gateway, family, name, number):
    headers = credentials(family, SECRETS[name])
    answer = call(gateway, family, "open-model", headers, stream=True)
    check_refusal(answer, family, number)
    record = check_refused_record(
        gateway, answer, number, model="open-model", endpoint=endpoint(family, stream=True),
        family=family, key_name=name, prices=None,
    )  # fmt: skip
    if family in NAMED_IN_BODY:
        assert record["stream"] is True


@pytest.mark.parametrize("path", [PATHS[MESSAGES], COUNT_PATH])
def test_the_messages_entry_is_closed_to_a_group_without_it(gateway, path):
    headers = credentials(MESSAGES, SECRETS["chatter"])
    answer = exchange(gateway.port, "POST", path, headers, ask(MESSAGES, "open-model"))
    message = check_refusal(answer, MESSAGES, "E07")
    assert "'chatters'" in message and "messages" in message
    check_refused_record(
        gateway, answer, "E07", model="open-model", endpoint=path, group="chatters"
    )
    assert call(gateway, CHAT, "open-model", credentials(CHAT, SECRETS["chatter"])).status == 200


@pytest.mark.parametrize("family", [RESPONSES, GENERATE])
def test_any_entry_is_closed_to_a_group_without_it(gateway, family):
    answer = call(gateway, family, "open-model", credentials(family, SECRETS["chatter"]))
    check_refusal(answer, family, "E07")
    check_refused_record(gateway, answer, "E07", model="open-model", endpoint=endpoint(family),
                         group="chatters")  # fmt: skip


def test_a_large_body_of_a_refused_call_is_not_looked_into(gateway):
    headers = credentials(MESSAGES, SECRETS["chatter"])
    answer = call(gateway, MESSAGES, "open-model", headers, prompt="x" * 70_000)
    check_refusal(answer, MESSAGES, "E07")
    check_refused_record(gateway, answer, "E07", model=None, stream=None)


@pytest.mark.parametrize("family", ALL)
def test_an_empty_wallet_refuses(gateway, family):
    answer = call(gateway, family, "open-model", credentials(family, SECRETS["poor"]))
    check_refusal(answer, family, "E18")
    record = check_refused_record(gateway, answer, "E18", model="open-model", user="pauper")
    assert record["prices"]["input"] == PRICE["input"]


# ---- models --------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", ALL)
@pytest.mark.parametrize(
    "model",
    ["nobodys-model", ALIAS, "elsewhere-model", "off-model", "orphan", "open-model ", "OPEN-MODEL",
     "open-mode", "../open-model", "open-model\x00", "x" * 5000, "modèle", "'; --"],
)  # fmt: skip
def test_a_model_that_is_not_offered(gateway, family, model):
    answer = call(gateway, family, model)
    message = check_refusal(answer, family, "E08")
    assert "channel status" in message
    record = check_refused_record(gateway, answer, "E08")
    assert len(record["model"]) <= 128 and record["model"][:9] == model[:9]


def test_e08_says_the_name_in_each_family(gateway):
    said = {family: check_refusal(call(gateway, family, "gone"), family, "E08") for family in ALL}
    rest = "is not available to this API key. Check the name and the channel status."
    openai = f"Model 'gone' {rest}"
    assert said == {CHAT: openai, RESPONSES: openai, MESSAGES: f"model: gone {rest}",
                    GENERATE: f"models/gone {rest}"}  # fmt: skip


@pytest.mark.parametrize("family", [RESPONSES, MESSAGES, GENERATE])
def test_a_family_without_a_channel_for_the_model(gateway, family):
    said = check_refusal(call(gateway, family, "chat-only"), family, "E08")
    assert "'chat-only' is not served at this entry; call it at /v1/chat/completions." in said
    assert call(gateway, CHAT, "chat-only").status == 200


def test_a_narrowed_key_reaches_only_its_models(gateway):
    headers = credentials(CHAT, SECRETS["narrow"])
    assert call(gateway, CHAT, "open-model", headers).status == 200
    check_refusal(call(gateway, CHAT, "chat-only", headers), CHAT, "E08")


def lists(gateway, family, secret=SECRET, tail="", method="GET"):
    path = LIST_PATHS[family] + tail
    return exchange(gateway.port, method, path, credentials(family, secret))


def names_of(family, listed):
    if family == GENERATE:
        assert all(entry["name"].startswith("models/") for entry in listed["models"])
        return {entry["name"].removeprefix("models/") for entry in listed["models"]}
    return {entry["id"] for entry in listed["data"]}


@pytest.mark.parametrize("family", LISTED)
@pytest.mark.parametrize("name", ["main", "narrow", "chatter"])
def test_the_list_shows_exactly_what_the_key_can_call(gateway, family, name):
    secret = SECRETS.get(name, SECRET)
    answer = lists(gateway, family, secret)
    assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
    check_ids(answer)
    shown = names_of(family, answer.json)
    headers = credentials(family, secret)
    callable_now = {m for m in MODELS if call(gateway, family, m, headers).status == 200}
    assert shown == callable_now
    assert bool(shown) is not (family != CHAT and name == "chatter")
    check_unrecorded(gateway, answer)


def test_lists_have_the_shape_of_the_caller(gateway):
    chat, messages = lists(gateway, CHAT).json, lists(gateway, MESSAGES).json
    assert chat["object"] == "list"
    assert set(chat["data"][0]) >= {"id", "object", "created", "owned_by"}
    assert {entry["object"] for entry in chat["data"]} == {"model"}
    assert set(messages) == {"data", "first_id", "has_more", "last_id"}
    assert {entry["type"] for entry in messages["data"]} == {"model"}
    generate = lists(gateway, GENERATE).json
    assert set(generate) == {"models"}
    assert set(generate["models"][0]) >= {"name", "displayName"}
    there = exchange(gateway.port, "GET", "/v1/models", credentials(GENERATE))
    assert there.json == generate


@pytest.mark.parametrize("family", LISTED)
@pytest.mark.parametrize(
    ("tail", "name"),
    [
        ("open-model", "open-model"),
        ("Org%2Fslash-model", "Org/slash-model"),
        ("Org%2fslash-model", "Org/slash-model"),
        ("Org/slash-model", "Org/slash-model"),
        ("nobodys-model", None),
        (ALIAS, None),
        ("elsewhere-model", None),
        ("off-model", None),
        ("orphan", None),
        ("%00", None),
        ("%zz", None),
        ("%ff%fe", None),
    ],
)
def test_one_model(gateway, family, tail, name):
    answer = lists(gateway, family, tail=f"/{tail}")
    if name:
        assert answer.status == 200
        if family == GENERATE:
            assert answer.json["name"] == f"models/{name}"
        else:
            assert answer.json["id"] == name
    else:
        check_refusal(answer, family, "E08")
    check_unrecorded(gateway, answer)


@pytest.mark.parametrize("tail", ["", "/open-model"])
@pytest.mark.parametrize("family", LISTED)
def test_lists_need_a_good_key(gateway, family, tail):
    version = {"anthropic-version": "2023-06-01"} if family == MESSAGES else {}
    refused = [exchange(gateway.port, "GET", LIST_PATHS[family] + tail, version)]
    check_refusal(refused[0], family, "E01")
    for name, number in [(None, "E03"), *KNOWN_KEYS]:
        refused.append(lists(gateway, family, SECRETS.get(name, UNKNOWN_KEY), tail))
        check_refusal(refused[-1], family, number)
    check_unrecorded(gateway, *refused)


def test_head_of_a_list_has_no_body(gateway):
    answer = lists(gateway, CHAT, method="HEAD")
    assert answer.status == 200
    answer = lists(gateway, CHAT, tail="/nobodys-model", method="HEAD")
    assert answer.status == 404


# ---- paths and methods ---------------------------------------------------------------------------

DOUBLED = [
    # what a client asks for when it is given the wrong base URL (specification §1 rules 1 to 4)
    ("/v1/messages/v1/messages", MESSAGES, "/v1/messages", ""),
    ("/v1/messages/v1/messages/count_tokens", MESSAGES, "/v1/messages", ""),
    ("/v1/v1/messages", MESSAGES, "/v1", ""),
    ("/v1/v1/messages/count_tokens", MESSAGES, "/v1", ""),
    ("/v1beta/v1/messages", MESSAGES, "/v1beta", ""),
    ("/v1/chat/completions/v1/messages", MESSAGES, "/v1/chat/completions", ""),
    ("/v1/chat/completions/chat/completions", CHAT, "/v1/chat/completions", "/v1"),
    ("/v1/v1/chat/completions", CHAT, "", "/v1"),
    ("/v1beta/v1/chat/completions", CHAT, "", "/v1"),
    ("/v1/messages/chat/completions", CHAT, "/v1/messages", "/v1"),
    ("/v1/responses/responses", RESPONSES, "/v1/responses", "/v1"),
    ("/v1/responses/v1/responses", RESPONSES, "/v1/responses/v1", "/v1"),
    ("/v1/responses/responses/input_tokens", RESPONSES, "/v1/responses", "/v1"),
    ("/v1/responses/responses/compact", RESPONSES, "/v1/responses", "/v1"),
    ("/v1/v1/responses", RESPONSES, "", "/v1"),
    ("/v1/chat/completions/responses", RESPONSES, "/v1/chat/completions", "/v1"),
    ("/v1beta/v1beta/models/open-model:generateContent", GENERATE, "/v1beta", ""),
    ("/v1/v1beta/models/open-model:streamGenerateContent", GENERATE, "/v1", ""),
    ("/v1beta/v1/models/Org/slash-model:countTokens", GENERATE, "/v1beta", ""),
    ("/v1/messages/v1beta/models/open-model:generateContent", GENERATE, "/v1/messages", ""),
]


@pytest.mark.parametrize(("path", "family", "part", "base"), DOUBLED, ids=[d[0] for d in DOUBLED])
@pytest.mark.parametrize("method", ["POST", "GET"])
def test_a_doubled_path_names_the_right_base_url(gateway, method, path, family, part, base):
    body = ask(family, "open-model") if method == "POST" else None
    answer = exchange(gateway.port, method, path, credentials(family), body)
    message = check_refusal(answer, family, "E32")
    assert message.endswith(f" set it to {PUBLIC_URL}{base}."), message
    assert f"already contains {part};" in message or not part
    check_unrecorded(gateway, answer)


UNVERSIONED = [
    ("/messages", MESSAGES, ""),
    ("/chat/completions", CHAT, "/v1"),
    ("/responses", RESPONSES, "/v1"),
    ("/models/open-model:generateContent", GENERATE, ""),
    ("/gemini/models/open-model:generateContent", GENERATE, ""),
]


@pytest.mark.parametrize(("path", "family", "base"), UNVERSIONED)
def test_a_missing_version_is_told_the_right_base_url(gateway, path, family, base):
    answer = exchange(gateway.port, "POST", path, credentials(family), ask(family, "open-model"))
    message = check_refusal(answer, family, "E31")
    assert f"POST {path}" in message
    assert re.search(re.escape(PUBLIC_URL + base) + r"(?![/\w])", message), message


VERSIONED = {"anthropic-version": "2023-06-01"}
UNKNOWN = [
    # (path, headers, the family whose shape the answer has)
    ("/v1/chat/completion", {}, CHAT),
    ("/v1/chat/completions/", {}, CHAT),
    ("/v1/chat", {}, CHAT),
    ("/v1/embeddings", {}, CHAT),
    ("/v1/embeddings", VERSIONED, CHAT),  # everything unknown under /v1
    ("/v1/message", VERSIONED, CHAT),
    ("/v1", {}, CHAT),
    ("/v1/", {}, CHAT),
    ("/v1/messages/batches", {}, MESSAGES),  # /v1/messages*
    ("/v1/messages/batches", VERSIONED, MESSAGES),
    ("/v1/messages/", {}, MESSAGES),
    ("/index.html", {}, CHAT),
    ("/favicon.ico", {}, CHAT),
    ("/api/chat", {"anthropic-version": "2023-06-01"}, MESSAGES),
    ("/api/chat", {"compat-version": "2023-06-01"}, MESSAGES),
    ("/api/chat", {"x-api-key": SECRET}, MESSAGES),
    ("/api/chat", {"x-goog-api-key": SECRET}, GENERATE),
    ("/api/chat?key=x", {}, GENERATE),
    ("/v1beta/corpora", {}, GENERATE),
    ("/v1beta/models/", VERSIONED, GENERATE),
    ("/v1beta/cachedContents", {"x-goog-api-key": SECRET}, GENERATE),
    ("/v1/responses/resp_1/unknown", {}, RESPONSES),
    ("/v1/responses/", {}, RESPONSES),
    ("/api/chat", {"Authorization": f"Bearer {SECRET}"}, CHAT),
    ("/V1/MESSAGES", {}, CHAT),
    ("/v1%2Fmessages", {}, CHAT),
    ("/v1/../v1/messages/x", {}, CHAT),
    ("/" + "x" * 5000, {}, CHAT),
    ("/%00%ff", {}, CHAT),
    ('/"><script>', {}, CHAT),
]


@pytest.mark.parametrize(("path", "headers", "family"), UNKNOWN, ids=[
    f"{path[:30]} {','.join(headers)}" for path, headers, _ in UNKNOWN])  # fmt: skip
@pytest.mark.parametrize("method", ["POST", "GET"])
def test_an_unknown_path_is_answered_in_its_dialect(gateway, method, path, headers, family):
    body = ask(family, "open-model") if method == "POST" else None
    answer = exchange(gateway.port, method, path, {**headers}, body)
    message = check_refusal(answer, family, "E31")
    assert f"{method} {path.partition('?')[0][:50]}" in message and len(message) < 400
    check_unrecorded(gateway, answer)


@pytest.mark.parametrize("query", ["?beta=true", "?", "?a=b&c=%zz"])
def test_a_query_changes_nothing(gateway, query):
    body = ask(MESSAGES, "open-model")
    answer = exchange(gateway.port, "POST", f"/v1/messages{query}", credentials(MESSAGES), body)
    assert answer.status == 200
    assert gateway.record(answer.call_id)["endpoint"] == "/v1/messages"


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH", "OPTIONS"])
@pytest.mark.parametrize(
    ("path", "family"),
    [
        *((url(family), family) for family in ALL),
        (COUNT_PATH, MESSAGES),
        (url(GENERATE, stream=True), GENERATE),
        ("/v1/models/open-model:countTokens", GENERATE),
        ("/v1/responses/compact", RESPONSES),
    ],
)
def test_a_wrong_method_names_the_right_one(gateway, method, path, family):
    for headers in ({}, credentials(family)):  # the method is judged before the key
        answer = exchange(gateway.port, method, path, headers)
        assert "POST" in check_refusal(answer, family, "E33")
        check_unrecorded(gateway, answer)


def test_head_of_an_entry_has_no_body(gateway):
    answer = exchange(gateway.port, "HEAD", PATHS[CHAT])
    assert (answer.status, answer.headers["allow"], answer.body) == (405, "POST", b"")


@pytest.mark.parametrize("path", ["/v1/models", "/v1/models/open-model"])
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
def test_lists_are_only_read(gateway, method, path):
    body = {} if method != "DELETE" else None
    answer = exchange(gateway.port, method, path, credentials(), body)
    assert answer.status == 405 and "GET" in answer.headers["allow"].split(", ")
    assert error_of(CHAT, answer.body, "")[:2] == ("invalid_request_error", "method_not_allowed")


@pytest.mark.parametrize("path", ["/", "/livez"])
def test_probes_need_no_key(gateway, path):
    answer = exchange(gateway.port, "GET", path)
    assert answer.status == 200 and answer.headers["content-type"].startswith("application/json")
    assert answer.json
    head = exchange(gateway.port, "HEAD", path)
    assert (head.status, head.body) == (200, b"")
    assert exchange(gateway.port, "POST", path, body={}).status == 405


# ---- bodies --------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", ALL)
@pytest.mark.parametrize(
    "value",
    ["text/plain", "", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x",
     "application/jsonp", "application", "text/json-application/json"],
)  # fmt: skip
def test_a_body_that_is_not_called_json(gateway, family, value):
    body = json.dumps(ask(family, "open-model")).encode()
    headers = {**credentials(family), "Content-Type": value}
    answer = exchange(gateway.port, "POST", url(family), headers, body)
    check_refusal(answer, family, "E16")
    check_refused_record(gateway, answer, "E16", endpoint=endpoint(family))


def test_a_body_without_a_content_type(gateway):
    body = json.dumps(ask(CHAT, "open-model")).encode()
    headers = {**credentials(), "Content-Type": None, "Content-Length": str(len(body))}
    answer = exchange(gateway.port, "POST", PATHS[CHAT], headers, body)
    check_refusal(answer, CHAT, "E16")


@pytest.mark.parametrize(
    "value",
    ["application/json", "application/json; charset=utf-8", "Application/JSON;charset=UTF-8"],
)
@pytest.mark.parametrize("encoding", [None, "identity"])
def test_a_body_that_is_called_json(gateway, value, encoding):
    body = json.dumps(ask(CHAT, "open-model")).encode()
    headers = {**credentials(), "Content-Type": value, "Content-Encoding": encoding}
    assert exchange(gateway.port, "POST", PATHS[CHAT], headers, body).status == 200


@pytest.mark.parametrize("family", ALL)
@pytest.mark.parametrize(
    ("encoding", "pack"),
    [("compress", bytes), ("br, gzip", bytes), ("made-up", bytes), ("zstd", bytes),
     ("gzip, gzip", gzip.compress), ("gzip", bytes)],
    ids=["compress", "br, gzip", "made-up", "zstd", "gzip twice", "gzip that is none"],
)  # fmt: skip
def test_an_encoding_of_a_body_that_is_not_known_or_does_not_fit(gateway, family, encoding, pack):
    body = pack(json.dumps(ask(family, "open-model")).encode())
    headers = {**credentials(family), "Content-Encoding": encoding}
    answer = exchange(gateway.port, "POST", url(family), headers, body)
    check_refusal(answer, family, "E17")
    check_refused_record(gateway, answer, "E17")


@pytest.mark.parametrize("family", ALL)
def test_a_packed_body_is_unpacked_up_to_the_limit(strict, family):
    headers = {**credentials(family), "Content-Encoding": "gzip"}
    body = gzip.compress(padded(family, LIMIT_BYTES))
    assert exchange(strict.port, "POST", url(family), headers, body).status == 200
    body = gzip.compress(padded(family, LIMIT_BYTES + 1))
    answer = exchange(strict.port, "POST", url(family), headers, body)
    assert "1 MiB" in check_refusal(answer, family, "E15")
    check_refused_record(strict, answer, "E15")


def padded(family, size, **more):
    """The body of a good call, of exactly `size` bytes."""
    empty = json.dumps(ask(family, "open-model", "", **more))
    return json.dumps(ask(family, "open-model", "x" * (size - len(empty)), **more)).encode()


@pytest.mark.parametrize("family", ALL)
def test_a_body_of_the_limit_passes(strict, family):
    body = padded(family, LIMIT_BYTES)
    answer = exchange(strict.port, "POST", url(family), credentials(family), body)
    assert (len(body), answer.status) == (LIMIT_BYTES, 200)
    chunked = {**credentials(family), "Transfer-Encoding": "chunked"}
    answer = exchange(strict.port, "POST", url(family), chunked, in_chunks(body))
    assert answer.status == 200


def in_chunks(body, size=60_000):
    parts = [body[at : at + size] for at in range(0, len(body), size)]
    return b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"


@pytest.mark.parametrize("family", ALL)
@pytest.mark.parametrize("size", [LIMIT_BYTES + 1, 10**12])
def test_an_announced_body_over_the_limit_is_refused_before_it_comes(strict, family, size):
    headers = {**credentials(family), "Content-Length": str(size)}
    with Connection(strict.port) as connection:
        connection.send(encode_head("POST", url(family), headers, b""))
        answer = connection.read()
        message = check_refusal(answer, family, "E15")
        assert "1 MiB" in message
        assert answer.headers["connection"] == "close"
        connection.until_closed()
    check_refused_record(strict, answer, "E15", model=None)


def test_a_client_that_sends_on_still_sees_the_413(strict):
    body = padded(CHAT, LIMIT_BYTES + 700_000)
    answer = exchange(strict.port, "POST", PATHS[CHAT], credentials(), body)
    check_refusal(answer, CHAT, "E15")


@pytest.mark.parametrize("family", ALL)
def test_a_chunked_body_over_the_limit_is_refused(strict, family):
    headers = {**credentials(family), "Transfer-Encoding": "chunked"}
    with Connection(strict.port) as connection:
        connection.send(encode_head("POST", url(family), headers, b""))
        piece = b"10000\r\n" + b"x" * 65536 + b"\r\n"
        for _ in range(LIMIT_BYTES // 65536 + 2):
            connection.send(piece)
        answer = connection.read()
    check_refusal(answer, family, "E15")
    assert answer.headers["connection"] == "close"
    check_refused_record(strict, answer, "E15")


def test_a_trusted_proxy_may_send_the_whole_body_first(strict):
    body = padded(CHAT, 3 * LIMIT_BYTES)
    with Connection(strict.port, source=PROXY) as connection:
        connection.send(encode_head("POST", PATHS[CHAT], credentials(), body))
        connection.socket.settimeout(0.5)
        with pytest.raises(TimeoutError):
            connection.read_head()
        connection.socket.settimeout(ANSWERS_WITHIN_S)
        connection.send(body)
        answer = connection.read()
        check_refusal(answer, CHAT, "E15")
        assert "connection" not in answer.headers  # the body was read whole
        connection.request("POST", PATHS[CHAT], credentials(), ask(CHAT, "open-model"))
        assert connection.read().status == 200


def test_expect_100_continue(strict):
    body = json.dumps(ask(CHAT, "open-model")).encode()
    with Connection(strict.port) as connection:
        expecting = {**credentials(), "Expect": "100-continue"}
        connection.send(encode_head("POST", PATHS[CHAT], expecting, body))
        assert connection.read_head().status == 100
        connection.send(body)
        assert connection.read().status == 200


EXPECTING = [
    ("a wrong key", {"Authorization": "Bearer sk-unknown-0123456789"}, "E03"),
    ("a closed entry", {"Authorization": f"Bearer {SECRETS['chatter']}"}, "E07"),
    ("a wrong type", {"Content-Type": "text/plain"}, "E16"),
    ("a large body", {"Content-Length": str(LIMIT_BYTES + 1)}, "E15"),
]


@pytest.mark.parametrize(("headers", "number"), [e[1:] for e in EXPECTING],
                         ids=[e[0] for e in EXPECTING])  # fmt: skip
def test_a_refusal_is_answered_at_once_to_who_expects_a_word(strict, headers, number):
    sent = {**credentials(MESSAGES), "Expect": "100-continue", "Content-Length": "100", **headers}
    with Connection(strict.port) as connection:
        connection.send(encode_head("POST", PATHS[MESSAGES], sent, b""))
        check_refusal(connection.read(), MESSAGES, number)  # and no 100 before it


def test_a_refused_body_passes_by_and_the_connection_stays(gateway):
    body = padded(CHAT, 700_000)
    with Connection(gateway.port) as connection:
        for _ in range(2):
            connection.send(
                encode_head("POST", PATHS[CHAT], credentials(CHAT, "sk-no-0123456789"), body)
            )
            connection.send(body)
            check_refusal(connection.read(), CHAT, "E03")
        connection.request("POST", PATHS[CHAT], credentials(), ask(CHAT, "open-model"))
        assert connection.read().status == 200


# ---- JSON ----------------------------------------------------------------------------------------


def good(family, **changes):
    return json.dumps({**ask(family, "open-model"), **changes}).encode()


def with_text(family, text, into="{"):
    """The body of a good call with `text` behind its first brace."""
    return good(family).replace(b"{", into.encode() + text, 1)


def not_json(family):
    whole = good(family)
    return {
        "empty": b"",
        "blanks": b" \r\n\t ",
        "a word": b"hello",
        "an array": b"[]",
        "a string": b'"x"',
        "null": b"null",
        "a number": b"1",
        "half": whole[:-1],
        "two documents": whole + whole,
        "a rest": whole + b"x",
        "a trailing comma": whole[:-1] + b",}",
        "a comment": b"/* hi */" + whole,
        "single quotes": whole.replace(b'"', b"'"),
        "NaN": with_text(family, b'"temperature":NaN,'),
        "Infinity": with_text(family, b'"temperature":Infinity,'),
        "-Infinity": with_text(family, b'"x":[-Infinity],'),
        "a leading zero": with_text(family, b'"x":01,'),
        "a bare control character": with_text(family, b'"x":"a\nb",'),
        "a wrong escape": with_text(family, b'"x":"\\x41",'),
        "a name without quotes": with_text(family, b"x:1,"),
        "BOM": b"\xef\xbb\xbf" + whole,
        "UTF-16 with BOM": whole.decode().encode("utf-16"),
        "UTF-16": whole.decode().encode("utf-16-be"),
        "UTF-32": whole.decode().encode("utf-32-le"),
        "Latin-1": with_text(family, b'"x":"\xfc",'),
        "overlong UTF-8": with_text(family, b'"x":"\xc0\xaf",'),
        "a surrogate in UTF-8": with_text(family, b'"x":"\xed\xa0\x80",'),
        "NUL": with_text(family, b"\x00"),
        "a lone surrogate": with_text(family, b'"x":"\\ud800",'),
        "a model of half a surrogate pair": whole.replace(b"open-model", b"\\udc00"),
        "depth 100,000": with_text(family, b'"x":' + b"[" * 100_000 + b"]" * 100_000 + b","),
        "objects 100,000 deep": with_text(
            family, b'"x":' + b'{"a":' * 100_000 + b"1" + b"}" * 100_000 + b","
        ),
        "open brackets": b"[" * 100_000,
        "depth in the messages": b'{"model":"open-model","max_tokens":9,"messages":'
        + b"[" * 100_000 + b"]" * 100_000 + b"}",
    }  # fmt: skip


NO_JSON = [
    (family, name) for family in ALL for name, body in not_json(family).items()
    if body != good(family)  # the change was of a model in the body
]  # fmt: skip


@pytest.mark.parametrize(("family", "name"), NO_JSON)
def test_what_is_no_json_object(gateway, family, name):
    body = not_json(family)[name]
    answer = exchange(gateway.port, "POST", url(family), credentials(family), body)
    message = check_refusal(answer, family, "E11")
    assert re.search("not valid JSON|object|UTF-8|nested", message), message
    check_refused_record(gateway, answer, "E11", model=None, endpoint=endpoint(family))


def config(**changes):
    return {"generationConfig": changes}


R, G = (RESPONSES,), (GENERATE,)
WRONG_FIELDS = [
    # (name, changes of the body, condition, field, families)
    ("no model", {"model": ...}, "E10", "model", NAMED_IN_BODY),
    ("model null", {"model": None}, "E10", "model", NAMED_IN_BODY),
    ("model empty", {"model": ""}, "E10", "model", NAMED_IN_BODY),
    ("model a number", {"model": 5}, "E12", "model", ALL),
    ("model a list", {"model": ["open-model"]}, "E12", "model", ALL),
    ("model an object", {"model": {}}, "E12", "model", ALL),
    ("model false", {"model": False}, "E12", "model", ALL),
    ("no messages", {"messages": ...}, "E13", "messages", BOTH),
    ("messages a text", {"messages": "hi"}, "E12", "messages", BOTH),
    ("messages an object", {"messages": {"role": "user"}}, "E12", "messages", BOTH),
    ("no input", {"input": ...}, "E13", "input", R),
    ("input null", {"input": None}, "E13", "input", R),
    ("input an object", {"input": {"role": "user"}}, "E12", "input", R),
    ("input a number", {"input": 5}, "E12", "input", R),
    ("no contents", {"contents": ...}, "E13", "contents", G),
    ("contents null", {"contents": None}, "E12", "contents", G),
    ("contents a text", {"contents": "hi"}, "E12", "contents", G),
    ("contents an object", {"contents": {"parts": []}}, "E12", "contents", G),
    ("stream a text", {"stream": "true"}, "E12", "stream", NAMED_IN_BODY),
    ("stream a number", {"stream": 1}, "E12", "stream", NAMED_IN_BODY),
    *((f"max_tokens {name}", {"max_tokens": value}, "E12", "max_tokens", BOTH)
      for name, value in (("a text", "9"), ("negative", -1), ("true", True), ("half", 1.5),
                          ("without end", 10**40))),
    *((f"max_output_tokens {name}", {"max_output_tokens": value}, "E12", "max_output_tokens", R)
      for name, value in (("a text", "9"), ("negative", -1), ("true", True), ("half", 1.5),
                          ("without end", 10**40))),
    *((f"{name} {value!r:.9}", config(**{name: value}), "E12", f"generationConfig.{name}", G)
      for name in ("maxOutputTokens", "max_output_tokens", "candidateCount")
      for value in ("9", -1, True, 1.5, 10**40)),
    ("generationConfig a text", {"generationConfig": "x"}, "E12", "generationConfig", G),
    ("generationConfig in two spellings", {"generation_config": {}}, "E12", "generationConfig", G),
    ("a bound in two spellings", config(maxOutputTokens=1, max_output_tokens=2), "E12",
     "generationConfig.maxOutputTokens", G),
    ("cachedContent a number", {"cachedContent": 5}, "E12", "cachedContent", G),
    ("no max_tokens", {"max_tokens": ...}, "E13", "max_tokens", (MESSAGES,)),
    ("max_completion_tokens", {"max_completion_tokens": "x"}, "E12",
     "max_completion_tokens", (CHAT,)),
    ("n a text", {"n": "2"}, "E12", "n", (CHAT,)),
    ("stream_options", {"stream_options": "x"}, "E12", "stream_options", (CHAT,)),
    ("include_usage", {"stream_options": {"include_usage": 1}}, "E12",
     "stream_options.include_usage", (CHAT,)),
    ("background", {"background": True}, "E14", "background", R),
    ("background a text", {"background": "true"}, "E12", "background", R),
    ("previous_response_id", {"previous_response_id": 5}, "E12", "previous_response_id", R),
    ("conversation", {"conversation": 5}, "E12", "conversation", R),
    ("conversation.id", {"conversation": {"id": 5}}, "E12", "conversation.id", R),
]  # fmt: skip


@pytest.mark.parametrize(
    ("family", "changes", "number", "field"),
    [(family, *row[1:4]) for row in WRONG_FIELDS for family in row[4]],
    ids=[f"{row[0]}, {family}" for row in WRONG_FIELDS for family in row[4]],
)
def test_a_wrong_field_is_named(gateway, family, changes, number, field):
    body = {**ask(family, "open-model"), **changes}
    body = {name: value for name, value in body.items() if value is not ...}
    answer = exchange(gateway.port, "POST", url(family), credentials(family), body)
    message = check_refusal(answer, family, number)
    if family == MESSAGES:
        assert message.startswith(f"{field}: ")
    else:
        assert f"'{field}'" in message
        assert family == GENERATE or answer.json["error"]["param"] == field
    model = "open-model" if family == GENERATE else body.get("model")
    asked = model if isinstance(model, str) and model else None
    check_refused_record(gateway, answer, number, model=asked)


@pytest.mark.parametrize("family", ALL)
@pytest.mark.parametrize(
    "text",
    [b'"model":"other-model",', b'"model":"open-model",', b'"mod\\u0065l":"other-model",',
     b'"PROMPT":[],', b'"stream":true,"stream":false,', b'"x":1,"x":1,', b'"":1,"":2,'],
)  # fmt: skip
def test_a_doubled_name_is_refused(gateway, family, text):
    text = text.replace(b"PROMPT", PROMPTS[family].encode())
    if family == GENERATE and b"-model" in text:
        text += text
    body = with_text(family, text)
    answer = exchange(gateway.port, "POST", url(family), credentials(family), body)
    check_refusal(answer, family, "E12")
    assert gateway.record(answer.call_id)["error_code"] == "invalid_type"


def test_bounds_that_no_money_covers(gateway):
    """Each number is one that may be asked for; together they cost more than a BIGINT holds."""
    call = ask(CHAT, "open-model") | {"n": 2**31, "max_tokens": 2**31}
    answer = exchange(gateway.port, "POST", PATHS[CHAT], credentials(), call)
    check_refusal(answer, CHAT, "E12")
    check_refused_record(gateway, answer, "E12")


@pytest.mark.parametrize("family", ALL)
def test_a_number_beyond_all_bounds_where_it_is_read(gateway, family):
    name = BOUNDS[family].encode()
    body = good(family).replace(b'"%b": 300' % name, b'"%b": 1e999' % name)
    assert body != good(family)
    answer = exchange(gateway.port, "POST", url(family), credentials(family), body)
    check_refusal(answer, family, "E12")


PASSED_ON = {
    "1e999 deep inside": b'"metadata":{"x":1e999,"y":[1E+400]},',
    "a surrogate pair": b'"x":"\\ud83d\\ude00",',
    "long numbers": b'"x":[1.10,1e5,-0.0,123456789012345678901234567890],',
    "control fields": b'"api_base":"http://203.0.113.1","base_url":"http://203.0.113.1",'
    b'"api_key":"sk-evil","custom_llm_provider":"x","channel":"far",',
    "odd blanks": b'\r\n\t  "x"  :\n[ ] ,\r\n',
    "escapes": b'"x":"\\u0041\\/\\u00fc",',
}


@pytest.mark.parametrize("family", ALL)
@pytest.mark.parametrize("name", PASSED_ON)
def test_the_bytes_of_a_body_reach_the_vendor_as_they_are(gateway, vendor, family, name):
    vendor.reset()
    body = with_text(family, PASSED_ON[name])
    answer = exchange(gateway.port, "POST", url(family), credentials(family), body)
    # This vendor refuses what the real one refuses: unknown fields but in chat completions, and
    # metadata that is no text.
    refused = family != CHAT or b"metadata" in body
    assert answer.status == (400 if refused else 200), answer.body
    (entry,) = vendor.log()
    mapped = body.replace(b'"open-model"', json.dumps(ALIAS).encode(), 1)
    assert entry["body"].encode() == mapped


def test_millions_of_small_objects_do_not_stop_the_others(gateway):
    family = MESSAGES
    inner = b",".join([b"{}"] * 2_300_000)
    body = b'{"model":"open-model","max_tokens":9,"messages":[' + inner + b"]}"
    with Connection(gateway.port, patience_s=60) as slow:
        slow.request("POST", url(family), credentials(family), body)
        worst_s = 0.0
        for _ in range(20):
            began = time.monotonic()
            assert exchange(gateway.port, "GET", "/livez").status == 200
            worst_s = max(worst_s, time.monotonic() - began)
        answer = slow.read()
    check_refusal(answer, family, "E22")  # the vendor has the last word
    assert worst_s < 2


ORDER = [
    ("path, key", "POST", "/v1/message", {"Authorization": "Bearer x"}, b"x", "E31"),
    ("method, key", "GET", PATHS[CHAT], {"Authorization": "Bearer x"}, None, "E33"),
    ("key, type", "POST", PATHS[CHAT],
     {"Authorization": "Bearer x", "Content-Type": "x"}, b"x", "E03"),
    ("disabled, type", "POST", PATHS[CHAT],
     {"Authorization": f"Bearer {SECRETS['disabled']}", "Content-Type": "x"}, b"x", "E04"),
    ("type, size", "POST", PATHS[CHAT],
     {"Content-Type": "x", "Content-Length": "40000000"}, b"", "E16"),
    ("size, encoding", "POST", PATHS[CHAT],
     {"Content-Encoding": "x", "Content-Length": "40000000"}, b"", "E15"),
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
    with Connection(gateway.port) as connection:
        sent = {"Expect": "100-continue"} if headers.get("Content-Length") else {}
        connection.request(method, path, {**credentials(), **sent, **headers}, body)
        check_refusal(connection.read(), CHAT, number)


# ---- who the client is ---------------------------------------------------------------------------

FORWARDED = [
    # (source address, headers, the client's address in the record)
    ("127.0.0.1", {}, "127.0.0.1"),
    ("127.0.0.1", {"X-Forwarded-For": "203.0.113.7"}, "127.0.0.1"),  # nobody trusts it
    (PROXY, {"X-Forwarded-For": "203.0.113.7"}, "203.0.113.7"),
    (PROXY, {"X-Forwarded-For": "198.51.100.1, 203.0.113.7"}, "203.0.113.7"),
    (PROXY, {"X-Forwarded-For": "198.51.100.1, 203.0.113.7, 10.1.2.3"}, "203.0.113.7"),
    (PROXY, {"X-Forwarded-For": "198.51.100.1,203.0.113.7 ,10.1.2.3,10.9.9.9"}, "203.0.113.7"),
    (PROXY, {"X-Forwarded-For": "2001:db8::1"}, "2001:db8::1"),
    (PROXY, {"X-Real-IP": "203.0.113.7"}, PROXY),
    (PROXY, {"Forwarded": "for=203.0.113.7"}, PROXY),
    (PROXY, {}, PROXY),
]


@pytest.mark.parametrize(("source", "headers", "address"), FORWARDED)
def test_the_client_address(gateway, source, headers, address):
    with Connection(gateway.port, source=source) as connection:
        connection.request(
            "POST", PATHS[CHAT], {**credentials(), **headers}, ask(CHAT, "open-model")
        )
        answer = connection.read()
    assert answer.status == 200
    assert gateway.record(answer.call_id)["client_ip"] == address


def test_forwarded_headers_on_two_lines_are_one_list(gateway):
    body = json.dumps(ask(CHAT, "open-model")).encode()
    head = encode_head(
        "POST", PATHS[CHAT], {**credentials(), "X-Forwarded-For": "203.0.113.7"}, body
    )
    with Connection(gateway.port, source=PROXY) as connection:
        connection.send(head[:-2] + b"X-Forwarded-For: 10.1.2.3\r\n\r\n" + body)
        answer = connection.read()
    assert gateway.record(answer.call_id)["client_ip"] == "203.0.113.7"


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
    [
        ("trace-1.2:3/~!", "trace-1.2:3/~!"),
        ("c" * 128, "c" * 128),
        ("c" * 129, None),
        ("with blank", None),
        ("", None),
        ("tab\there", None),
        ("\xfc", None),
        (None, None),
    ],
)
def test_the_clients_own_request_id(gateway, vendor, sent, recorded):
    vendor.reset()
    headers = {
        **credentials(),
        "X-Client-Request-Id": sent,
        "X-Request-Id": "01ARZ3NDEKTSV4RRFFQ69G5FAV",
    }
    answer = exchange(gateway.port, "POST", PATHS[CHAT], headers, ask(CHAT, "open-model"))
    check_ids(answer)
    assert answer.call_id not in (sent, "01ARZ3NDEKTSV4RRFFQ69G5FAV")
    assert gateway.record(answer.call_id)["client_request_id"] == recorded
    (entry,) = vendor.log()
    for name in ("x-client-request-id", "x-request-id", "x-forwarded-for", "user-agent"):
        assert sent is None or entry["headers"].get(name) != sent
    assert SECRET not in json.dumps(entry)


def test_nothing_of_the_clients_head_reaches_the_vendor_but_what_belongs_there(gateway, vendor):
    vendor.reset()
    own = {"Cookie": "session=1", "X-Forwarded-For": "203.0.113.7", "X-Api-Key": "sk-other-012345",
           "User-Agent": "secret-agent/1", "Via": "1.1 proxy", "OpenAI-Organization": "org-mine",
           "X-Stainless-Os": "Linux", "Proxy-Authorization": "Basic eDp5",
           "Origin": "http://x"}  # fmt: skip
    answer = exchange(
        gateway.port,
        "POST",
        PATHS[MESSAGES],
        {**credentials(MESSAGES), **own},
        ask(MESSAGES, "open-model"),
    )
    assert answer.status == 200
    (entry,) = vendor.log()
    allowed = {"host", "authorization", "content-type", "accept", "accept-encoding", "user-agent",
               "content-length", "anthropic-version"}  # fmt: skip
    assert set(entry["headers"]) <= allowed, entry["headers"]
    assert entry["headers"]["authorization"] == f"Bearer {UPSTREAM_KEY}"
    assert "secret-agent" not in entry["headers"].get("user-agent", "")


# ---- connections ---------------------------------------------------------------------------------


def test_requests_in_one_packet_are_answered_in_order(gateway):
    first = json.dumps(ask(CHAT, "open-model", "[[demo first_ms=300 text=one]]")).encode()
    second = json.dumps(ask(CHAT, "open-model", "[[demo text=two]]")).encode()
    with Connection(gateway.port) as connection:
        connection.send(
            b"".join(
                encode_head("POST", PATHS[CHAT], credentials(), body) + body
                for body in (first, second)
            )
            + encode_head("GET", "/livez")
        )
        assert [text_of(CHAT, connection.read().body) for _ in range(2)] == ["one", "two"]
        assert connection.read().status == 200


@pytest.mark.parametrize("family", BOTH)
def test_nothing_behind_a_closing_request_is_run(gateway, vendor, family):
    vendor.reset()
    parts = []
    for headers, text in (({"Connection": "close"}, "first"), ({}, "second"), ({}, "third")):
        body = json.dumps(ask(family, "open-model", text)).encode()
        parts.append(
            encode_head("POST", PATHS[family], {**credentials(family), **headers}, body) + body
        )
    with Connection(gateway.port) as connection:
        connection.send(b"".join(parts))
        answer = connection.read()
        assert answer.status == 200 and answer.headers["connection"] == "close"
        assert connection.until_closed() == b""
    call(gateway, family, "open-model", prompt="marker")
    assert [json.loads(e["body"])["messages"][0]["content"] for e in vendor.log()] == [
        "first",
        "marker",
    ]


def test_http_1_0(gateway):
    for stream in (False, True):
        with Connection(gateway.port) as connection:
            body = ask(CHAT, "open-model", "[[demo text=ten ms=0]]", stream=stream)
            connection.request("POST", PATHS[CHAT], credentials(), body, version="1.0")
            answer = connection.read()
            assert answer.status == 200 and "transfer-encoding" not in answer.headers
            assert text_of(CHAT, answer.body) == "ten" and answer.whole
            connection.until_closed()


def test_a_gateway_is_patient_from_its_first_second(launch, vendor):
    fresh = launch(content(vendor), follow=False)
    body = json.dumps(ask(CHAT, "open-model")).encode()
    head = encode_head("POST", PATHS[CHAT], credentials(), body)
    stream = ask(CHAT, "open-model", "[[demo first_ms=1500 ms=0]]", stream=True)
    with contextlib.ExitStack() as stack:
        half_head, half_body, waits, streams = (
            stack.enter_context(Connection(fresh.port)) for _ in range(4)
        )
        half_head.send(head[:40])
        half_body.send(head + body[:10])
        streams.request("POST", PATHS[CHAT], credentials(), stream)
        time.sleep(1.5)
        half_head.send(head[40:] + body)
        half_body.send(body[10:])
        waits.send(head + body)
        for connection in (half_head, half_body, waits):
            assert connection.read().status == 200
        assert streams.read().body.startswith(b"data:")  # and was not committed before its time


def is_closed_within(connection, seconds):
    connection.socket.settimeout(seconds)
    try:
        return connection.until_closed()
    except TimeoutError:
        return None


def test_slow_heads_are_closed_and_stop_nobody(strict):
    with contextlib.ExitStack() as stack:
        slow = [stack.enter_context(Connection(strict.port)) for _ in range(200)]
        for index, connection in enumerate(slow):
            connection.send(b"POST /v1/messages HTTP/1.1\r\nHost: x\r\n"[: index % 30])
        began = time.monotonic()
        assert call(strict, CHAT, "open-model").status == 200
        assert time.monotonic() - began < 2
        for connection in slow:
            left_s = max(0.1, ANSWERS_WITHIN_S - (time.monotonic() - began))
            said = is_closed_within(connection, left_s)
            assert said is not None, "a silent connection stays open"
            assert b" 5" not in said[:12]


def test_a_head_that_trickles_is_closed(strict):
    head = encode_head("POST", PATHS[CHAT], {**credentials(), "X-Padding": "x" * 1000})
    began = time.monotonic()
    with Connection(strict.port) as connection, contextlib.suppress(ConnectionError):
        for at in range(len(head)):
            connection.send(head[at : at + 1])
            time.sleep(0.2)
            assert time.monotonic() - began < ANSWERS_WITHIN_S, "a trickling head is waited for"


def test_a_silent_kept_connection_is_closed_in_its_time(strict):
    with Connection(strict.port) as connection:
        for _ in range(2):
            connection.request("GET", "/livez")
            assert connection.read().status == 200
            time.sleep(SECONDS + 0.5)  # longer than a first head may take
        assert is_closed_within(connection, ANSWERS_WITHIN_S) == b""


def slow_body(gateway, family, trickles):
    """The answer to a call whose body stops, or goes on byte by byte without an end."""
    headers = {**credentials(family), "Content-Length": "1000"}
    with Connection(gateway.port) as connection:
        begin = b'{"model": "open-model"'
        connection.send(encode_head("POST", url(family), headers, b"") + begin)
        deadline = time.monotonic() + ANSWERS_WITHIN_S
        connection.socket.settimeout(0.2)
        while time.monotonic() < deadline:
            try:
                answer = connection.read()
            except TimeoutError:
                if trickles:
                    with contextlib.suppress(ConnectionError):
                        connection.send(b" ")
            else:
                return answer, is_closed_within(connection, ANSWERS_WITHIN_S) is not None
    return None, False


def test_a_body_that_does_not_come_in_time(strict):
    ways = [(family, trickles) for family in ALL for trickles in (False, True)]
    with ThreadPoolExecutor() as pool:
        seen = list(pool.map(lambda way: slow_body(strict, *way), ways))
    for (family, trickles), (answer, closed) in zip(ways, seen, strict=True):
        assert answer is not None, f"the body is waited for ({family}, {trickles})"
        check_refusal(answer, family, "E36")
        assert closed
        check_refused_record(strict, answer, "E36", model=None)


def test_a_client_that_leaves_within_its_body_is_recorded(strict):
    headers = {**credentials(), "Content-Length": "1000", "X-Client-Request-Id": "left-in-the-body"}
    with Connection(strict.port) as connection:
        connection.send(encode_head("POST", PATHS[CHAT], headers, b"") + b'{"model"')
        time.sleep(0.2)
    record = strict.tail.find(client_request_id="left-in-the-body")
    assert (record["outcome"], record["error_code"]) == ("client_gone", "client_gone")
    assert (record["status"], record["cost"], record["attempts"]) == (None, "0", [])


# ---- bytes that are no HTTP ----------------------------------------------------------------------


def raw(headers, body=b"{}", line="POST /v1/chat/completions HTTP/1.1", host="Host: x"):
    """A request of header lines as they are; good but for what a test puts into them."""
    lines = [
        line,
        host,
        f"Authorization: Bearer {SECRET}",
        "Content-Type: application/json",
        *headers,
    ]
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body


CALL = json.dumps(ask("chat_completions", "open-model")).encode()
SIZE = f"Content-Length: {len(CALL)}"
CHUNKS = in_chunks(CALL)
CHUNKED = "Transfer-Encoding: chunked"
MALFORMED = {
    # Framing on which two servers could disagree: never run.
    "length and chunks": raw([SIZE, CHUNKED], CHUNKS),
    "chunks and length": raw([CHUNKED, SIZE], CHUNKS),
    "two lengths": raw([SIZE, "Content-Length: 3"], CALL),
    "a list of lengths": raw([f"Content-Length: {len(CALL)}, 3"], CALL),
    "a signed length": raw([f"Content-Length: +{len(CALL)}"], CALL),
    "a negative length": raw(["Content-Length: -1"], CALL),
    "a hexadecimal length": raw(["Content-Length: 0x10"], CALL),
    "a length of 30 digits": raw(["Content-Length: 1" + "0" * 29], CALL),
    "a length of other digits": raw(["Content-Length: \xb2\xb3"], CALL),
    "an underscored length": raw(["Content-Length: 1_0"], CALL),
    "chunked twice": raw([CHUNKED, CHUNKED], CHUNKS),
    "gzip, chunked": raw(["Transfer-Encoding: gzip, chunked"], CHUNKS),
    "chunked, identity": raw(["Transfer-Encoding: chunked, identity"], CHUNKS),
    "an unknown coding": raw(["Transfer-Encoding: xchunked"], CHUNKS),
    "a disguised coding": raw(["Transfer-Encoding:\x0bchunked", SIZE], CALL),
    "a blank before the colon": raw(["Transfer-Encoding : chunked", SIZE], CALL),
    "a length behind a blank": raw([f"Content-Length : {len(CALL)}"], CALL),
    "a chunk's size is no number": raw([CHUNKED], b"zz\r\n" + CALL + b"\r\n0\r\n\r\n"),
    "a chunk's size is negative": raw([CHUNKED], b"-5\r\nabcde\r\n0\r\n\r\n"),
    "a chunk's size is signed": raw([CHUNKED], b"+2\r\n{}\r\n0\r\n\r\n"),
    "a chunk's size has 0x": raw([CHUNKED], b"0x2\r\n{}\r\n0\r\n\r\n"),
    "a chunk's size overflows": raw([CHUNKED], b"f" * 17 + b"\r\n" + CALL),
    "a chunk is longer than it says": raw([CHUNKED], b"2\r\n" + CALL + b"\r\n0\r\n\r\n"),
    "a chunk's size never ends": raw([CHUNKED], b"0" * 100_000),
    "a chunk's extension never ends": raw([CHUNKED], b"2;" + b"x" * 100_000),
    # Heads.
    "a folded header": raw([SIZE, "X-Long: a\r\n b"], CALL),
    "a folded first header": raw([SIZE], CALL, host=" Host: x"),
    "NUL in a header": raw([SIZE, "X-Nul: a\x00b"], CALL),
    "CR in a header": raw([SIZE, "X-Cr: a\rb"], CALL),
    "no colon": raw([SIZE, "nonsense"], CALL),
    "no name": raw([SIZE, ": value"], CALL),
    "a blank in a name": raw([SIZE, "X Name: value"], CALL),
    "a name of other letters": raw([SIZE, "X-\xfc: value"], CALL),
    "NUL in the path": raw([SIZE], CALL, line="POST /v1/chat\x00/completions HTTP/1.1"),
    "a blank in the path": raw([SIZE], CALL, line="POST /v1/chat completions HTTP/1.1"),
    "no version": raw([SIZE], CALL, line="POST /v1/chat/completions"),
    "HTTP/0.9": b"GET /v1/models\r\n",
    "HTTP/3.0": raw([SIZE], CALL, line="POST /v1/chat/completions HTTP/3.0"),
    "an unknown method": raw([SIZE], CALL, line="BREW /v1/chat/completions HTTP/1.1"),
    "an odd version": raw([SIZE], CALL, line="POST /v1/chat/completions HTTP/1.1x"),
    "two hosts": raw([SIZE, "Host: y"], CALL),
    "no host": raw([SIZE], CALL, host="X-Other: x"),
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\x00\x00\x12\x04\x00\x00\x00\x00\x00",
    "TLS": bytes.fromhex("16030100c8010000c40303") + bytes(range(1, 195)),
    "zeros": b"\x00" * 1000,
    "a megabyte of one header": raw([SIZE, "X-Big: " + "x" * MIB], CALL),
    "a megabyte of headers": raw([SIZE, *(f"X-{n}: {'x' * 40}" for n in range(20_000))], CALL),
    "a megabyte without a line end": b"POST /" + b"x" * MIB,
}  # fmt: skip


@pytest.mark.parametrize("name", MALFORMED)
def test_bytes_that_are_no_request(strict, vendor, name):
    vendor.reset()
    with Connection(strict.port) as connection:
        with contextlib.suppress(ConnectionError):
            connection.send(MALFORMED[name])
        said = is_closed_within(connection, ANSWERS_WITHIN_S)
    assert said is not None, "the connection stays open"
    if said:
        assert re.match(rb"HTTP/1\.1 4\d\d ", said), said[:200]
        assert said.count(b"HTTP/1.1 ") == 1
        assert b"Traceback" not in said
        check_malformed(said)
    assert vendor.log() == []
    assert call(strict, CHAT, "open-model").status == 200


def check_malformed(said):
    """Whatever could not be read is refused as every other call: with a body and an id."""
    head, _, body = said.decode().partition("\r\n\r\n")
    headers = dict(line.lower().split(": ", 1) for line in head.split("\r\n")[1:])
    assert headers["content-type"] == "application/json"
    assert int(headers["content-length"]) == len(body) and headers["connection"] == "close"
    kind, code, message = error_of(CHAT, body, "")
    assert kind == "invalid_request_error" and code and message


def test_bytes_that_are_no_request_get_ids_too(strict):
    with Connection(strict.port) as connection:
        connection.send(MALFORMED["two lengths"])
        check_ids(connection.read())


def test_a_tls_client_is_told_so_at_once(gateway):
    context = ssl.create_default_context()
    began = time.monotonic()
    with (
        socket.create_connection(("127.0.0.1", gateway.port), ANSWERS_WITHIN_S) as plain,
        pytest.raises((ssl.SSLError, ConnectionError)),
    ):
        context.wrap_socket(plain, server_hostname="localhost")
    assert time.monotonic() - began < 5


TOLERATED = {
    "bare line feeds": raw([SIZE], b"").replace(b"\r\n", b"\n") + CALL,
    "an empty line first": b"\r\n" + raw([SIZE], CALL),
    "an absolute target": raw([SIZE], CALL, line="POST http://x/v1/chat/completions HTTP/1.1"),
    "a lower-case method": raw([SIZE], CALL, line="post /v1/chat/completions HTTP/1.1"),
    "a chunk extension": raw([CHUNKED], CHUNKS.replace(b"\r\n", b";a=b\r\n", 1)),
    "trailers": raw([CHUNKED], CHUNKS[:-2] + b"X-Trailer: 1\r\n\r\n"),
    "chunked in capitals": raw(["Transfer-Encoding: Chunked"], CHUNKS),
    "an upgrade": raw([SIZE, "Connection: Upgrade", "Upgrade: websocket"], CALL),
    "60 KB of headers": raw([SIZE, "X-Big: " + "x" * 60_000], CALL),
}


@pytest.mark.parametrize("name", TOLERATED)
def test_unusual_requests_are_run_or_refused_but_never_break(gateway, name):
    with Connection(gateway.port) as connection:
        connection.send(TOLERATED[name])
        answer = connection.read()
    assert answer.whole and answer.status < 500, answer.head
    assert answer.json


def test_calls_that_never_arrived_have_no_record(gateway, strict):
    for one in (gateway, strict):
        one.record(call(one, CHAT, "open-model").call_id)  # so all earlier ones are written, too
    ids = {entry["id"] for one in (gateway, strict) for entry in one.usage()}
    recorded = [a for _, answers in UNRECORDED for a in answers if a.call_id in ids]
    assert [(answer.head, answer.body) for answer in recorded] == []
