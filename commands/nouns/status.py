"""`status`: a running gateway as its ops port reports it, and the state of its channels in the
store.

With --settings: the settings in force, for which no gateway has to run.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from adapters.registry import LOSSES
from commands.nouns.local_nodes import of_node
from commands.nouns.store import COLUMNS as HOST_COLUMNS
from commands.ops_port import ask_status, set_log_level
from commands.output import (
    configuration,
    data_options,
    node_option,
    note,
    print_fields,
    print_json,
    print_table,
)
from commands.process.logs import LEVELS
from commands.process.node import NAME_FILE
from commands.store_access import opened_store
from conf.configuration import Loaded, which
from conf.settings import masked_rows, to_plain
from conf.store_url import place
from store.calls.reading.unpriced import RECENT_DAYS, recent_unpriced
from store.channels.status import AVAILABLE, Status, by_name, of_channels, of_models, to_public
from store.db import cluster
from store.db.database import database_ms
from store.upkeep import lease
from store.values.errors import StoreError

_NODE = ("node", "version", "revision", "store", "pid", "ready", "reason", "draining")
_WORKERS = ("pid", "slot", "ready", "streams", "calls", "connections", "store", "open_breakers")
_STATES = ("name", "model", "state", "since", "reason", "calls_5m", "success_5m", "last_error")
PARKED_HINT = "journal.dir/parked.ndjson lists them and why; move it away when that is settled"


@click.command()
@click.option("--settings", is_flag=True, help="Show the settings in force instead.")
@click.option("--origin", is_flag=True, help="With --settings: show where each value comes from.")
@click.option(
    "--log-level",
    type=click.Choice(LEVELS),
    help="Change the log level of the running gateway, until its next reload or restart.",
)
@node_option
@data_options
def command(
    settings: bool,
    origin: bool,
    log_level: str | None,
    node: str | None,
    config: Path | None,
    as_json: bool,
) -> None:
    """Show a running gateway and the state of its channels; exit code 1 if none runs.

    Workers, streams and journal are those of one node: that of --node, else the one at the
    configured ops port. The state of channels comes from the store and covers all nodes.
    """
    if origin and not settings:
        raise click.UsageError("--origin needs --settings")
    if node and settings:
        raise click.UsageError("--node excludes --settings")
    loaded = configuration(config)
    if settings:
        rows = masked_rows(loaded.settings, loaded.origins if origin else None)
        print_table(rows, list(rows[0]), as_json)
        return
    loaded = of_node(loaded, node)
    if log_level is not None:
        level = set_log_level(loaded, log_level)
        print_fields(level, as_json)
        return
    fields = ask_status(loaded)
    _warn_of_another_gateway(loaded, fields["node"])
    _warn_of_another_store(loaded, fields.get("store"))
    channels, models, upkeep, unpriced, hosts = _stored_state(config)
    fields["probe"] = to_plain(loaded.settings)["probe"]
    fields["upkeep"] = upkeep
    fields["store_hosts"] = hosts
    if as_json:
        states = {"channels": _named(channels), "groups": _named(models)}
        print_json({**fields, **states, "unpriced": unpriced})
        return
    _print_node(fields)
    if hosts and (len(hosts) > 1 or hosts[0]["cluster_size"]):
        click.echo("\nhosts of the store:")
        print_table(hosts, HOST_COLUMNS)
    for title, statuses in (("channel", channels), ("group", models)):
        _print_states(title, statuses)
    if unpriced:
        uses = (f"{use['meter']} of {use['model']} × {use['count']}" for use in unpriced)
        click.echo(f"\nused without a price in {RECENT_DAYS} days: {', '.join(uses)}")


def _warn_of_another_gateway(loaded: Loaded, node: str) -> None:
    """Warn if the gateway at the ops port is not the one of this configuration."""
    try:
        own = (Path(loaded.settings.journal.dir) / NAME_FILE).read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        own = "not started yet"
    except (OSError, UnicodeDecodeError):
        return
    if own != node:
        port = f"{loaded.settings.ops.host}:{loaded.settings.ops.port}"
        other = f"that of this configuration is {own} (journal.dir)"
        note(f"warning: the gateway at {port} (ops.port) is {node}, {other}; {which(loaded.path)}")


def _warn_of_another_store(loaded: Loaded, running: object) -> None:
    """Warn if the file has been changed since the gateway read it."""
    store = place(loaded.settings.store.url)
    if running not in (store, None):
        note(
            f"warning: the gateway uses the store {running}, but the configuration names {store},"
            f" where the channels below come from: reload the gateway; {which(loaded.path)}"
        )


def _stored_state(
    config: Path | None,
) -> tuple[
    list[Status] | None,
    list[Status] | None,
    dict[str, Any] | None,
    list[dict[str, Any]] | None,
    list[dict[str, Any]] | None,
]:
    """Return the state of channels and of models for groups, the last and next run of the upkeep,
    recent uses without a price, and the hosts of the store. All are None if the store is
    unreachable."""
    try:
        with opened_store(config) as access:
            at_ms = database_ms(access.db)
            channels, models = of_channels(access.db, at_ms, LOSSES), of_models(access.db, at_ms)
            upkeep = lease.state(access.db)
            writing = cluster.writing_host(access.db)
            hosts = [cluster.to_public(state, writing) for state in cluster.states(access.db)]
            unpriced = [asdict(use) for use in recent_unpriced(access.db)]
    except StoreError as error:
        note(f"the store: {error}")
        return None, None, None, None, None
    return channels, models, lease.to_public(upkeep) if upkeep else None, unpriced, hosts


def _upkeep_line(upkeep: dict[str, Any] | None) -> str | None:
    if upkeep is None:
        return None
    if upkeep["running"]:
        return f"running on {upkeep['node']} since {upkeep['begun_at']}"
    if upkeep["trouble"]:
        return f"failed at {upkeep['ended_at']}: {upkeep['trouble']}"
    if upkeep["ended_at"] is None:
        return "not run yet"
    removed = ", ".join(f"{count} {kind}" for kind, count in upkeep["removed"].items())
    return f"{upkeep['ended_at']}, removed {removed or 'nothing'}; next {upkeep['next_at']}"


_LIMITS = {
    None: "counted by the nodes",
    True: "counted for all nodes by limits.url",
    False: "limits.url does not answer; counted as limits.fallback says",
}


def _clock(lead_s: float | None) -> str | None:
    """Return the difference of the node's clock from the database's; None if it is not
    known yet."""
    if not lead_s:
        return lead_s if lead_s is None else "agrees with the database's"
    return f"{abs(lead_s):.1f} s {'ahead of' if lead_s > 0 else 'behind'} the database's"


def _named(statuses: Sequence[Status] | None) -> list[dict[str, Any]] | None:
    return None if statuses is None else by_name(statuses)


def _print_node(fields: dict[str, Any]) -> None:
    node = {name: fields.get(name) for name in _NODE}
    running = {
        "workers": len(fields["workers"]),
        "open streams": fields.get("streams"),
        "open calls": fields.get("calls"),
    }
    interval_s = fields["probe"]["interval_s"]
    upkeep = {
        "journal_backlog_bytes": fields["journal_backlog_bytes"],
        "probes": f"every {interval_s} s without traffic" if interval_s else "off",
        "upkeep": _upkeep_line(fields["upkeep"]),
        "clock": _clock(fields.get("clock_lead_s")),
        "limits": _LIMITS[fields.get("limits_up")],
    }
    print_fields({**node, **running, **upkeep})
    if fields.get("parked"):
        note(f"{fields['parked']} damaged lines or refused records are parked: {PARKED_HINT}")
    click.echo("\nworkers:")
    print_table(fields["workers"], _WORKERS)


def _print_states(title: str, statuses: Sequence[Status] | None) -> None:
    """Print the counts by state, then each status that is not available."""
    if statuses is None:
        return
    click.echo()
    counts = Counter(status.state for status in statuses)
    summary = ", ".join(f"{count} {state}" for state, count in sorted(counts.items())) or "none"
    click.echo(f"{title} × model: {summary}")
    rows = [_row(status) for status in statuses if status.state != AVAILABLE]
    if rows:
        columns = (title, *_STATES[1:], *(["entries"] if title == "channel" else []))
        print_table([{title: row["name"], **row} for row in rows], columns)


def _row(status: Status) -> dict[str, Any]:
    public = to_public(status)
    recent = public["windows"]["5m"]
    seen = {"name": status.name, "calls_5m": recent["calls"], "success_5m": recent["success"]}
    return {**public, **seen}
