"""Lists of models: what a key may call, in the caller's shape."""

import asyncio
from dataclasses import replace
from ipaddress import ip_network
from types import SimpleNamespace

import pytest

from store.catalog.catalog import Group, Model, Snapshot
from store.catalog.key_cache import MISS
from store.values.errors import StoreUnavailable
from tests.handlers.relay.calls import KEY
from tests.handlers.relay.routing.channels import channel as channel_of
from tests.support.dialects import check_ids
from tests.support.prices import prices_of
from tests.support.served import VERSION, acting, entered, serving

PRICES = prices_of(1, 1, 1, 1, 1, 1, 0)
CHAT, MESSAGES = "chat_completions", "messages"
CREATED_MS = 1_700_000_000_123


KEYS = {
    "good": KEY,
    "narrow": replace(KEY, models=frozenset({"both"})),
    "disabled": replace(KEY, disabled=True),
    "expired": replace(KEY, expires_ms=1),
    "elsewhere": replace(KEY, networks=(ip_network("203.0.113.0/24"),)),
    "messenger": replace(KEY, group="messengers"),
}


class Keys:
    """A key cache: `peek` has the secrets of KEYS; those of `stored` need a look-up."""

    def __init__(self, stored=None, away=False):
        self.stored = stored
        self.away = away

    def peek(self, secret):
        return MISS if self.stored is not None or self.away else KEYS.get(secret)

    async def get(self, secret):
        await asyncio.sleep(0.001)
        if self.away:
            raise StoreUnavailable("the store is away")
        return self.stored.get(secret)


def channel(name, family, models):
    groups, models = frozenset({"gold", "messengers"}), dict.fromkeys(models, "alias")
    return channel_of(name, family=family, groups=groups, models=models)


def snapshot():
    def model(name, context=None):
        return Model(name, context, None, False, CREATED_MS, ((0, PRICES),))

    models = [model("both", 1000), model("org/chatty"), model("message"), model("nobodys")]
    everything = frozenset({CHAT, MESSAGES})
    return Snapshot(
        version=1,
        groups={
            "gold": Group("gold", 10**6, None, everything, False),
            "messengers": Group("messengers", 10**6, None, frozenset({MESSAGES}), False),
        },
        models={one.name: one for one in models},
        channels=(
            channel("chats", CHAT, ["both", "org/chatty"]),
            channel("messages", MESSAGES, ["both", "message"]),
        ),
    )


def site(keys=None, **options):
    relay = SimpleNamespace(keys=keys or Keys(), snapshot=snapshot())
    return serving(relay=relay, **options)


def bearer(secret="good", **more):
    return {"Authorization": f"Bearer {secret}", **more}


def names(answer):
    assert answer.status == 200, answer.body
    return [model["id"] for model in answer.json["data"]]


@pytest.fixture
def served(io_loop):
    yield from entered(io_loop, site())


@pytest.fixture
def wide(io_loop):
    yield from entered(io_loop, wide_site())


async def test_the_list_of_the_chat_family(served):
    answer = await served.ask("GET", "/v1/models", bearer())
    assert answer.json["object"] == "list" and b"alias" not in answer.body
    shown = [(model["object"], model["id"], model["created"]) for model in answer.json["data"]]
    created_s = CREATED_MS // 1000
    assert shown == [("model", "both", created_s), ("model", "org/chatty", created_s)]
    check_ids(answer)


@pytest.mark.parametrize(("headers", "listed"), [
    (bearer("narrow"), ["both"]),
    (bearer("messenger"), []),
    (bearer("messenger") | VERSION, ["both", "message"]),
])  # fmt: skip
async def test_the_list_of_a_narrowed_key_and_of_a_group_without_the_family(
    served, headers, listed
):
    assert names(await served.ask("GET", "/v1/models", headers)) == listed


@pytest.mark.parametrize("name", ["none", "nobodys", "alias", "message", "BOTH", "%ff", "both%00"])
async def test_a_model_that_this_key_cannot_call(served, name):
    answer = await served.ask("GET", f"/v1/models/{name}", bearer())
    assert (answer.status, answer.json["error"]["code"]) == (404, "model_not_found")


RESPONSES, GENERATE = "responses", "generate_content"
WIDE = {
    CHAT: ["everywhere", "chatty", "org/chatty"],
    RESPONSES: ["everywhere", "answerer", "vendor/answer:8b"],
    MESSAGES: ["everywhere", "message", "vendor/message:8b", *(f"m{n:02}" for n in range(30))],
    GENERATE: ["everywhere", "gem", "vendor/qwen3:8b", "tuned:generateContent"]
    + [f"g{n:02}" for n in range(60)],
}
SHAPES = {"chat": [*WIDE[CHAT], *WIDE[RESPONSES]], MESSAGES: WIDE[MESSAGES],
          GENERATE: WIDE[GENERATE]}  # fmt: skip
GOOGLE = {"x-goog-api-key": "good"}


def wide_site(entries=frozenset(WIDE), **options):
    """Return a gateway with models of all families, and one that every family offers."""
    names = {name for served in WIDE.values() for name in served}
    snapshot = Snapshot(
        version=1,
        groups={"gold": Group("gold", 10**6, None, entries, False)},
        models={n: Model(n, 1000, 500, False, CREATED_MS, ((0, PRICES),)) for n in names},
        channels=tuple(channel(family, family, models) for family, models in WIDE.items()),
    )
    return serving(relay=SimpleNamespace(keys=Keys(), snapshot=snapshot), **options)


def shown(answer):
    """Return (shape, names) of a list."""
    assert (answer.status, answer.headers["content-type"]) == (200, "application/json"), answer.body
    check_ids(answer)
    said = answer.json
    if "models" in said:
        assert set(said) <= {"models", "nextPageToken"}
        names = [model["name"] for model in said["models"]]
        assert all(name.startswith("models/") for name in names)
        return GENERATE, [name.removeprefix("models/") for name in names]
    shape = MESSAGES if "has_more" in said else "chat"
    assert shape == MESSAGES or set(said) == {"object", "data"}
    return shape, [model["id"] for model in said["data"]]


# Codex 0.169 rejects a list in which a model lacks one of these.
NEEDED_BY_CODEX = {
    *("slug", "display_name", "supported_reasoning_levels", "shell_type", "visibility"),
    *("supported_in_api", "priority", "base_instructions", "support_verbosity"),
    *("truncation_policy", "experimental_supported_tools"),
}
BY_CALLER = [
    ("/v1/models", bearer(), "chat"),
    ("/v1/models?x=1&limit=1&pageSize=1", bearer(), "chat"),
    ("/v1/models", bearer() | VERSION, MESSAGES),
    ("/v1/models", bearer() | {"compat-version": "2026-10-21"}, MESSAGES),
    ("/v1/models", {"X-Api-Key": "good"}, MESSAGES),
    ("/v1/models", bearer() | {"X-Api-Key": "other"}, MESSAGES),
    ("/v1/models", GOOGLE, GENERATE),
    ("/v1/models", GOOGLE | VERSION, GENERATE),
    ("/v1/models", GOOGLE | bearer("unknown"), GENERATE),
    ("/v1/models?key=good", {}, GENERATE),
    ("/v1/models?key=good", VERSION, GENERATE),
    ("/v1/models?x=%26&key=%67ood", {}, GENERATE),
    ("/v1beta/models", GOOGLE, GENERATE),
    ("/v1beta/models", bearer(), GENERATE),
    ("/v1beta/models", bearer() | VERSION, GENERATE),
    ("/v1beta/models?key=good", {}, GENERATE),
    ("/v1beta/models?key=good", bearer("unknown"), GENERATE),
]


@pytest.mark.parametrize(("path", "headers", "shape"), BY_CALLER)
async def test_a_list_has_the_shape_of_its_caller(wide, path, headers, shape):
    answer = await wide.ask("GET", path, headers)
    first = sorted(set(SHAPES[shape]))[: {"chat": 1000, MESSAGES: 20, GENERATE: 50}[shape]]
    assert shown(answer) == (shape, first)
    head = await wide.ask("HEAD", path, headers)
    assert (head.status, head.body) == (200, b"")
    assert head.headers["content-length"] == str(len(answer.body))


@pytest.mark.parametrize(("path", "headers", "status"), [
    ("/v1/models?key=unknown", GOOGLE | bearer(), 200),
    ("/v1/models", {"x-goog-api-key": "unknown"}, 401),
    ("/v1/models", {"x-goog-api-key": "unknown"} | bearer(), 401),
    ("/v1/models?key=unknown", bearer(), 401),
    ("/v1/models?key=", bearer(), 401),
    ("/v1beta/models", {"X-Api-Key": "good"}, 401),
    ("/v1beta/models", {}, 401),
])  # fmt: skip
async def test_the_first_credential_of_the_family_decides_alone(wide, path, headers, status):
    answer = await wide.ask("GET", path, headers)
    assert answer.status == status and b"unknown" not in answer.body
    assert status == 200 or answer.json["error"]["status"] == "UNAUTHENTICATED"


@pytest.mark.parametrize(
    ("version", "most"), [("0.169.0", "max"), ("0.143.9", "xhigh"), ("", "xhigh")]
)
async def test_the_list_for_codex_has_what_its_catalog_has(version, most):
    options = {"low": {"efforts": ["off", "low"], "images": False}, "none": {"thinking": "none"}}
    groups = frozenset({"gold"})
    channels = [
        channel_of(
            name,
            vendor="openai",
            family=RESPONSES,
            groups=groups,
            models={name: "gpt-6-sol"},
            options=options.get(name, {}),
        )
        for name in ("sol", "low", "none")
    ]
    names = [*options, "sol"]
    relay = SimpleNamespace(keys=Keys(), snapshot=Snapshot(
        version=1,
        groups={"gold": Group("gold", 10**6, None, frozenset({RESPONSES}), False)},
        models={n: Model(n, 1000, 500, False, CREATED_MS, ((0, PRICES),)) for n in names},
        channels=tuple(channels),
    ))  # fmt: skip
    async with serving(relay=relay) as served:
        path = f"/v1/models?client_version={version}"
        answer = await served.ask("GET", path, bearer())
        models = {model["slug"]: model for model in answer.json["models"]}
        assert list(models) == sorted(names) and set(answer.json) == {"models"}
        efforts = {
            name: [level["effort"] for level in model["supported_reasoning_levels"]]
            for name, model in models.items()
        }
        assert efforts["sol"][0] == "low" and efforts["sol"][-1] == most
        assert (efforts["low"], efforts["none"]) == (["low"], [])
        assert models["sol"]["context_window"] == 1000
        assert models["low"]["input_modalities"] == ["text"]
        assert models["sol"].keys() >= NEEDED_BY_CODEX
        assert "AGENTS.md" in models["sol"]["base_instructions"]
        other = await served.ask("GET", path, bearer() | VERSION)
        assert "has_more" in other.json  # a field of the messages family
        one = await served.ask("GET", path.replace("?", "/sol?"), bearer())
        assert one.json["id"] == "sol"


@pytest.mark.parametrize("entry", list(WIDE))
async def test_a_list_has_what_the_entries_of_the_group_allow(entry):
    async with wide_site(frozenset({entry})) as served:
        lists = {"chat": bearer(), MESSAGES: bearer() | VERSION, GENERATE: GOOGLE}
        for shape, headers in lists.items():
            query = "?limit=1000&pageSize=1000"
            _, names = shown(await served.ask("GET", "/v1/models" + query, headers))
            mine = entry == shape or (shape == "chat" and entry in (CHAT, RESPONSES))
            assert names == (sorted(WIDE[entry]) if mine else [])


@pytest.mark.parametrize(("path", "headers", "listed"), [
    ("/v1/models?limit=2&after_id=message", bearer() | VERSION, ["vendor/message:8b"]),
    ("/v1/models?limit=2&before_id=vendor%2Fmessage:8b", bearer() | VERSION, ["m29", "message"]),
    ("/v1/models?pageSize=2&pageToken=g59", GOOGLE, ["gem", "tuned:generateContent"]),
    ("/v1beta/models?pageSize=2&pageToken=vendor%2Fqwen3:8b", GOOGLE, []),
])  # fmt: skip
async def test_pages(wide, path, headers, listed):
    assert shown(await wide.ask("GET", path, headers))[1] == listed


@pytest.mark.parametrize(("path", "headers", "kind"), [
    ("/v1/models?limit=0", bearer() | VERSION, "invalid_request_error"),
    ("/v1/models?limit=", bearer() | VERSION, "invalid_request_error"),
    ("/v1beta/models?pageSize=-1", GOOGLE, "INVALID_ARGUMENT"),
    ("/v1beta/models?pageToken=gone", GOOGLE, "INVALID_ARGUMENT"),
])  # fmt: skip
async def test_pages_that_cannot_be_meant(wide, path, headers, kind):
    answer = await wide.ask("GET", path, headers)
    error = answer.json["error"]
    assert (answer.status, error.get("type", error.get("status"))) == (400, kind)
    assert path.partition("?")[2].partition("=")[0] in error["message"]


ONE = [
    *(("/v1/models/", bearer(), "chat", name) for name in sorted(set(SHAPES["chat"]))),
    *(("/v1/models/", bearer() | VERSION, MESSAGES, name) for name in WIDE[MESSAGES][:4]),
    *((prefix, GOOGLE, GENERATE, name) for name in WIDE[GENERATE][:3]
      for prefix in ("/v1/models/", "/v1beta/models/", "/v1beta/models/models/")),
    ("/v1beta/models/", bearer() | VERSION, GENERATE, "vendor/qwen3:8b"),
]  # fmt: skip


@pytest.mark.parametrize(("prefix", "headers", "shape", "name"), ONE)
async def test_one_model_in_the_shape_of_its_caller(wide, prefix, headers, shape, name):
    escaped = name.replace("/", "%2F").replace(":", "%3A")
    for spelling in (name, escaped, name.replace("/", "%2f"), f"{name}?x=1"):
        answer = await wide.ask("GET", prefix + spelling, headers)
        assert answer.status == 200, answer.body
        model = answer.json
        if shape == GENERATE:
            assert model["name"] == f"models/{name}" and model["inputTokenLimit"] == 1000
            assert "generateContent" in model["supportedGenerationMethods"]
        elif shape == MESSAGES:
            assert (model["type"], model["id"], model["max_tokens"]) == ("model", name, 500)
            assert model["created_at"] == "2023-11-14T22:13:20Z"
        else:
            assert (model["object"], model["id"]) == ("model", name)
            assert model["created"] == CREATED_MS // 1000
        head = await wide.ask("HEAD", prefix + spelling, headers)
        assert head.headers["content-length"] == str(len(answer.body))


@pytest.mark.parametrize(("path", "headers", "kind"), [
    ("/v1/models/message", bearer(), "invalid_request_error"),
    ("/v1/models/none", bearer(), "invalid_request_error"),
    ("/v1/models/chatty", bearer() | VERSION, "not_found_error"),
    ("/v1/models/org/chatty", bearer() | VERSION, "not_found_error"),
    ("/v1/models/chatty", GOOGLE, "NOT_FOUND"),
    ("/v1beta/models/chatty", bearer(), "NOT_FOUND"),
    ("/v1beta/models/chatty", bearer() | VERSION, "NOT_FOUND"),
    ("/v1beta/models/vendor/qwen3", GOOGLE, "NOT_FOUND"),
    ("/v1beta/models/models/models/gem", GOOGLE, "NOT_FOUND"),
    ("/v1beta/models/..%2F..%2Fv1%2Fmodels", GOOGLE, "NOT_FOUND"),
])  # fmt: skip
async def test_a_model_of_another_family_is_unknown_in_the_callers_shape(wide, path, headers, kind):
    answer = await wide.ask("GET", path, headers)
    error = answer.json["error"]
    assert (answer.status, error.get("type", error.get("status"))) == (404, kind)
    if kind == "not_found_error":
        name = path.removeprefix("/v1/models/")
        assert error["message"].startswith(f"model: {name} is not available")
    assert answer.headers["x-should-retry"] == "false"
    check_ids(answer)
    assert (await wide.ask("HEAD", path, headers)).status == 404


@pytest.mark.parametrize("path", ["/v1/models", "/v1beta/models", "/v1/models/everywhere", "/no"])
async def test_many_fields_in_the_query(wide, path):
    """More fields than any client sends: they have no effect."""
    answer = await wide.ask("GET", f"{path}?{'x=1&' * 150}", bearer())
    assert answer.status == (404 if path == "/no" else 200)


@pytest.mark.parametrize(("headers", "status", "code"), [
    ({}, 401, "missing_api_key"),
    ({"Authorization": "good"}, 401, "malformed_authorization"),
    (bearer("unknown"), 401, "invalid_api_key"),
    (bearer("disabled"), 401, "api_key_disabled"),
    (bearer("expired"), 401, "api_key_expired"),
    (bearer("elsewhere"), 403, "ip_not_allowed"),
])  # fmt: skip
@pytest.mark.parametrize("looked_up", [False, True])
async def test_keys_that_may_not(headers, status, code, looked_up):
    async with site(Keys(stored=KEYS) if looked_up else None) as served:
        for path in ("/v1/models", "/v1/models/both", "/v1/models/none"):
            answer = await served.ask("GET", path, headers)
            assert (answer.status, answer.json["error"]["code"]) == (status, code)
            check_ids(answer)


async def test_a_key_that_must_be_looked_up():
    async with site(Keys(stored=KEYS)) as served:
        assert names(await served.ask("GET", "/v1/models", bearer())) == ["both", "org/chatty"]


async def test_a_key_that_cannot_be_looked_up_now_is_not_called_wrong():
    async with site(Keys(away=True)) as served:
        answer = await served.ask("GET", "/v1/models", bearer())
        assert (answer.status, answer.headers["retry-after"]) == (503, "1")
        assert answer.json["error"]["code"] == "unavailable"


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
async def test_other_methods(served, method):
    for headers in ({}, bearer()):
        answer = await served.ask(method, "/v1/models", headers, b"{}")
        assert (answer.status, answer.headers["allow"]) == (405, "GET, HEAD")


async def test_what_a_caller_says_of_itself_is_bounded():
    """The arrival of a call: an id only in visible ASCII, and an agent of bounded length."""
    seen = []
    handler = acting(lambda one, body: (seen.append(one.arrival()), one.respond(b"{}"))[1])
    async with serving({"/acted": handler}) as served:
        for sent in ("abc-1", "x" * 128, "x" * 129, "a b", "a\tb", "café", ""):
            headers = {"X-Client-Request-Id": sent, "User-Agent": "agent/1 " * 100}
            answer = await served.ask("GET", "/acted", headers)
            assert seen[-1].call_id == answer.call_id
            assert seen[-1].client_ip == "127.0.0.1"
            assert len(seen[-1].user_agent) == 256
        await served.ask("GET", "/acted")
        assert seen[-1].user_agent is None
        ids = [arrival.client_request_id for arrival in seen]
        assert ids == ["abc-1", "x" * 128, None, None, None, None, None, None]
