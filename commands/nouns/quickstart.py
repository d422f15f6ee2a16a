"""`quickstart`: a new gateway up to the first streamed answer, or the start of an existing one.

It creates what is missing and does not change what exists: files, schema, channels, a user, a key.
Then it becomes `serve` by exec, so that its own modules do not stay in memory.
"""

import json
import os
import secrets as random_secrets
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import click
import peewee

from adapters.registry import FAMILIES, VENDORS
from commands.nouns.init import left_as_it_is, make_schema, prepare
from commands.output import note, set_option
from commands.process.supervisor import APP
from commands.store_access import actor
from conf import secrets
from conf.configuration import FILE_NAME, Loaded, load
from operations.catalogue import listed_fields
from operations.client_settings import CURL_TITLES, base_url, curl
from operations.edits import editor
from operations.first_steps import DEMO_MODELS, VENDOR_STARTS, VendorStart
from store.admin.document import parse
from store.admin.export import export
from store.admin.objects import Sealing
from store.catalog import keys
from store.db.base_url import stored_base_url
from store.db.database import discard, open_database
from store.hub import administrators
from store.values import key_secrets
from store.values.cipher import Cipher

KEY_FILE = "quickstart.key"
KEY_FILE_MODE = 0o600
USER = "admin"
GROUP = "default"
KEY_NAME = "quickstart"
PASSWORD_BYTES = 12  # for the first administrator's password
BALANCE = "100.00"
DEMO_HOST = "127.0.0.1"
DEMO_PORTS = range(18800, 18900)

Document = dict[str, list[dict[str, Any]]]


@click.command()
@click.option(
    "--dir",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    default="run",
    show_default=True,
    help="Folder of the gateway.",
)
@click.option("--port", type=click.IntRange(1, 65535), help="Port of the relay.")
@set_option
def command(folder: Path, port: int | None, overrides: tuple[str, ...]) -> None:
    """Create a gateway with channels, a user and a key, print curl commands, and run it.

    Channels are created for vendors whose API keys are set (OPENAI_API_KEY, ANTHROPIC_API_KEY,
    GEMINI_API_KEY); the built-in demo upstream serves the other families. The first key is kept in
    DIR/quickstart.key.
    """
    chosen = (*overrides, f"server.port={port}") if port else overrides
    prepare(folder, chosen)
    path = folder / FILE_NAME
    for name in left_as_it_is(path, chosen):
        note(f"{name}: the given value applies to this run; {path} has another and is not changed")
    loaded = load(path, chosen, os.environ)
    make_schema(loaded, fresh_secrets=False)
    start = fill_store(loaded, folder)
    settings = [part for override in chosen for part in ("--set", override)]
    demo = ["--demo-port", str(start.demo_port)] if start.demo_port else []
    # printed by `serve` once it has bound the ports
    last = ["--welcome-fd", str(_handed_over(welcome(loaded, start, folder)))]
    sys.stdout.flush()
    arguments = [sys.executable, APP, "serve", "--config", str(path), *settings, *demo, *last]
    os.execv(sys.executable, arguments)


def _handed_over(text: str) -> int:
    """Return a descriptor that survives exec and yields the text when read."""
    descriptor = os.memfd_create("sluice-welcome", 0)
    os.write(descriptor, text.encode())
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


class Start(NamedTuple):
    """The facts for a first call: the key, a model of each family, the demo vendor's port, the new
    administrator's password (None if there is an administrator), the base URL set in the Hub, if
    any."""

    secret: str
    fresh_key: bool
    models: Mapping[str, str]
    demo_port: int | None
    password: str | None
    base_url: str


def fill_store(loaded: Loaded, folder: Path) -> Start:
    """Create what is missing in the store. Idempotent."""
    owned = secrets.of(loaded)
    db = open_database(loaded.settings.store.url)
    try:
        secret = _stored_secret(folder / KEY_FILE)
        fresh_key = keys.find_key(db, key_secrets.digests(secret, owned.peppers)) is None
        document = _missing(export(db), os.environ)
        if fresh_key:
            document["key"] = [{"user": USER, "name": KEY_NAME, "group": GROUP, "secret": secret}]
        password = None
        if loaded.settings.hub.enabled and not administrators.exist(db):
            password = random_secrets.token_urlsafe(PASSWORD_BYTES)
            fresh: dict[str, Any] = next(iter(document["user"]), {"name": USER, "role": "admin"})
            document["user"] = [{**fresh, "password": password}]
        sealing = Sealing(Cipher(owned.cipher_keys), owned.peppers)
        parsed = parse(json.dumps(document), os.environ, Path.cwd())
        editor(db, sealing, actor()).apply(parsed)
        return _start(db, secret, fresh_key, password)
    finally:
        discard(db)


def _stored_secret(path: Path) -> str:
    """Return the secret of the first key. It is written to its file before its use, so it cannot
    get lost."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, KEY_FILE_MODE)
    except FileExistsError:
        return path.read_text(encoding="utf-8").strip()
    with open(descriptor, "w", encoding="utf-8") as file:
        secret = key_secrets.make_secret()
        file.write(secret + "\n")
    return secret


def _missing(stored: Document, environ: Mapping[str, str]) -> Document:
    """Return entries for what quickstart needs and the store lacks. Nothing stored is changed."""
    entries: Document = {
        "group": [{"name": GROUP}],
        "user": [{"name": USER, "role": "admin", "balance": BALANCE}],
        "model": [],
        "channel": [],
    }
    for start in VENDOR_STARTS:
        if environ.get(start.variable):
            spoken = [family for family in FAMILIES if family in VENDORS[start.name].families]
            entries["model"] += _models(start)
            for family in spoken:
                # the first one has the vendor's name
                name = start.name if family == spoken[0] else _dashed(start.name, family)
                entries["channel"].append(_channel(name, family, start))
    served = {channel["family"] for channel in (*stored.get("channel", ()), *entries["channel"])}
    idle = [family for family in FAMILIES if family not in served]
    port = _demo_port(stored) or _free_port() if idle else 0
    for family in idle:
        demo = VendorStart("demo", "", f"http://{DEMO_HOST}:{port}", (DEMO_MODELS[family],))
        entries["model"] += _models(demo)
        entries["channel"].append(_channel(_dashed("demo", family), family, demo))
    return {kind: _new(entries, stored.get(kind, [])) for kind, entries in entries.items()}


def _dashed(vendor: str, family: str) -> str:
    return f"{vendor}-{family.replace('_', '-')}"


def _models(start: VendorStart) -> list[dict[str, Any]]:
    return [{"name": name, **(listed_fields(start.name, name) or {})} for name in start.models]


def _channel(name: str, family: str, start: VendorStart) -> dict[str, Any]:
    return {
        "name": name,
        "vendor": start.name,
        "family": family,
        "base_url": start.base_url,
        "keys": [f"env:{start.variable}"] if start.variable else ["demo"],
        "groups": [GROUP],
        "models": {model: model for model in start.models},
    }


def _new(
    entries: Sequence[dict[str, Any]], stored: Sequence[dict[str, Any]]
) -> list[dict[str, Any]]:
    names = {entry["name"] for entry in stored}
    return [entry for entry in entries if entry["name"] not in names]


def _start(db: peewee.Database, secret: str, fresh_key: bool, password: str | None) -> Start:
    stored = export(db)
    demo_first = sorted(stored.get("channel", ()), key=lambda row: row["vendor"] != "demo")
    models = {
        channel["family"]: next(iter(channel["models"]))
        for channel in demo_first  # so that a vendor's model replaces the demo's
        if channel["models"]
    }
    return Start(secret, fresh_key, models, _demo_port(stored), password, stored_base_url(db))


def _demo_port(stored: Document) -> int | None:
    """Return the port to which the demo channels lead, on which the demo vendor has to listen."""
    for channel in stored.get("channel", ()):
        url = urlsplit(channel["base_url"])
        if channel["vendor"] == "demo" and url.hostname == DEMO_HOST:
            return url.port
    return None


def _free_port() -> int:
    for port in DEMO_PORTS:
        with socket.socket() as probe:
            try:
                probe.bind((DEMO_HOST, port))
            except OSError:
                continue
            return port
    raise click.ClickException(f"no free port from {DEMO_PORTS[0]} to {DEMO_PORTS[-1]}")


def _about_hub(loaded: Loaded, start: Start) -> list[str]:
    """Return lines about the Hub and how to sign in."""
    hub = loaded.settings.hub
    if not hub.enabled:
        return []
    line = f"API Hub {hub.public_url or f'http://{hub.host}:{hub.port}'}, sign in as {USER}"
    return [line + (f", password, shown this once: {start.password}" if start.password else "")]


def welcome(loaded: Loaded, start: Start, folder: Path) -> str:
    """Return the text printed after the start."""
    base = base_url(loaded.settings.server, start.base_url)
    config = folder / FILE_NAME
    age = "created now" if start.fresh_key else "created earlier"
    lines = [
        f"Gateway {base}, configuration {config}",
        f"API key, {age}, stored in {folder / KEY_FILE}: {start.secret}",
        *_about_hub(loaded, start),
        "",
    ]
    for family, title in CURL_TITLES.items():
        if family in start.models:
            lines += [f"{title}:", curl(family, base, start.secret, start.models[family]), ""]
    named = f"--user {USER} --group {GROUP} --name NAME"
    lines += [
        f"Another key:  ./sluice key create {named} --config {config}",
        f"Channels:     ./sluice channel list --config {config}",
        "Ctrl-C stops the gateway.",
        "",
    ]
    return "\n".join(lines)
