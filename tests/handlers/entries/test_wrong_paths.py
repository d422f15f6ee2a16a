"""Unknown paths are recorded for the owner of a known key, and for nobody else."""

import asyncio
from dataclasses import replace

import pytest

from handlers.entries.wrong_paths import LOOKUPS, WrongPaths
from store.catalog.key_cache import MISS
from store.values.errors import StoreUnavailable
from tests.handlers.relay.calls import KEY
from tests.support.served import VERSION, until

KNOWN, COLD, REVOKED, UNKNOWN = (
    f"sk-{word}-0123456789" for word in ("known", "cold", "ended", "no")
)
DOUBLED = "/v1/messages/v1/messages"


class Keys:
    """A key cache with two keys, one of them not in memory, and one that was revoked."""

    away = False

    def __init__(self):
        revoked = replace(KEY, id="k3", revoked=True)
        self.known = {KNOWN: replace(KEY, id="k1"), REVOKED: revoked}
        self.go = asyncio.Event()
        self.asked = 0

    def peek(self, secret):
        return MISS if secret.startswith(COLD) else self.known.get(secret)

    async def get(self, secret):
        self.asked += 1
        await self.go.wait()
        if self.away:
            raise StoreUnavailable("away")
        return replace(KEY, id="k2")


class Noted(list):
    def note(self, key_id, seen):
        self.append((key_id, seen))


@pytest.fixture
def noted():
    return Noted()


@pytest.fixture
def keys():
    return Keys()


@pytest.fixture
def served(served, keys, noted):
    """Return a server that records wrong paths."""
    served.site.wrong_paths = WrongPaths(keys, noted, lambda: 7)
    return served


async def ask(served, path=DOUBLED, method="POST", **headers):
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    answer = await served.ask(method, path, named, b"{}")
    assert answer.status == 404
    return answer


async def test_what_is_noted(served, noted):
    await ask(served, x_api_key=KNOWN, user_agent="anthropic-python 2.11.0")
    [(key_id, seen)] = noted
    assert (key_id, seen.method, seen.path, seen.at_ms) == ("k1", "POST", DOUBLED, 7)
    assert (seen.address, seen.agent) == ("127.0.0.1", "anthropic-python 2.11.0")


@pytest.mark.parametrize(("path", "headers"), [
    ("/v1/messages/v1/messages", {"x-api-key": KNOWN}),
    ("/v1/messages/v1/messages", {"authorization": f"Bearer {KNOWN}"}),
    ("/v1/messages/v1/messages", {"x-goog-api-key": KNOWN}),
    ("/v1/v1/chat/completions", {"authorization": f"Bearer {KNOWN}"}),
    ("/v1/v1/chat/completions", {"x-api-key": KNOWN} | VERSION),
    (f"/v1beta/v1beta/models/m:generateContent?key={KNOWN}", {}),
    ("/v1/files", {"authorization": f"Bearer {KNOWN}"}),
])  # fmt: skip
async def test_wherever_the_key_stands(served, noted, path, headers):
    await ask(served, path, **headers)
    assert [(key_id, seen.path) for key_id, seen in noted] == [("k1", path.partition("?")[0])]


@pytest.mark.parametrize(
    "headers", [{}, {"authorization": "Bearer"}, {"x-api-key": UNKNOWN}, {"x-api-key": REVOKED}]
)
async def test_of_others_nothing_is_kept(served, noted, headers):
    await ask(served, **headers)
    assert noted == []


async def test_the_answer_does_not_wait_for_the_store(served, noted, keys):
    await ask(served, x_api_key=COLD)
    assert noted == [] and keys.asked == 1
    keys.go.set()
    await until(lambda: noted)
    assert noted[0][0] == "k2"


async def test_look_ups_are_bounded(served, noted, keys):
    peer = await served.peer()
    for number in range(2 * LOOKUPS):
        await peer.ask("POST", DOUBLED, {"x-api-key": f"{COLD}{number}"})
    assert keys.asked == LOOKUPS
    keys.away = True
    keys.go.set()
    await until(lambda: not served.site.wrong_paths._lookups)
    assert noted == []


async def test_a_secret_in_the_path_is_masked(served, noted):
    await ask(served, f"/v1/{KNOWN}/chat/sk-other-abcdefghijk/x", x_api_key=KNOWN)
    assert noted[0][1].path == "/v1/***/chat/***/x"


async def test_an_endpoint_notes_nothing(served, noted):
    assert (await served.ask("GET", "/livez", {"x-api-key": KNOWN})).status == 200
    assert noted == []
