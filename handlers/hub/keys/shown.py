"""Keys as pages and the JSON API show them: their state, what their wrong paths mean. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from operations.base_url_check import Diagnosis, diagnose
from store.catalog.wrong_paths import Noticed
from store.hub.key_groups import KeyGroup
from store.hub.own_keys import OwnKey
from store.values.pricing import format_money, format_multiplier
from store.values.usage_record import rfc3339

AGENT_WORDS, AGENT_CHARS = 3, 60

REVOKED, DISABLED, EXPIRED, USED_UP = "revoked", "disabled", "expired", "used_up"
WRONG_BASE_URL, NEAR_LIMIT, REPLACED = "wrong_base_url", "near_limit", "replaced"
ACTIVE = "active"
STATES: Mapping[str, str] = {
    ACTIVE: "ok",
    NEAR_LIMIT: "warn",
    WRONG_BASE_URL: "warn",
    USED_UP: "warn",
    REPLACED: "live",
    EXPIRED: "idle",
    DISABLED: "idle",
    REVOKED: "idle",
}
"""The states of a key, each with its shape."""
WORKING = frozenset({ACTIVE, NEAR_LIMIT, WRONG_BASE_URL, REPLACED})
"""States in which a call with the key may succeed."""


def state_of(key: OwnKey, at_ms: int, base_url: str) -> str:
    """The state of a key: why it does not work, or what its owner should look at first."""
    if key.revoked_ms is not None:
        return REVOKED
    if not key.enabled:
        return DISABLED
    if key.expires_ms is not None and key.expires_ms <= at_ms:
        return EXPIRED
    if key.limit_nanos is not None and key.spent_nanos >= key.limit_nanos:
        return USED_UP
    if misdirected(key, base_url) is not None:
        return WRONG_BASE_URL
    if key.near_limit:
        return NEAR_LIMIT
    return ACTIVE if key.replaced_until_ms is None else REPLACED


def misdirected(key: OwnKey, base_url: str) -> tuple[Noticed, Diagnosis] | None:
    """The newest wrong path of a key that another base URL would cure."""
    for one in key.wrong:
        found = diagnose(one.path, base_url)
        if found.use is not None:
            return one, found
    return None


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which keys of a list; revoked ones only when they are asked for."""

    search: str = ""
    state: str = ""
    group: str = ""

    def takes(self, key: OwnKey, state: str) -> bool:
        """Whether a key of this state is one of them."""
        if self.state != state and (self.state or state == REVOKED):
            return False
        if self.group and key.group != self.group:
            return False
        text = self.search.casefold()
        return not text or any(
            text in word.casefold() for word in (key.name, key.last_four, *key.networks)
        )


def in_order(keys: Iterable[OwnKey], wanted: Wanted, at_ms: int, base_url: str) -> list[OwnKey]:
    """The keys that are wanted, in their order."""
    return [key for key in keys if wanted.takes(key, state_of(key, at_ms, base_url))]


def client_of(agent: str | None) -> str:
    """The client that a User-Agent names: `claude-cli 2.1.197`, `OpenAI Python 3.54.0`."""
    name, *more = (agent or "").replace("/", " ").split()[:AGENT_WORDS] or [""]
    for word in more:
        name += f" {word}"
        if word[:1].isdigit():
            return name[:AGENT_CHARS]
    return name.partition(" ")[0][:AGENT_CHARS]


def to_plain(key: OwnKey, at_ms: int, base_url: str) -> dict[str, Any]:
    """A key as JSON says it: the fields of its entry in the document, then what became of it."""
    last = key.last_use
    return {
        "id": key.id,
        "name": key.name,
        "prefix": key.prefix,
        "last_four": key.last_four,
        "group": key.group,
        "multiplier": format_multiplier(key.multiplier_ppm),
        "state": state_of(key, at_ms, base_url),
        "enabled": key.enabled,
        "models": list(key.models),
        "networks": list(key.networks),
        "limit": None if key.limit_nanos is None else format_money(key.limit_nanos),
        "limit_window": key.limit_window,
        "spent": format_money(key.spent_nanos),
        "spent_window": key.spent_window,
        "resets_at": _time(key.resets_ms),
        "rpm": key.rpm,
        "tpm": key.tpm,
        "concurrency": key.concurrency,
        "created_at": _time(key.created_ms),
        "expires_at": _time(key.expires_ms),
        "revoked_at": _time(key.revoked_ms),
        "replaced_until": _time(key.replaced_until_ms),
        "last_used": last
        and {
            "at": _time(last.at_ms),
            "address": last.address,
            "user_agent": last.agent,
        },
        "wrong_paths": [_wrong(one, base_url) for one in key.wrong],
    }


def group_to_plain(group: KeyGroup) -> dict[str, Any]:
    """A group for the form of a new key."""
    return {
        "name": group.name,
        "multiplier": format_multiplier(group.multiplier_ppm),
        "entries": list(group.entries),
        "models": list(group.models),
        "enabled": group.enabled,
        "rpm": group.rpm,
        "tpm": group.tpm,
        "concurrency": group.concurrency,
    }


def _wrong(one: Noticed, base_url: str) -> dict[str, Any]:
    found = diagnose(one.path, base_url)
    return {
        "method": one.method,
        "path": one.path,
        "calls": one.calls,
        "first_at": _time(one.first_ms),
        "last_at": _time(one.last_ms),
        "address": one.address,
        "user_agent": one.agent,
        "given": base_url + found.given if found.use is not None else None,
        "base_url": found.use,
    }


def _time(at_ms: int | None) -> str | None:
    return None if at_ms is None else rfc3339(at_ms)
