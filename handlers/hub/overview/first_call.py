"""Home before the first call: what is done, what to paste, what it will cost."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import peewee

from adapters.registry import LOSSES
from operations.client_settings import CURLS
from store.channels import offers
from store.channels.offers import Offer
from store.channels.status import DISABLED, DOWN
from store.hub.own_keys import OwnKey

KEY_VARIABLE = "SLUICE_API_KEY"
MODELS_SHOWN = 5
FAMILIES_FIRST = ("chat_completions", "responses", "messages", "generate_content")

_QUOTED = re.compile(r"'([^']*\$" + KEY_VARIABLE + r")'")


@dataclass(frozen=True, slots=True)
class FirstCall:
    """`key` None: none is made yet; `group` is its, else the one it would be made in, empty
    without any. `command` empty: the group offers no model."""

    key: OwnKey | None
    group: str
    models: Sequence[Offer]
    offered: int
    command: str


def load(
    db: peewee.Database, keys: Sequence[OwnKey], groups: Sequence[str], base_url: str, at_ms: int
) -> FirstCall:
    """What stands between a user and a first answer. `keys`: the newest first."""
    key = next((key for key in keys if key.enabled and key.revoked_ms is None), None)
    group = key.group if key else next(iter(groups), "")
    world = offers.load_world(db, at_ms, [group], LOSSES, figures_of=[])
    able = [
        one
        for one in (world.offers(group) if group in world.groups else [])
        if one.status.state not in (DISABLED, DOWN) and one.entries
    ]
    if key is not None and key.models and list(key.models) != ["*"]:
        able = [one for one in able if one.model in key.models]
    command = _command(able[0], base_url) if able else ""
    return FirstCall(key, group, able[:MODELS_SHOWN], len(able), command)


def _command(offer: Offer, base_url: str) -> str:
    """A curl that reads the key from the environment."""
    family = next(one for one in FAMILIES_FIRST if one in offer.entries)
    _, make = CURLS[family]
    text = make(base_url, f"${KEY_VARIABLE}", offer.model)
    # Between double quotes, so that the shell puts the key in.
    return _QUOTED.sub(r'"\1"', text)
