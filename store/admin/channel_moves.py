"""Changes over HTTP that would send a channel's stored secrets to another place.

Whoever may change channels in the Hub or by its API may use upstream keys, not read them. A new
origin of `base_url`, another `proxy` or other trusted certificates show the keys to whoever
answers there, so they are given anew with it. Commands run where the keys can be read anyway.
Pure. Only apply.py needs it.
"""

from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import urlsplit

from store.admin.plan import UPDATE, Step
from store.values.errors import Refused

_PORTS = {"http": 80, "https": 443}


def refuse_moves(steps: Sequence[Step]) -> None:
    """Raise Refused, for the field `keys`, when a change leads a channel elsewhere and does not
    give its keys and headers again, if it has some."""
    faults = []
    for step in steps:
        if step.kind != "channel" or step.action != UPDATE or step.entry is None:
            continue
        assert step.stored is not None
        moved = list(_moved(step))
        kept = [
            name
            for name in ("keys", "extra_headers")
            if step.stored.fields[name] and name not in step.entry.fields
        ]
        if moved and kept:
            faults.append(
                f"{step.where('keys')}: keys: {' and '.join(moved)} would send what is stored to"
                f" another place; give {' and '.join(kept)} again"
            )
    if faults:
        raise Refused(faults)


def _moved(step: Step) -> Iterator[str]:
    """The changed fields that say where requests go, or who may answer them."""
    assert step.stored is not None
    for name in ("base_url", "proxy", "ca_file"):
        if name not in step.fields:
            continue
        before, after = step.stored.fields[name], step.fields[name]
        if name == "ca_file" or _origin(before) != _origin(after):
            yield name


def _origin(url: str | None) -> Any:
    """Scheme, host and port; a login, sealed or not, is no part of it."""
    if url is None:
        return None
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or _PORTS.get(parts.scheme)
