"""The world of the tests with official SDKs: one gateway in front of one scripted vendor.

Model names mean the same in all families: each has a channel of every family. `tea` has another
name upstream, so that every answer shows whether the public name is restored. A test that makes
its channel fail uses a model of its own (`World.frail`), so that the gateway's memory of failing
channels does not affect other tests. The key `solo` has one channel of each family: the only kind
of group in which stored responses made elsewhere can be found. The key `abroad` has only channels
of chat completions.
"""

import contextlib
import copy
import http.client
import itertools
import json
import ssl
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2

from tests.support.gateway import HOST, Gateway
from tests.support.ports import free_port
from tests.support.upstream import ScriptedUpstream

TIMEOUT_S = 20
# No connection uses TLS; otherwise each client would load the system's certificates.
TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
PRICE = {"input": "2.00", "output": "8.00", "cache_read": "0.50", "cache_write": "2.50"}
SETTINGS = {
    "server.max_body_bytes": 1 << 20,
    "server.body_timeout_s": 1,
    "upstream.first_byte_timeout_s": 4,
    "upstream.idle_timeout_s": 3,
    "upstream.heartbeat_s": 1,
}
# For a separate node: on others a stream might start before a busy machine has read a refusal.
HASTY = {"upstream.commit_after_s": 1}
ALIAS = "tea-upstream"  # of the model tea
# A model that signs its function calls, at the vendor of such models.
SIGNING_MODEL = "gemini-3-tea"
OPEN_MODELS = ("tea", "acme/tea-1", SIGNING_MODEL)
CLOSED_MODELS = ("off", "idle", "elsewhere")
FRAIL_MODELS = 64
FRAIL = [f"frail-{number}" for number in range(FRAIL_MODELS)]
MODELS_OF_ALICE = sorted([*OPEN_MODELS, "closed", "closed-too", "bad-key", *FRAIL])
# family: the vendor of its channels
FAMILIES = {
    "chat_completions": "openai",
    "responses": "openai",
    "messages": "anthropic",
    "generate_content": "gemini",
}
# entry: the key of a group that lacks it
LACKS = {
    "chat_completions": "no-chat",
    "responses": "no-responses",
    "messages": "no-messages",
    "generate_content": "no-generate",
}
WIRE = Path(__file__).parents[1] / "wire"
LONG_AGO = "2020-01-01T00:00:00Z"


def _channels(family: str, upstream_url: str) -> list[dict[str, Any]]:
    def channel(name: str, models: dict[str, str], **fields: Any) -> dict[str, Any]:
        return {
            "name": f"{name}-{family}",
            "vendor": FAMILIES[family],
            "family": family,
            "base_url": upstream_url,
            "keys": ["sk-of-the-operator"],
            "groups": ["default"],
            "models": models,
            **fields,
        }

    abroad = [channel("abroad", {"tea": ALIAS}, groups=["abroad"])]
    closed = f"http://127.0.0.1:{free_port()}"
    return [
        channel(
            "main",
            {**{name: name for name in (*OPEN_MODELS, "off")}, "tea": ALIAS},
            groups=["default", "plain"],
        ),
        channel("solo", {"tea": ALIAS}, groups=["solo"]),
        *(abroad if family == "chat_completions" else ()),
        channel("idle", {"idle": "idle"}, enabled=False),
        channel("elsewhere", {"elsewhere": "elsewhere"}, groups=["others"]),
        channel("closed", {"closed": "up", "closed-too": "up"}, base_url=closed),
        channel("bad-key", {"bad-key": "bad-key"}, keys=["sk-bad-0123456789"]),
        *(channel(name, {name: name}) for name in FRAIL),
    ]


def _document(upstream_url: str) -> dict[str, Any]:
    names = [*OPEN_MODELS, *CLOSED_MODELS, *FRAIL, "closed", "closed-too", "bad-key"]
    keys = [
        {"name": "main"},
        {"name": "disabled"},
        {"name": "revoked"},
        {"name": "expired", "expires_at": LONG_AGO},
        {"name": "far", "networks": ["203.0.113.0/24"]},
        {"name": "solo", "group": "solo"},
        {"name": "abroad", "group": "abroad"},
        {"name": "plain", "group": "plain"},
        *({"name": name, "group": name} for name in LACKS.values()),
        {"name": "poor", "user": "poor"},
        {"name": "subscriber", "user": "subscriber"},
        {"name": "limited", "limit": "0.000000001"},
        {"name": "busy", "concurrency": 1},
        {"name": "ended", "user": "ended"},
    ]
    return {
        "model": [{"name": n, "price": PRICE, "enabled": n != "off"} for n in names],
        "group": [
            # errors come from the family's own vendor, not from others that take over
            {"name": "default", "translate": False},
            {"name": "others"},
            {"name": "solo"},
            {"name": "abroad"},
            {"name": "plain", "features": []},
            *(
                {"name": name, "entries": [family for family in FAMILIES if family != lacks]}
                for lacks, name in LACKS.items()
            ),
        ],
        "channel": [entry for family in FAMILIES for entry in _channels(family, upstream_url)],
        "user": [
            {"name": "alice", "balance": "1000.00"},
            {"name": "poor", "balance": "0"},
            {"name": "subscriber", "balance": "5", "order": "plan_only"},
            {"name": "ended", "balance": "5", "enabled": False},
        ],
        "plan": [{"name": "tiny", "quota": "0.000000001", "window": "month"}],
        "subscription": [{"user": "subscriber", "plan": "tiny"}],
        "key": [{"user": "alice", "group": "default", **key} for key in keys],
    }


class World:
    """A running gateway, its vendor, and the secrets of its keys by their names."""

    def __init__(self, folder: Path) -> None:
        self.upstream = ScriptedUpstream()
        self.gateway = Gateway(folder, SETTINGS)
        made = self.gateway.apply(_document(self.upstream.url))["keys"]
        self.keys = {key["name"]: key["secret"] for key in made}
        for name, verb in (("disabled", "disable"), ("revoked", "revoke")):
            self.gateway.run("key", verb, f"alice/{name}")
        self.gateway.start()
        self.gateway.follow()
        self.base_url = f"http://127.0.0.1:{self.gateway.port}"
        self._frail = {family: itertools.count() for family in FAMILIES}
        self._running = self._busy_stream()

    def frail(self, family: str) -> str:
        """Return a model whose channel of this family no other test uses."""
        number = next(self._frail[family])
        assert number < FRAIL_MODELS
        return FRAIL[number]

    @contextlib.contextmanager
    def hasty(self) -> Iterator["World"]:
        """Yield the same world with a node that starts streams early, whatever the vendor does."""
        node = self.gateway.sibling("hasty", HASTY)
        with contextlib.closing(node):
            node.start()
            made = copy.copy(self)
            made.base_url = f"http://127.0.0.1:{node.port}"
            yield made

    def _busy_stream(self) -> http.client.HTTPConnection:
        """Open a stream that occupies the only slot of the key busy as long as the world exists."""
        connection = http.client.HTTPConnection(HOST, self.gateway.port, timeout=TIMEOUT_S)
        words = [{"role": "user", "content": "[[demo ms=1000 chunks=4000]]"}]
        body = json.dumps({"model": "tea", "messages": words, "stream": True})
        headers = {
            "Authorization": f"Bearer {self.keys['busy']}",
            "Content-Type": "application/json",
        }
        connection.request("POST", "/v1/chat/completions", body, headers)
        assert connection.getresponse().status == 200
        return connection

    def close(self) -> None:
        self._running.close()
        self.gateway.close()
        self.upstream.close()

    def asked(self, word: str) -> dict[str, Any]:
        """Return the one request that reached the vendor with `word` in its body."""
        found = [entry for entry in self.upstream.log() if word in entry["body"]]
        assert len(found) == 1, f"{len(found)} requests with {word}"
        return found[0]

    def left(self, word: str, timeout_s: float = 5) -> int:
        """Return when the vendor noticed that the caller with `word` in its body disconnected, in
        ms since 1970."""
        deadline = time.monotonic() + timeout_s
        while (at_ms := self.asked(word)["gone_at_ms"]) is None:
            assert time.monotonic() < deadline, "the vendor still has the call"
            time.sleep(0.02)
        return int(at_ms)

    def records(self) -> dict[str, list[dict[str, Any]]]:
        """Return all records with a client's request id, by that id."""
        found: dict[str, list[dict[str, Any]]] = {}
        for record in self.gateway.usage():
            if record["client_request_id"]:
                found.setdefault(record["client_request_id"], []).append(record)
        return found


class Wire(httpx2.BaseTransport):
    """A transport that records the answers to an SDK, and shortens its waits between tries.

    `rewrite` changes each request, for what an SDK cannot be made to send.
    """

    def __init__(self, rewrite: Callable[[httpx2.Request], httpx2.Request] | None = None) -> None:
        self._inner = httpx2.HTTPTransport(verify=TLS)
        self._rewrite = rewrite
        self.answers: list[tuple[int, dict[str, str]]] = []
        self.head_at = 0.0  # of the last answer, on the monotonic clock

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        if self._rewrite is not None:
            request = self._rewrite(request)
        answer = self._inner.handle_request(request)
        self.head_at = time.monotonic()
        self.answers.append((answer.status_code, dict(answer.headers.items())))
        answer.headers["retry-after-ms"] = "1"
        return answer

    def close(self) -> None:
        self._inner.close()


def counts_of(record: dict[str, Any]) -> dict[str, int]:
    """Return the token counts of a record that are not 0."""
    return {
        name.removesuffix("_tokens"): value
        for name, value in record.items()
        if name.endswith("_tokens") and value
    }


def sample(family: str, name: str) -> Any:
    """Return a sample answer as the vendor sends it."""
    return json.loads((WIRE / family / f"{name}.json").read_text())


def world(folder: Path) -> Iterator[World]:
    """Yield a world that is closed at the end; for fixtures."""
    made = World(folder)
    try:
        yield made
    finally:
        made.close()
