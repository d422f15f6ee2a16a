"""`doctor`: checks of everything that may be wrong, with a remedy for each problem.

The checks are in commands/doctor/.
"""

import sys
from dataclasses import astuple
from pathlib import Path

import click

from commands.doctor import channels, front, machine
from commands.doctor.findings import Finding, failed, ok, show
from commands.nouns.local_nodes import of_node
from commands.output import FAILED, configuration, data_options, node_option, print_json
from commands.store_access import clients_base_url
from conf import secrets
from conf.configuration import ConfigError, Loaded
from store.catalog.catalog import load_snapshot
from store.values.cipher import Cipher

KEY_LINE_CHARS = 1024


@click.command()
@click.option("--url", help="Address of the gateway as clients see it, through the proxy.")
@click.option(
    "--key",
    help="API key for a test stream through that address; nothing is charged. - reads it from"
    " stdin, which keeps it out of the list of processes.",
)
@click.option("--yes", is_flag=True, help="Call every channel without asking; vendors charge it.")
@node_option
@data_options
def command(
    url: str | None,
    key: str | None,
    yes: bool,
    node: str | None,
    config: Path | None,
    as_json: bool,
) -> int:
    """Check the gateway for problems; exit code 1 if a check fails.

    Checks secrets, disks, file descriptors, journal, store, schema and clock. Calls every channel,
    which costs money: it asks first on a terminal, and needs --yes elsewhere. With --url, or with
    --key alone for the configured address, it checks whether the proxy in front buffers, cuts or
    compresses streams, limits bodies or strips headers.
    """
    if key == "-":
        key = sys.stdin.readline(KEY_LINE_CHARS).strip()
    loaded = of_node(configuration(config), node)
    findings = machine.look(loaded)
    findings += _addresses(loaded)
    findings += _store(loaded, None if as_json and not yes else yes)
    if url is not None or key is not None:
        findings += front.look(_checked(url) if url else clients_base_url(loaded), key)
    bad = any(finding.state == "failed" for finding in findings)
    if as_json:
        names = ("check", "state", "message", "cure")
        rows = [dict(zip(names, astuple(finding), strict=True)) for finding in findings]
        print_json({"ok": not bad, "findings": rows})
    else:
        show(findings)
    return FAILED if bad else 0


def _checked(url: str) -> str:
    if not url.startswith(("http://", "https://")):
        raise click.UsageError("--url: an address like https://gateway.example expected")
    return url


def _addresses(loaded: Loaded) -> list[Finding]:
    """Check the addresses of the configuration."""
    url = loaded.settings.server.public_url
    base_url = front.without_endpoint(url)
    if base_url == url:
        return [ok("url", f"clients are given {clients_base_url(loaded)}")]
    remedy = f'set server.public_url = "{base_url}"'
    return [failed("url", front.doubled_path("server.public_url", url), remedy)]


def _store(loaded: Loaded, yes: bool | None) -> list[Finding]:
    """Check store and channels. `yes` None: do not ask, and make no calls."""
    findings: list[Finding] = []
    with machine.open_store(loaded, findings) as db:
        if db is None:
            return findings
        try:
            cipher = Cipher(secrets.of(loaded).cipher_keys)
        except ConfigError:
            return findings  # already reported
        spend: bool | None = yes
        if yes is False:
            spend = None
            if sys.stdin.isatty() and sys.stderr.isatty():
                spend = channels.ask(channels.count(load_snapshot(db, cipher)))
        limits = loaded.settings.upstream
        return findings + channels.look(db, cipher, limits, spend=spend)
