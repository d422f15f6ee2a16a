"""Lists of models: what a key may call, in the caller's shape."""

import asyncio
from ipaddress import ip_network
from types import SimpleNamespace

import pytest

from handlers.relay.admit import client_address
from store.catalog import Channel, Group, Model, Snapshot
from store.errors import StoreUnavailable
from store.key_cache import MISS
from store.keys import KeyEntry
from store.pricing import Prices
from tests.handlers.dialects import check_ids
from tests.handlers.test_connection import VERSION
from tests.handlers.test_server import acting, serving

PRICES = Prices(1, 1, 1, 1, 1, 1, 0)
CHAT, MESSAGES = "chat_completions", "messages"
CREATED_MS = 1_700_000_000_123


def key(**changes):
    fields = {
        "id": "k", "name": "laptop", "user_id": "u", "user": "alice", "group": "all",
        "disabled": False, "revoked": False, "expires_ms": None, "models": None, "networks": (),
        "spend_order": "plan_first", "valid_until_ms": None,
    }  # fmt: skip
    return KeyEntry(**{**fields, **changes})


KEYS = {
    "good": key(),
    "narrow": key(models=frozenset({"both"})),
    "disabled": key(disabled=True),
    "expired": key(expires_ms=1),
    "elsewhere": key(networks=(ip_network("203.0.113.0/24"),)),
    "messenger": key(group="messengers"),
}


class Keys:
    """`peek` knows the secrets of KEYS; those of `stored` take a look-up."""

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
    return Channel(
        id=name, name=name, vendor="demo", family=family, base_url="http://u.test", keys=("k",),
        groups=frozenset({"all", "messengers"}), models=dict.fromkeys(models, "alias"),
        priority=0, weight=1, enabled=True,
    )  # fmt: skip


def snapshot():
    def model(name, context=None):
        return Model(name, context, None, False, CREATED_MS, ((0, PRICES),))

    models = [model("both", 1000), model("org/chatty"), model("message"), model("nobodys")]
    everything = frozenset({CHAT, MESSAGES})
    return Snapshot(
        version=1,
        groups={
            "all": Group("all", 10**6, None, everything, False),
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


# ---- lists ---------------------------------------------------------------------------------------


async def test_the_list_of_the_chat_family():
    async with site() as served:
        answer = await served.ask("GET", "/v1/models", bearer())
        assert names(answer) == ["both", "org/chatty"]
        assert answer.json["object"] == "list"
        first = answer.json["data"][0]
        assert (first["object"], first["created"]) == ("model", CREATED_MS // 1000)
        assert b"alias" not in answer.body
        check_ids(answer)


@pytest.mark.parametrize("headers", [bearer() | VERSION, {"X-Api-Key": "good"}])
async def test_the_list_of_the_messages_family(headers):
    async with site() as served:
        answer = await served.ask("GET", "/v1/models", headers)
        assert names(answer) == ["both", "message"]
        assert answer.json["data"][0]["max_input_tokens"] == 1000
        assert answer.json["has_more"] is False


async def test_pages_of_the_messages_family():
    async with site() as served:
        first = await served.ask("GET", "/v1/models?limit=1", bearer() | VERSION)
        assert names(first) == ["both"] and first.json["has_more"]
        second = await served.ask("GET", "/v1/models?limit=1&after_id=both", bearer() | VERSION)
        assert names(second) == ["message"] and not second.json["has_more"]
        for limit in ("0", "x", ""):
            answer = await served.ask("GET", f"/v1/models?limit={limit}", bearer() | VERSION)
            assert (answer.status, answer.json["error"]["type"]) == (400, "invalid_request_error")


async def test_a_key_that_is_narrowed():
    async with site() as served:
        assert names(await served.ask("GET", "/v1/models", bearer("narrow"))) == ["both"]


async def test_a_group_without_the_family_has_an_empty_list():
    async with site() as served:
        assert names(await served.ask("GET", "/v1/models", bearer("messenger"))) == []
        messages = await served.ask("GET", "/v1/models", bearer("messenger") | VERSION)
        assert names(messages) == ["both", "message"]


async def test_head():
    async with site() as served:
        peer = await served.peer()
        whole = await peer.ask("GET", "/v1/models", bearer())
        head = await peer.ask("HEAD", "/v1/models", bearer())
        assert head.headers["content-length"] == whole.headers["content-length"]
        assert (await peer.ask("HEAD", "/v1/models/none", bearer())).status == 404


# ---- one model -----------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["org/chatty", "org%2Fchatty", "org%2fchatty?x=1"])
async def test_one_model(path):
    async with site() as served:
        answer = await served.ask("GET", f"/v1/models/{path}", bearer())
        assert (answer.status, answer.json["id"]) == (200, "org/chatty")


@pytest.mark.parametrize("name", ["none", "nobodys", "alias", "message", "BOTH", "%ff", "both%00"])
async def test_a_model_that_this_key_cannot_call(name):
    async with site() as served:
        answer = await served.ask("GET", f"/v1/models/{name}", bearer())
        assert (answer.status, answer.json["error"]["code"]) == (404, "model_not_found")
        messages = await served.ask("GET", "/v1/models/org/chatty", bearer() | VERSION)
        assert messages.status == 404
        assert messages.json["error"]["message"].startswith("model: org/chatty is not available")


# ---- keys ----------------------------------------------------------------------------------------

REFUSED = [
    ({}, "missing_api_key"),
    ({"Authorization": "good"}, "malformed_authorization"),
    (bearer("unknown"), "invalid_api_key"),
    (bearer("disabled"), "api_key_disabled"),
    (bearer("expired"), "api_key_expired"),
    (bearer("elsewhere"), "ip_not_allowed"),
]


@pytest.mark.parametrize(("headers", "code"), REFUSED)
@pytest.mark.parametrize("looked_up", [False, True])
async def test_keys_that_may_not(headers, code, looked_up):
    async with site(Keys(stored=KEYS) if looked_up else None) as served:
        for path in ("/v1/models", "/v1/models/both", "/v1/models/none"):
            answer = await served.ask("GET", path, headers)
            assert answer.status == (403 if code == "ip_not_allowed" else 401)
            assert answer.json["error"]["code"] == code
            check_ids(answer)


async def test_a_key_that_must_be_looked_up():
    async with site(Keys(stored=KEYS)) as served:
        assert names(await served.ask("GET", "/v1/models", bearer())) == ["both", "org/chatty"]


async def test_a_key_that_cannot_be_looked_up_now_is_not_called_wrong():
    async with site(Keys(away=True)) as served:
        answer = await served.ask("GET", "/v1/models", bearer())
        assert (answer.status, answer.headers["retry-after"]) == (503, "1")
        assert answer.json["error"]["code"] == "unavailable"


@pytest.mark.parametrize("forwarded", [None, "203.0.113.7", "203.0.113.7, 127.0.0.1"])
@pytest.mark.parametrize("trusted", [[], [ip_network("127.0.0.0/8")]])
async def test_the_address_behind_a_trusted_proxy_counts(forwarded, trusted):
    expected = client_address("127.0.0.1", forwarded, trusted) == "203.0.113.7"
    assert expected is bool(trusted and forwarded)
    async with site(trusted=trusted) as served:
        headers = bearer("elsewhere") | ({"X-Forwarded-For": forwarded} if forwarded else {})
        answer = await served.ask("GET", "/v1/models", headers)
        assert answer.status == (200 if expected else 403)


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
async def test_other_methods(method):
    async with site() as served:
        for headers in ({}, bearer()):
            answer = await served.ask(method, "/v1/models", headers, b"{}")
            assert (answer.status, answer.headers["allow"]) == (405, "GET")


async def test_a_body_is_ignored():
    async with site() as served:
        answer = await served.ask("GET", "/v1/models", bearer(), bytes(100_000))
        assert names(answer) == ["both", "org/chatty"]


async def test_what_a_caller_says_of_itself_is_bounded():
    """The arrival of a call: only an id in visible ASCII, and not too much of an agent."""
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
