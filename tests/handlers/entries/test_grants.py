"""Grants: one call of the Hub as a key, and everything that is refused as one."""

import contextlib
import ipaddress
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace

import pytest

from handlers.entries.grants import Grants
from handlers.relay.limits.body_memory import BodyMemory
from handlers.relay.limits.cells import private_cells
from handlers.relay.limits.limits import Limits
from store.values import grants as of_grants
from store.values.errors import StoreUnavailable
from store.values.grants import GRANT_HEADER, GRANT_LIFE_MS, GrantMaker, request_digest
from store.values.ids import now_ms
from tests.handlers.entries.test_models import snapshot
from tests.handlers.relay.calls import KEY
from tests.support.served import serving

PATH, BODY = "/v1/chat/completions", b'{"model":"both","messages":[]}'
DIGEST = request_digest("POST", PATH, BODY)
OLD, NEW = "c2VjcmV0LW9sZA==", "c2VjcmV0LW5ldw=="
MAKER = GrantMaker([NEW, OLD], "run")
ADDRESS = "203.0.113.9"
USED, STALE = "grant refused: used before", "grant refused: over, or not of this gateway"
KEYS = {
    "key-id": replace(KEY, networks=(ipaddress.ip_network("203.0.113.0/24"),)),
    "disabled": replace(KEY, id="disabled", disabled=True),
}


class Relay:
    """A relay that answers every admitted call and records it."""

    def __init__(self):
        self.keys, self.snapshot = SimpleNamespace(peek=lambda secret: None), snapshot()
        self.limits, self.body_memory = Limits(private_cells()), BodyMemory(1 << 20)
        self.calls, self.ended = [], []

    async def run(self, call, body, downstream, body_hold):
        self.calls.append((call, body))
        downstream.send(200, (), b"{}")

    def end(self, call, ending, downstream):
        self.ended.append((call.head.key.id, ending.fault.code))
        downstream.send(401, (), b"{}")


def load(key_id):
    if key_id == "away":
        raise StoreUnavailable("away")
    return KEYS.get(key_id)


@pytest.fixture
def relay():
    return Relay()


@pytest.fixture
def threads():
    with ThreadPoolExecutor(1) as pool:
        yield pool


@contextlib.asynccontextmanager
async def site(relay, threads, networks=("127.0.0.0/8",), **options):
    """Yield a gateway that accepts grants from these networks."""
    nets = [ipaddress.ip_network(net) for net in networks]
    async with serving(relay=relay, **options) as served:
        served.site.grants = Grants(MAKER, nets, relay.limits, load, threads)
        yield served


def made(maker=MAKER, key="key-id", address=ADDRESS, digest=DIGEST, at_ms=None):
    at_ms = now_ms() if at_ms is None else at_ms
    return maker.make(key, "session", address, digest, now_ms=at_ms)


async def ask(served, grant, *, path=PATH, body=BODY, **headers):
    headers = {"Content-Type": "application/json", GRANT_HEADER: grant, **headers}
    return await served.ask("POST", path, headers, body)


async def status(served, grant, **options):
    return (await ask(served, grant, **options)).status


async def test_a_grant_is_a_call_of_its_key_from_its_client(relay, threads):
    async with site(relay, threads) as served:
        grant = made()
        assert await status(served, grant) == 200
        [(call, body)] = relay.calls
        assert (call.head.key.name, call.head.arrival.client_ip, body) == ("laptop", ADDRESS, BODY)
        assert await status(served, grant) == 401  # valid only once
        assert [line.partition(": from")[0] for line in served.errors.take()] == [USED]
        assert await status(served, made()) == 200
        old = GrantMaker([OLD], "run")  # from a process that does not know the newest secret yet
        assert await status(served, made(old)) == 200
        assert len(relay.calls) == 3


@pytest.mark.parametrize(
    "grant",
    [
        *("", ".", "a.b", "é.é", "x" * 3000, made() + "A", "A" + made()),
        made(at_ms=now_ms() - GRANT_LIFE_MS),
        made(at_ms=now_ms() + GRANT_LIFE_MS),
        made(GrantMaker([NEW], "another run")),
        made(GrantMaker(["another secret"], "run")),
    ],
)
async def test_what_is_no_grant_of_this_gateway_is_as_nothing(relay, threads, grant):
    async with site(relay, threads) as served:
        answer = await ask(served, grant.encode().decode("latin-1"))
        assert (answer.status, answer.json["error"]["code"]) == (401, "missing_api_key")
        [line] = served.errors.take()
        assert line.startswith(STALE) and (len(grant) < 9 or grant not in line)
    assert relay.calls == relay.ended == []


@pytest.mark.parametrize(
    ("networks", "trusted", "headers"),
    [
        (["10.0.0.0/8"], [], {}),
        # a proxy on this machine passes the client's address on
        (["127.0.0.0/8"], ["127.0.0.0/8"], {"X-Forwarded-For": ADDRESS}),
    ],
)
async def test_one_from_another_network_is_not_even_read(
    relay, threads, networks, trusted, headers
):
    trusted = [ipaddress.ip_network(net) for net in trusted]
    async with site(relay, threads, networks, trusted=trusted) as served:
        grant = made()
        assert await status(served, grant, **headers) == 401
        served.site.grants = replace(
            served.site.grants, networks=[ipaddress.ip_network("127.0.0.0/8")]
        )
        assert await status(served, grant) == 200  # the refusal has not used it up


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"body": BODY + b" "}, "invalid_api_key"),
        ({"path": "/v1/chat/completions?x=1"}, "invalid_api_key"),
    ],
)
async def test_one_of_another_request_is_used_up_and_refused(relay, threads, options, code):
    async with site(relay, threads) as served:
        grant = made()
        assert await status(served, grant, **options) == 401
        assert relay.ended == [("key-id", code)]
        assert await status(served, grant) == 401
        served.errors.take()
    assert relay.calls == []


@pytest.mark.parametrize(
    ("grant", "code"),
    [
        ({"address": "198.51.100.1"}, "ip_not_allowed"),
        ({"key": "disabled"}, "api_key_disabled"),
    ],
)
async def test_rules_of_the_key_hold(relay, threads, grant, code):
    async with site(relay, threads) as served:
        await ask(served, made(**grant))
        assert [code for _, code in relay.ended] == [code]


@pytest.mark.parametrize(("key", "expected"), [("gone", 401), ("away", 503)])
async def test_a_key_that_is_gone_or_cannot_be_read(relay, threads, key, expected):
    async with site(relay, threads) as served:
        assert await status(served, made(key=key)) == expected
    assert relay.calls == []


async def test_it_is_for_answers_of_models_and_beside_a_secret_it_is_nothing(relay, threads):
    async with site(relay, threads) as served:
        for path in ("/v1/messages/count_tokens", "/v1/embeddings"):
            digest = request_digest("POST", path, BODY)
            assert await status(served, made(digest=digest), path=path) == 401
        secret = {"Authorization": "Bearer sk-slc-of-somebody-else"}
        answer = await ask(served, made(), **secret)
        assert answer.json["error"]["code"] == "invalid_api_key"
        served.site.grants = None
        assert await status(served, made()) == 401
    assert relay.calls == []


def test_an_id_is_used_once_by_all_that_share_the_memory(monkeypatch):
    limits = Limits(private_cells())
    assert [limits.first_use("grant a") for _ in range(3)] == [True, False, False]
    assert limits.first_use("grant b")
    monkeypatch.setattr(limits._cells, "enter", lambda claims: SimpleNamespace(reservations=[]))
    assert not limits.first_use("grant c")  # the table is full


def test_a_maker_without_a_run_takes_none():
    assert GrantMaker([NEW], "").read(made(GrantMaker([NEW], "run")), now_ms=now_ms()) is None
    assert len(made(key="k" * 26, address="2001:db8::" + "f" * 29)) < of_grants.MAX_CHARS
