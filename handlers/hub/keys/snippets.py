"""What pages show of the set-up of clients: panels of snippets whose values are marked. Pure."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from operations.base_url_check import KINDS, Kind
from operations.client_settings import CLIENTS, FILE, Client, setups

Piece = tuple[str, str]
"""A class of the style sheet, "" for none, and a text."""


@dataclass(frozen=True, slots=True)
class Marked:
    """A snippet cut into pieces."""

    title: str
    pieces: Sequence[Piece]


@dataclass(frozen=True, slots=True)
class Panel:
    """A client with its snippets by system: (system, title of a file or "", snippets)."""

    client: Client
    kind: Kind
    systems: Sequence[tuple[str, str, Sequence[Marked]]]

    @property
    def ends(self) -> str:
        """What its base URL ends with, and what is said about it: a kind of client, or a link."""
        return self.client.ends or self.kind.name

    @property
    def wrong_path(self) -> str:
        """What it would ask for with the base URL of a whole endpoint."""
        return f"/v1/messages{self.kind.appends}"


@dataclass(frozen=True, slots=True)
class Values:
    """What snippets are made with; the secret may be shortened."""

    base_url: str
    secret: str
    model: str | None


def panels(values: Values) -> list[Panel]:
    """One for each client."""
    return [
        Panel(client, KINDS[client.kind], _systems(name, values))
        for name, client in CLIENTS.items()
    ]


def _systems(client: str, values: Values) -> list[tuple[str, str, Sequence[Marked]]]:
    found: list[tuple[str, str, Sequence[Marked]]] = []
    for setup in setups(client, values.base_url, values.secret, values.model):
        marked = [Marked(one.title, cut(one.text, values)) for one in setup.snippets]
        title = setup.snippets[0].title.rpartition("/")[2] if setup.system == FILE else ""
        found.append((setup.system, title, marked))
    return found


def cut(text: str, values: Values) -> list[Piece]:
    """A text as pieces: secrets and other values are marked."""
    classes = {values.secret: "secret-value", values.base_url + "/v1": "value"}
    classes |= {values.base_url: "value"}
    if values.model:
        classes[values.model] = "value"
    words = sorted(classes, key=len, reverse=True)
    parts = re.split("(" + "|".join(map(re.escape, words)) + ")", text)
    return [(classes.get(part, ""), part) for part in parts if part]
