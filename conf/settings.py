"""The table of settings: name, type, default, bounds and meaning of each.

To add a setting, add a row to its section. docs/settings.md and conf/gateway.toml are made from
these rows (`make docs`). conf/configuration.py finds and checks the values.
"""

import re
import typing
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from conf.values import Setting, describe

DAY_S = 86400
GIB = 1024**3
MAX_KEEP_DAYS = 36500
ANY_ADDRESS = ("0.0.0.0", "::")
LOOPBACK = ("127.0.0.0/8", "::1/128")


def _text(description: str) -> Meta:
    return Meta(min_length=1, max_length=4096, description=description)


def _number(low: int, high: int, unit: str | None, description: str) -> Meta:
    return Meta(ge=low, le=high, description=description, extra={"unit": unit})


def _optional(description: str, most: int = 4096, *, secret: bool = False) -> Meta:
    extra = {"secret": True} if secret else None
    return Meta(max_length=most, description=description, extra=extra)


def _meaning(description: str) -> Meta:
    return Meta(description=description)


class _Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A section, whose fields are settings: Annotated[type, Meta(…)] = default."""


class ServerSettings(_Section, frozen=True):
    """The relay: what clients talk to."""

    host: Annotated[str, _text("Address the relay listens on.")] = "127.0.0.1"
    port: Annotated[int, _number(1, 65535, None, "Port of the relay.")] = 8000
    workers: Annotated[
        int, _number(0, 256, "processes", "Worker processes; 0 starts one for each core.")
    ] = 1
    public_url: Annotated[
        str,
        _optional(
            "Address of the relay as clients see it, without /v1; empty: http://host:port."
            " Hints, the Hub and client-config print it."
        ),
    ] = ""
    trusted_proxies: Annotated[
        tuple[str, ...], _meaning("Networks whose X-Forwarded-For is trusted.")
    ] = ()
    cors_origins: Annotated[
        tuple[str, ...],
        _meaning(
            "Origins of web pages that may call the relay from a browser, such as"
            " https://app.example; * is any. Their users need a key of their own."
        ),
    ] = ()
    max_body_bytes: Annotated[
        int, _number(1024, GIB, "bytes", "Largest request body, also when decompressed.")
    ] = 33554432
    body_memory_bytes: Annotated[
        int,
        _number(
            1024,
            1024 * GIB,
            "bytes",
            "Memory of a worker for request bodies, compressed and not, until they go upstream;"
            " a user holds at most a quarter of it, a key an eighth, but always one whole body. At"
            " least server.max_body_bytes.",
        ),
    ] = 268435456
    max_upload_bytes: Annotated[
        int, _number(1024, GIB, "bytes", "Largest form with files: images, audio.")
    ] = 104857600
    spool_dir: Annotated[
        str,
        _optional("Folder for forms above 1 MiB while they are sent; empty: below journal.dir."),
    ] = ""
    spool_bytes: Annotated[
        int,
        _number(
            1024,
            1024 * GIB,
            "bytes",
            "Disk of a worker for forms; shared like server.body_memory_bytes. At least"
            " server.max_upload_bytes.",
        ),
    ] = 4294967296
    stream_buffer_bytes: Annotated[
        int, _number(4096, GIB, "bytes", "How much of an answer is buffered for a slow client.")
    ] = 262144
    header_timeout_s: Annotated[
        int, _number(1, 3600, "s", "Time for the first request head of a connection.")
    ] = 30
    body_timeout_s: Annotated[int, _number(1, 3600, "s", "Time for a complete request body.")] = 60
    keepalive_timeout_s: Annotated[
        int, _number(1, 3600, "s", "How long an idle client connection is kept; above the proxy's.")
    ] = 75
    drain_timeout_s: Annotated[
        int, _number(0, DAY_S, "s", "How long running calls may continue after SIGTERM.")
    ] = 600


class UpstreamSettings(_Section, frozen=True):
    """Calls to the vendors."""

    connect_timeout_s: Annotated[
        int, _number(1, 3600, "s", "Time to connect to an upstream, TLS included.")
    ] = 10
    first_byte_timeout_s: Annotated[
        int, _number(1, DAY_S, "s", "Time until the first byte of an answer.")
    ] = 600
    idle_timeout_s: Annotated[
        int, _number(1, DAY_S, "s", "Time between two bytes of an answer.")
    ] = 300
    heartbeat_s: Annotated[
        int,
        _number(0, 3600, "s", "Keep-alive to the client while the upstream is silent; 0: none."),
    ] = 15
    commit_after_s: Annotated[
        int,
        _number(
            0,
            DAY_S,
            "s",
            "After this time without a data event, the stream to the client is opened, and the call"
            " no longer fails over; 0: never.",
        ),
    ] = 30
    max_event_bytes: Annotated[
        int, _number(4096, GIB, "bytes", "Largest event that is parsed; larger ones pass unread.")
    ] = 4194304
    max_answer_bytes: Annotated[
        int, _number(4096, GIB, "bytes", "Largest answer that is not a stream.")
    ] = 67108864
    allow_private: Annotated[
        bool,
        _meaning(
            "false refuses channels to loopback, private, link-local and cloud metadata addresses."
        ),
    ] = True


class RoutingSettings(_Section, frozen=True):
    """Choice of a channel for a call."""

    max_attempts: Annotated[
        int, _number(1, 100, "attempts", "How many attempts one call makes.")
    ] = 3
    total_time_s: Annotated[int, _number(1, DAY_S, "s", "No attempt starts after this time.")] = 60
    retry_timeouts: Annotated[bool, _meaning("Whether a call fails over after a time-out.")] = False
    unknown_responses: Annotated[
        Literal["refuse", "pass"],
        _meaning(
            "What happens to the id of an object stored in an upstream account, such as a response"
            " or a file, that was not returned here and that no channel shares: refuse answers 404;"
            " pass forwards it (a response, a conversation or cached content only if the group has"
            " one channel of the family), so anybody who knows an id can read it."
        ),
    ] = "refuse"


class LimitsSettings(_Section, frozen=True):
    """Rate limits and concurrency where several nodes serve one store."""

    nodes: Annotated[
        Literal["share", "each"],
        _meaning(
            "Who counts a limit: share divides it by the nodes that serve, each gives every node"
            " the whole limit."
        ),
    ] = "share"
    url: Annotated[
        str,
        _optional(
            "redis://user:password@host:port/db, or rediss:// for TLS: a Redis 7 or Valkey that"
            " counts for all nodes, exactly; a database of this gateway alone. A password env:NAME"
            " is the variable NAME of the environment. Empty: nodes count by themselves.",
            1024,
        ),
    ] = ""
    fallback: Annotated[
        Literal["share", "each", "refuse"],
        _meaning(
            "Who counts while limits.url does not answer: share and each as for limits.nodes;"
            " refuse answers 503 to calls with limits."
        ),
    ] = "share"

    def __repr__(self) -> str:
        return "LimitsSettings(…)"  # the address may contain a password


class ProbeSettings(_Section, frozen=True):
    """Test calls to channels without traffic; the vendor charges for them."""

    interval_s: Annotated[
        int,
        _number(
            0,
            DAY_S,
            "s",
            "A channel is probed for a model without calls for this time; 0: never. Each probe is"
            " a real, short call of some 30 tokens, which the vendor charges.",
        ),
    ] = 0


class MoneySettings(_Section, frozen=True):
    """Wallets and prices."""

    currency: Annotated[str, _text("Currency of all wallets and prices.")] = "USD"
    unpriced: Annotated[
        Literal["refuse_dearer", "refuse", "serve"],
        _meaning(
            "What happens to a call that requests something its model has no price for:"
            " refuse_dearer answers 403 to service tiers, speeds, regions, spoken answers and"
            " images that can cost more than the plain rate; refuse also to hosted tools; serve"
            " accepts all. What is served without a price is charged at the plain rate, a hosted"
            " tool not at all, and listed as unpriced."
        ),
    ] = "refuse_dearer"


class StoreSettings(_Section, frozen=True):
    """The database."""

    url: Annotated[
        str,
        _text(
            "sqlite:///FILE or mysql://user:password@host:port/database; hosts of a cluster are"
            " separated by commas; ?ssl_ca=/path&ssl_verify_identity=true encrypts."
        ),
    ] = "sqlite:///sluice.db"
    connect_timeout_s: Annotated[
        int, _number(1, 60, "s", "Time to connect to a host of a MySQL database.")
    ] = 5
    read_timeout_s: Annotated[
        int, _number(1, 600, "s", "Time for one answer of a MySQL database.")
    ] = 20
    keys_in_memory: Annotated[
        int,
        _number(
            1000,
            1000000,
            "keys",
            "API keys a worker holds in memory, the most recently used; read at start. While the"
            " database is unreachable these are served.",
        ),
    ] = 50000

    def __repr__(self) -> str:
        return "StoreSettings(…)"  # the address may contain a password


class JournalSettings(_Section, frozen=True):
    """Calls that are not yet in the database, kept through a crash."""

    dir: Annotated[str, _text("Folder of the journal; each node has its own, on a local disk.")] = (
        "journal"
    )
    sync_ms: Annotated[
        int, _number(1, 10000, "ms", "Longest time from the end of a call until it is on disk.")
    ] = 20
    refused_per_minute: Annotated[
        int,
        _number(
            1,
            1000000,
            "records",
            "Further refused calls of a key share one record and one log line a minute.",
        ),
    ] = 600
    keep_days: Annotated[
        int,
        _number(
            0,
            MAX_KEEP_DAYS,
            "days",
            "How long the store remembers the journals of ended processes; 0: forever.",
        ),
    ] = 0


class UsageSettings(_Section, frozen=True):
    """Retention of usage; ledger, wallets and audit log are kept forever."""

    keep_days: Annotated[
        int, _number(0, MAX_KEEP_DAYS, "days", "How long records of calls are kept; 0: forever.")
    ] = 0
    keep_sums_days: Annotated[
        int,
        _number(
            0,
            MAX_KEEP_DAYS,
            "days",
            "How long the sums behind statistics are kept, at least as long as the records; 0:"
            " forever.",
        ),
    ] = 0


class HubSettings(_Section, frozen=True):
    """The web interface for people."""

    enabled: Annotated[bool, _meaning("Whether the Hub is started.")] = True
    host: Annotated[str, _text("Address the Hub listens on.")] = "127.0.0.1"
    port: Annotated[int, _number(1, 65535, None, "Port of the Hub.")] = 8001
    public_url: Annotated[
        str,
        _optional("Address of the Hub as browsers see it; with https its cookies are Secure."),
    ] = ""
    relay_networks: Annotated[
        tuple[str, ...],
        _meaning(
            "Networks from which the relay takes the Hub's own calls, those of Try it:"
            " the node's address where server.host is not loopback."
        ),
    ] = LOOPBACK
    oidc_issuer: Annotated[
        str,
        _optional(
            "OpenID provider by which linked users may sign in, as it names itself:"
            " https, or http on loopback. Needs oidc_client_id; empty: none.",
            255,
        ),
    ] = ""
    oidc_client_id: Annotated[str, _optional("Name of the Hub at the OpenID provider.", 255)] = ""
    oidc_client_secret: Annotated[
        str,
        _optional("Secret of the Hub at the OpenID provider; empty: a public client.", secret=True),
    ] = ""

    def __repr__(self) -> str:
        return "HubSettings(…)"  # the client's secret


class OpsSettings(_Section, frozen=True):
    """Liveness, readiness, state and drain, for orchestration and monitoring."""

    enabled: Annotated[bool, _meaning("Whether the ops port is opened.")] = True
    host: Annotated[
        str, _text("Address of the ops port; one that is not loopback needs ops.token.")
    ] = "127.0.0.1"
    port: Annotated[int, _number(1, 65535, None, "The ops port.")] = 9000
    token: Annotated[
        str,
        _optional(
            "Secret that every route but /livez and /readyz requires as"
            " `Authorization: Bearer …`; empty: none.",
            secret=True,
        ),
    ] = ""
    hosts: Annotated[
        tuple[str, ...],
        _meaning(
            "Host names it accepts besides loopback and its own address, without port;"
            " /livez and /readyz accept any."
        ),
    ] = ()

    def __repr__(self) -> str:
        return "OpsSettings(…)"  # the token


class LogSettings(_Section, frozen=True):
    """Log lines, of all processes of a node."""

    level: Annotated[
        Literal["debug", "info", "warning", "error"],
        _meaning(
            "Lowest level that is logged; `status --log-level` changes it until the next reload."
        ),
    ] = "info"
    format: Annotated[
        Literal["json", "text"], _meaning("One JSON object per line, or text for people.")
    ] = "json"
    file: Annotated[
        str,
        _optional(
            "File to append to; SIGUSR1 reopens it after it was moved away. Empty: standard error."
        ),
    ] = ""


class MailSettings(_Section, frozen=True, rename={"sender": "from"}):
    """The mail server that sends alerts."""

    url: Annotated[
        str,
        _optional(
            "smtp://user:password@host:587, or smtps:// for TLS from the start; user and password"
            " percent-encoded, and sent by TLS alone. Empty: no mail is sent. Keep the password out"
            " of the file with the variable SLUICE_MAIL__URL.",
            1024,
        ),
    ] = ""
    sender: Annotated[
        str,
        _optional("Sender address of mail, like sluice@example.com; required with mail.url.", 254),
    ] = ""

    def __repr__(self) -> str:
        return "MailSettings(…)"  # the address may contain a password


class TelemetrySettings(_Section, frozen=True):
    """Traces for a collector; needs the packages of requirements-otel.txt."""

    otlp_endpoint: Annotated[
        str,
        _optional(
            "Collector that gets the spans of calls over OTLP/HTTP, as"
            " http://127.0.0.1:4318; empty: calls are not traced, and a client's traceparent is"
            " passed on as it is."
        ),
    ] = ""


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All settings of one gateway; a field is a section."""

    server: ServerSettings = ServerSettings()
    upstream: UpstreamSettings = UpstreamSettings()
    routing: RoutingSettings = RoutingSettings()
    limits: LimitsSettings = LimitsSettings()
    probe: ProbeSettings = ProbeSettings()
    money: MoneySettings = MoneySettings()
    store: StoreSettings = StoreSettings()
    journal: JournalSettings = JournalSettings()
    usage: UsageSettings = UsageSettings()
    hub: HubSettings = HubSettings()
    ops: OpsSettings = OpsSettings()
    mail: MailSettings = MailSettings()
    log: LogSettings = LogSettings()
    telemetry: TelemetrySettings = TelemetrySettings()


SECTIONS: tuple[str, ...] = Settings.__struct_fields__


def _rows() -> Iterator[Setting]:
    for section in SECTIONS:
        defaults = getattr(Settings(), section)
        hints = typing.get_type_hints(type(defaults), include_extras=True)
        for row in msgspec.structs.fields(type(defaults)):
            name = f"{section}.{row.encode_name}"
            yield describe(name, hints[row.name], getattr(defaults, row.name))


SETTINGS: Mapping[str, Setting] = {row.name: row for row in _rows()}


def from_plain(plain: Mapping[str, Any]) -> Settings:
    """Return the settings of {section: {key: value}}, which `to_plain` made for another process."""
    return msgspec.convert(plain, Settings)


def to_plain(settings: Settings) -> dict[str, dict[str, Any]]:
    """Return {section: {key: value}} with plain values, fit for JSON."""
    return typing.cast(dict[str, dict[str, Any]], msgspec.to_builtins(settings))


_MASK = "***"
# user and password of an address; any text that looks like a secret key
_CREDENTIALS = re.compile(r"(?<=://)[^/@\s]*@|\bsk-[A-Za-z0-9._-]{8,}")


def mask(text: str) -> str:
    """Return the text without passwords in addresses and without secret keys."""
    return _CREDENTIALS.sub(lambda match: "***@" if match[0].endswith("@") else "sk-***", text)


def masked_rows(settings: Settings, origins: Mapping[str, str] | None) -> list[dict[str, Any]]:
    """Return name and value of each setting, with secrets masked; with `origins` also its
    origin."""
    plain, rows = to_plain(settings), []
    for name, setting in SETTINGS.items():
        value = plain[setting.section][setting.key]
        if setting.secret and value:
            value = _MASK
        elif isinstance(value, str):
            value = mask(value)
        origin = {} if origins is None else {"origin": origins.get(name, "default")}
        rows.append({"name": name, "value": value, **origin})
    return rows
