"""`nodes`: every node of the store, as its processes report to it."""

from typing import Any

import click

from commands.output import note, print_table
from commands.store_access import Access, on_store
from store.db.nodes import NodeState, states
from store.values.usage_record import rfc3339

CLOCK_SHOWN_MS = 200  # smaller differences come from the time that the database takes to answer
_COLUMNS = ("node", "state", "why", "version", "workers", "clock_behind_ms", "backlog_bytes")


@click.command()
@on_store
def command(access: Access, as_json: bool) -> None:
    """Show every node of the store: version, clock, readiness, journal.

    Each node reports to the store every ten seconds. state: ready, not ready (no worker takes
    calls), away (silent for a minute), or here (ended within the last minute). clock_behind_ms: how
    far the node's clock is behind the database's; negative if ahead. backlog_bytes: bytes in its
    journals that are not in the store yet.
    """
    nodes = states(access.db)
    print_table([_row(node) for node in nodes], (*_COLUMNS, "seen_at"), as_json)
    versions = {version for node in nodes for version in node.versions}
    if len(versions) > 1 and not as_json:
        note(f"warning: nodes run different versions: {', '.join(sorted(versions))}")


def _row(node: NodeState) -> dict[str, Any]:
    state = "away"
    if node.alive:
        state = "here" if not node.processes else "ready" if node.ready else "not ready"
    lead_ms = node.lead_ms
    if lead_ms is not None and abs(lead_ms) < CLOCK_SHOWN_MS:
        lead_ms = 0
    return {
        "node": node.name,
        "state": state,
        "why": "; ".join(node.not_ready),
        "version": ", ".join(node.versions) or None,
        "workers": f"{node.ready} of {node.processes}" if node.processes else None,
        "clock_behind_ms": lead_ms,
        "backlog_bytes": node.backlog_bytes if node.versions or not node.alive else None,
        "seen_at": rfc3339(node.seen_ms),
    }
