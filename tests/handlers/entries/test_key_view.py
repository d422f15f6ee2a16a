"""A key's view of itself, in the gateway's form and in those of other gateways."""

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace

import pytest

from handlers.entries import key_view
from handlers.entries.key_view import PATHS, RPM, KeyViews
from handlers.relay.limits.cells import private_cells
from handlers.relay.limits.limits import Limits
from store.catalog.catalog import Group
from store.hub.key_view import KeyView
from store.money.subscriptions import ACTIVE, EXPIRED, Held, Payers, SpendLimit
from store.values.errors import NotFound, StoreUnavailable
from tests.handlers.entries.test_models import Keys, bearer, snapshot
from tests.handlers.relay.calls import KEY
from tests.support.dialects import check_ids
from tests.support.served import serving

UNIT = 10**9
DAY_MS = 86_400_000
LIMITED = replace(KEY, id="limited", rpm=60, tpm=1000, concurrency=3, user_rpm=10,
                  expires_ms=2**41, models=frozenset({"both"}))  # fmt: skip
SECRETS = {"good": KEY, "limited": LIMITED, "disabled": replace(KEY, disabled=True)}


def held(plan, state):
    return Held(plan, "month", 10 * UNIT, 4 * UNIT, 0, DAY_MS, DAY_MS, state)


VIEWS = {
    KEY.id: KeyView("sk-a…wxyz", 0, None, Payers("plan_first", []), -UNIT // 2, 5, UNIT // 4),
    "limited": KeyView(
        "sk-b…wxyz",
        1000,
        SpendLimit(20 * UNIT, "day", 5 * UNIT, DAY_MS),
        Payers(
            "plan_first",
            [held("old", EXPIRED), held("team", ACTIVE)],
            SpendLimit(8 * UNIT, "never", 9 * UNIT, None),
        ),
        3 * UNIT,
        UNIT // 10,
        UNIT,
    ),
}


def site(look=lambda key, user, at_ms: VIEWS[key], **options):
    """Return a gateway whose store has VIEWS."""
    catalog = snapshot()
    group = Group("gold", 10**6, None, catalog.groups["gold"].entries, False, rpm=1000)
    catalog = replace(catalog, groups={"gold": group})
    relay = SimpleNamespace(keys=Keys(SECRETS), snapshot=catalog, limits=Limits(private_cells()))
    return serving(relay=relay, key_views=KeyViews(look, ThreadPoolExecutor(2)), **options)


async def test_a_key_without_limits_of_its_own():
    async with site() as served:
        answer = await served.ask("GET", "/v1/usage", bearer())
        check_ids(answer)
        shown = answer.json
        assert shown["limits"][0].pop("resets_at") is not None
        assert shown == {
            "name": "laptop",
            "user": "alice",
            "group": "gold",
            "limits": [{"limit": "group_rpm", "allowed": 1000, "left": 1000}],
            "balance": "-0.5",
            "plans": [],
            "spent": {"today": "0.000000005", "month": "0.25"},
            "models": ["both", "message", "org/chatty"],
            "currency": "USD",
        }
        head = await served.ask("HEAD", "/v1/key", bearer())
        assert (head.status, head.body) == (200, b"")


async def test_limits_have_what_is_left_and_when_they_are_whole_again():
    async with site() as served:
        shown = (await served.ask("GET", "/v1/key", bearer("limited"))).json
        assert [[*limit.values()][:3] for limit in shown["limits"]] == [
            ["key_spend", "20", "15"],
            ["user_spend", "8", "0"],
            ["key_rpm", 60, 60],
            ["key_tpm", 1000, 1000],
            ["key_concurrency", 3, 3],
            ["user_rpm", 10, 10],
            ["group_rpm", 1000, 1000],
        ]
        resets = {limit["limit"]: limit["resets_at"] for limit in shown["limits"]}
        assert resets["key_spend"] == "1970-01-02T00:00:00.000Z"
        assert resets["user_spend"] is resets["key_concurrency"] is None
        assert [plan["plan"] for plan in shown["plans"]] == ["team"]
        assert shown["models"] == ["both"]


async def test_the_form_of_new_api():
    async with site() as served:
        for path in ("/api/usage/token", "/api/usage/token/"):
            answer = (await served.ask("GET", path, bearer("limited"))).json
            assert answer == {
                "code": True,
                "message": "ok",
                "data": {
                    "object": "token_usage",
                    "name": "laptop",
                    "total_granted": 2_500_000,
                    "total_used": 2_500_000,
                    "total_available": 0,
                    "unlimited_quota": False,
                    "model_limits": {"both": True},
                    "model_limits_enabled": True,
                    "expires_at": 2**41 // 1000,
                },
            }
        data = (await served.ask("GET", path, bearer())).json["data"]
        assert (data["total_used"], data["total_available"]) == (125_000, 0)
        assert (data["model_limits"], data["expires_at"]) == ({}, 0)


async def test_the_form_of_litellm():
    async with site() as served:
        answer = await served.ask("GET", "/key/info?key=sk-whatever", bearer("limited"))
        assert answer.json == {
            "key": "sk-b…wxyz",
            "info": {
                "key_name": "sk-b…wxyz",
                "key_alias": "laptop",
                "spend": 5.0,
                "max_budget": 20.0,
                "budget_duration": "1d",
                "budget_reset_at": "1970-01-02T00:00:00.000Z",
                "expires": "2039-09-07T15:47:35.552Z",
                "created_at": "1970-01-01T00:00:01.000Z",
                "models": ["both"],
                "user_id": "alice",
                "team_id": "gold",
                "rpm_limit": 60,
                "tpm_limit": 1000,
                "max_parallel_requests": 3,
                "blocked": False,
            },
        }
        info = (await served.ask("GET", "/key/info", bearer())).json["info"]
        assert (info["spend"], info["max_budget"], info["rpm_limit"]) == (0.25, None, None)


async def test_a_key_may_ask_so_often():
    async with site() as served:
        for path in (*PATHS, *["/v1/usage"] * (RPM - len(PATHS))):
            assert (await served.ask("GET", path, bearer())).status == 200
        answer = await served.ask("GET", "/v1/usage", bearer())
        assert (answer.status, answer.json["error"]["code"]) == (429, "rate_limit_exceeded")
        assert (await served.ask("GET", "/v1/usage", bearer("limited"))).status == 200


def away(key, user, at_ms):
    raise StoreUnavailable("the store is away")


def removed(key, user, at_ms):
    raise NotFound("no key")


def slow(key, user, at_ms):
    time.sleep(0.1)
    return VIEWS[key]


@pytest.mark.parametrize("look", [away, removed, slow])
async def test_a_store_that_does_not_answer(look, monkeypatch):
    monkeypatch.setattr(key_view, "READ_WAIT_S", 0.01)
    async with site(look) as served:
        for path in PATHS:
            answer = await served.ask("GET", path, bearer())
            assert (answer.status, answer.json["error"]["code"]) == (503, "unavailable")


async def test_only_so_many_wait_for_the_store(monkeypatch):
    monkeypatch.setattr(key_view, "READS_MAX", 0)
    async with site() as served:
        assert (await served.ask("GET", "/v1/usage", bearer())).status == 503


@pytest.mark.parametrize(
    ("method", "headers", "status"),
    [
        ("POST", bearer(), 405),
        ("GET", {}, 401),
        ("GET", bearer("unknown"), 401),
        ("GET", bearer("disabled"), 401),
    ],
)
async def test_who_may_not(method, headers, status):
    async with site() as served:
        for path in PATHS:
            assert (await served.ask(method, path, headers)).status == status
