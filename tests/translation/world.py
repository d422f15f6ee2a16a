"""The gateway of the matrix: for each upstream family, models that only its channels serve.

`Cell` is one place of the matrix: a client's family, an upstream's family, plain or streamed.
"""

import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.sdk.world import PRICE, Wire
from tests.support.gateway import Gateway
from tests.support.upstream import ScriptedUpstream
from tests.translation.clients import chat, generate, messages, responses

CLIENTS = {module.FAMILY: module for module in (chat, responses, messages, generate)}
FAMILIES = tuple(CLIENTS)
# family: the vendor of its channels, and a model's name there; the one of generate_content signs
VENDORS = {
    "chat_completions": ("openai", "gpt-5.2"),  # newer ones cannot think when there are tools
    "responses": ("openai", "gpt-5.5"),
    "messages": ("anthropic", "claude-opus-4-6"),
    "generate_content": ("gemini", "gemini-3-pro"),
}
# Restricted models, by their names at the real vendors: (family, vendor).
OTHER_MODELS = {
    "gpt-4o": ("chat_completions", "openai"),
    "gpt-4": ("chat_completions", "openai"),
    "llama-3.3": ("chat_completions", "openai-compatible"),
    "gpt-4.1": ("responses", "openai"),
    "claude-sonnet-4-5": ("messages", "anthropic"),
    "claude-opus-4-1": ("messages", "anthropic"),
    "claude-3-5-haiku": ("messages", "anthropic"),
    "claude-opus-5": ("messages", "anthropic"),
    "gemini-2.5-flash": ("generate_content", "gemini"),
    "gemini-2.0-flash": ("generate_content", "gemini"),
}
# Each failure has a channel of its own, so that the gateway's memory of one affects no other test.
FAILURES = 32
SETTINGS = {"upstream.first_byte_timeout_s": 4, "upstream.idle_timeout_s": 3}


def _document(upstream_url: str) -> dict[str, Any]:
    models = {
        family: [family, *(f"{family}-fails-{number}" for number in range(FAILURES))]
        for family in FAMILIES
    }
    channels = [
        {
            "name": name,
            "vendor": VENDORS[family][0],
            "family": family,
            "base_url": upstream_url,
            "keys": ["sk-of-the-operator"],
            "groups": ["all"],
            "models": {name: VENDORS[family][1]},
        }
        for family, names in models.items()
        for name in names
    ]
    channels += [
        {
            **channels[0],
            "name": name,
            "vendor": vendor,
            "family": family,
            "models": {name: name},
        }
        for name, (family, vendor) in OTHER_MODELS.items()
    ]
    return {
        "model": [
            {"name": name, "price": PRICE, "max_output_tokens": 32_000}
            for names in (*models.values(), OTHER_MODELS)
            for name in names
        ],
        "group": [{"name": "all"}],
        "channel": channels,
        "user": [{"name": "alice", "balance": "1000.00"}],
        "key": [{"user": "alice", "name": "main", "group": "all"}],
    }


class World:
    """A running gateway with its vendor, and a client of each family."""

    def __init__(self, folder: Path) -> None:
        self.upstream = ScriptedUpstream()
        self.gateway = Gateway(folder, SETTINGS)
        key = self.gateway.apply(_document(self.upstream.url))["keys"][0]["secret"]
        self.gateway.start()
        self.gateway.follow()
        base_url = f"http://127.0.0.1:{self.gateway.port}"
        self.wires = {family: Wire() for family in FAMILIES}
        self.clients = {
            family: module.Client(base_url, key, self.wires[family])
            for family, module in CLIENTS.items()
        }
        self._failures = {family: itertools.count() for family in FAMILIES}

    def failing(self, family: str) -> str:
        """Return a model whose channel of this family no other test uses."""
        return f"{family}-fails-{next(self._failures[family])}"

    def close(self) -> None:
        self.gateway.close()
        self.upstream.close()
        for wire in self.wires.values():
            wire.close()


@dataclass(frozen=True)
class Cell:
    """One client's family with one upstream's."""

    world: World
    client: str
    upstream: str
    stream: bool
    other_model: str = ""

    @property
    def model(self) -> str:
        """Return the public name of the requested model."""
        return self.other_model or self.upstream

    def ask(self, want: Any) -> Any:
        """Make the request and return the answer; check that the call was recorded correctly."""
        seen = self.world.clients[self.client].ask(want, stream=self.stream)
        assert seen.model == want.model
        record = self.record(seen.request_id)
        assert (record["outcome"], record["channel"]) == ("ok", want.model)
        assert record["usage_source"] == "reported"
        return seen

    def record(self, call_id: str) -> dict[str, Any]:
        """Return the usage record of a call."""
        return self.world.gateway.record(call_id)

    def failed_record(self) -> dict[str, Any]:
        """Return the usage record of the last call of this client's family."""
        return self.record(self.world.wires[self.client].answers[-1][1]["x-request-id"])

    def sent(self, word: str) -> str:
        """Return the body of the last request that reached the vendor with this word in it."""
        found = [entry["body"] for entry in self.world.upstream.log() if word in entry["body"]]
        self.world.upstream.reset()  # a long log takes long to read
        assert found, f"no request with {word}"
        return str(found[-1])
