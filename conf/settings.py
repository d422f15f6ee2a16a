"""The table of settings, and how their values are found: --set, environment, file, default.

Add a setting: one row in its section. docs/settings.md and conf/gateway.toml are made from these
rows (`make docs`). Everything wrong is reported at once, each fault with its place and the nearest
known name.
"""

import difflib
import os
import re
import tomllib
import typing
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from conf.toml_lines import KeyPath, key_lines
from conf.values import Setting, absolute, checked, describe, from_text, is_loopback

FILE_NAME = "gateway.toml"
QUICKSTART_FOLDER = "run"  # where `make run` makes a gateway
CONFIG_VARIABLE = "SLUICE_CONFIG"
SAMPLE = Path(__file__).resolve().parent / FILE_NAME
SECRETS_NAME = "secrets.toml"
SECRETS_VARIABLE = "SLUICE_SECRETS_FILE"
ENVIRONMENT_PREFIX = "SLUICE_"
MAX_FILE_BYTES = 1024 * 1024

DAY_S = 86400
GIB = 1024**3
ANY_ADDRESS = ("0.0.0.0", "::")


class ConfigError(Exception):
    """The configuration is refused; `faults` has one line for each thing that is wrong.

    `read` is the file that was read, None when there is none. `lines` ends with how to name
    another one: whoever is refused may have meant another gateway.
    """

    def __init__(self, faults: Sequence[str], read: Path | None = None) -> None:
        super().__init__("\n".join(faults))
        self.faults = list(faults)
        self.read = read

    @property
    def lines(self) -> list[str]:
        """What to tell people."""
        return [*self.faults, *([which(self.read)] if self.read else [])]


def which(read: Path | None) -> str:
    """Which file a command has read, and how to name another: part of what stops a command."""
    return f"configuration read: {read}; name another with --config FILE or {CONFIG_VARIABLE}"


def _text(description: str) -> Meta:
    return Meta(min_length=1, max_length=4096, description=description)


def _number(low: int, high: int, unit: str | None, description: str) -> Meta:
    return Meta(ge=low, le=high, description=description, extra={"unit": unit})


def _flag(description: str) -> Meta:
    return Meta(description=description)


class _Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Fields are settings: Annotated[type, Meta(…)] = default."""


class ServerSettings(_Section, frozen=True):
    """The relay: what clients talk to."""

    host: Annotated[str, _text("Address the relay listens on.")] = "127.0.0.1"
    port: Annotated[int, _number(1, 65535, None, "Port of the relay.")] = 8000
    workers: Annotated[
        int, _number(0, 256, "processes", "Worker processes; 0 starts one for each core.")
    ] = 1
    public_url: Annotated[
        str,
        Meta(
            max_length=4096,
            description="Address of the relay as clients see it, without /v1; empty: http://host:port."
            " Hints, the Hub and client-config print it.",
        ),
    ] = ""
    trusted_proxies: Annotated[
        tuple[str, ...], Meta(description="Networks whose X-Forwarded-For is believed.")
    ] = ()
    max_body_bytes: Annotated[
        int, _number(1024, GIB, "bytes", "Largest request body, also after unpacking.")
    ] = 33554432
    stream_buffer_bytes: Annotated[
        int, _number(4096, GIB, "bytes", "How much of an answer may wait for a slow client.")
    ] = 262144
    header_timeout_s: Annotated[
        int, _number(1, 3600, "s", "Time for the first request head of a connection.")
    ] = 30
    body_timeout_s: Annotated[int, _number(1, 3600, "s", "Time for a whole request body.")] = 60
    keepalive_timeout_s: Annotated[
        int,
        _number(
            1, 3600, "s", "How long an idle connection of a client is kept; above the proxy's."
        ),
    ] = 75
    drain_timeout_s: Annotated[
        int, _number(0, DAY_S, "s", "How long running calls may go on after SIGTERM.")
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
            "After so long without a data event a stream is begun towards the client and no other"
            " channel is tried; 0: never.",
        ),
    ] = 30
    max_event_bytes: Annotated[
        int, _number(4096, GIB, "bytes", "Largest event that is read; larger ones pass unread.")
    ] = 4194304
    max_answer_bytes: Annotated[
        int, _number(4096, GIB, "bytes", "Largest answer that is not a stream.")
    ] = 67108864
    allow_private: Annotated[
        bool,
        _flag(
            "false refuses channels to loopback, private, link-local and cloud metadata addresses."
        ),
    ] = True


class RoutingSettings(_Section, frozen=True):
    """Which channel a call gets."""

    max_attempts: Annotated[
        int, _number(1, 100, "attempts", "How many channels are tried for one call.")
    ] = 3
    total_time_s: Annotated[int, _number(1, DAY_S, "s", "No attempt is begun after so long.")] = 60
    retry_timeouts: Annotated[bool, _flag("Whether another channel is tried after a time-out.")] = (
        False
    )
    unknown_responses: Annotated[
        Literal["refuse", "pass"],
        Meta(
            description="What becomes of a stored response's id that nobody was given here, such as"
            " one from before this gateway: refuse answers 404; pass sends it on when the group has"
            " one channel of the family, so that whoever knows an id can read it."
        ),
    ] = "refuse"


class ProbeSettings(_Section, frozen=True):
    """Calls of the gateway's own to channels that nobody calls: they cost what the vendor takes."""

    interval_s: Annotated[
        int,
        _number(
            0,
            DAY_S,
            "s",
            "A channel is probed for a model that had no call for so long; 0: never. Each probe is"
            " a real, short call of some 30 tokens, paid to the vendor by the operator.",
        ),
    ] = 0


class MoneySettings(_Section, frozen=True):
    """Wallets and prices."""

    currency: Annotated[str, _text("Currency of all wallets and prices.")] = "USD"


class StoreSettings(_Section, frozen=True):
    """The database."""

    url: Annotated[str, _text("sqlite:///FILE or mysql://user:password@host:port/database.")] = (
        "sqlite:///sluice.db"
    )

    def __repr__(self) -> str:
        return "StoreSettings(…)"  # the address may hold a password


class JournalSettings(_Section, frozen=True):
    """What survives a crash before the database has it."""

    dir: Annotated[str, _text("Folder of the journal; each node has its own, on a local disk.")] = (
        "journal"
    )
    sync_ms: Annotated[
        int, _number(1, 10000, "ms", "Calls are on the disk at most so late after their end.")
    ] = 20
    refused_per_minute: Annotated[
        int,
        _number(
            1,
            1000000,
            "records",
            "Refused calls of one key beyond it share one record a minute that says how many.",
        ),
    ] = 600


class HubSettings(_Section, frozen=True):
    """The web interface for people."""

    enabled: Annotated[bool, _flag("Whether the Hub is started.")] = True
    host: Annotated[str, _text("Address the Hub listens on.")] = "127.0.0.1"
    port: Annotated[int, _number(1, 65535, None, "Port of the Hub.")] = 8001


class OpsSettings(_Section, frozen=True):
    """Liveness, readiness, state, drain: for machines that look after the gateway."""

    enabled: Annotated[bool, _flag("Whether the ops port is opened.")] = True
    host: Annotated[
        str, _text("Address of the ops port; one that is not loopback needs ops.token.")
    ] = "127.0.0.1"
    port: Annotated[int, _number(1, 65535, None, "The ops port.")] = 9000
    token: Annotated[
        str,
        Meta(
            max_length=4096,
            description="Secret that all but /livez and /readyz have to bring as"
            " `Authorization: Bearer …`; empty: none.",
            extra={"secret": True},
        ),
    ] = ""
    hosts: Annotated[
        tuple[str, ...],
        Meta(
            description="Names it answers to as Host beside loopback and its own address, without"
            " port; /livez and /readyz answer to any."
        ),
    ] = ()

    def __repr__(self) -> str:
        return "OpsSettings(…)"  # the token


class LogSettings(_Section, frozen=True):
    """Log lines on standard error."""

    level: Annotated[
        Literal["debug", "info", "warning", "error"],
        Meta(description="Least level that is logged."),
    ] = "info"
    format: Annotated[
        Literal["json", "text"], Meta(description="One JSON object a line, or text for people.")
    ] = "json"


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All settings of one gateway; a field is a section."""

    server: ServerSettings = ServerSettings()
    upstream: UpstreamSettings = UpstreamSettings()
    routing: RoutingSettings = RoutingSettings()
    probe: ProbeSettings = ProbeSettings()
    money: MoneySettings = MoneySettings()
    store: StoreSettings = StoreSettings()
    journal: JournalSettings = JournalSettings()
    hub: HubSettings = HubSettings()
    ops: OpsSettings = OpsSettings()
    log: LogSettings = LogSettings()


SECTIONS: tuple[str, ...] = Settings.__struct_fields__


def _rows() -> Iterator[Setting]:
    for section in SECTIONS:
        defaults = getattr(Settings(), section)
        for key, annotated in typing.get_type_hints(type(defaults), include_extras=True).items():
            yield describe(f"{section}.{key}", annotated, getattr(defaults, key))


SETTINGS: Mapping[str, Setting] = {row.name: row for row in _rows()}


class Loaded(msgspec.Struct, frozen=True, kw_only=True):
    """A configuration in force. `origins`: where each value came from, by section.key."""

    settings: Settings
    origins: Mapping[str, str]
    path: Path | None
    config_dir: Path
    secrets_path: Path


def find_config(option: Path | None, environ: Mapping[str, str]) -> Path:
    """The file of --config, else of SLUICE_CONFIG, else ./gateway.toml, else ./run/gateway.toml.

    ConfigError when there is none. Whether the file can be read is found out by `load`.
    """
    if option is not None:
        return option
    if environ.get(CONFIG_VARIABLE):
        return Path(environ[CONFIG_VARIABLE])
    for candidate in (Path(FILE_NAME), Path(QUICKSTART_FOLDER) / FILE_NAME):
        if os.path.isfile(candidate):  # false, too, in a folder that may not be looked into
            return candidate
    raise ConfigError(
        [
            f"no configuration: there is no {FILE_NAME} and no {QUICKSTART_FOLDER}/{FILE_NAME} in"
            f" {Path.cwd()}; name one with --config FILE or {CONFIG_VARIABLE},"
            " or make one: ./sluice init DIR"
        ]
    )


def load(path: Path | None, overrides: Sequence[str], environ: Mapping[str, str]) -> Loaded:
    """Gather and check all values. `path` None: no file, relative paths start here.

    `overrides` are texts "section.key=value" of --set. Raises ConfigError with every fault.
    """
    found = _Values()
    if path is not None:
        _refuse_sample(path)
        found.read_file(path)
    found.read_environment(environ)
    found.read_overrides(overrides)
    found.check_ports()
    found.check_ops()
    if found.faults:
        raise ConfigError(found.faults, read=path)
    folder = path.parent.resolve() if path is not None else Path.cwd()
    plain: dict[str, dict[str, object]] = {section: {} for section in SECTIONS}
    for name, row in SETTINGS.items():
        value = found.values.get(name, row.default)
        plain[row.section][row.key] = absolute(name, value, folder)
    return Loaded(
        settings=from_plain(plain),
        origins={name: found.origins.get(name, "default") for name in SETTINGS},
        path=path,
        config_dir=folder,
        secrets_path=folder / environ.get(SECRETS_VARIABLE, SECRETS_NAME),
    )


def _refuse_sample(path: Path) -> None:
    # Its store and its secrets would lie in the source tree.
    if path.resolve() == SAMPLE:
        raise ConfigError(
            [
                f"{path} is the sample, which is never a configuration itself; make a gateway's own"
                f" with: ./sluice init DIR, and name that with --config FILE or {CONFIG_VARIABLE}"
            ]
        )


def from_plain(plain: Mapping[str, Any]) -> Settings:
    """Settings from {section: {key: value}}, as `to_plain` gave it to another process."""
    return msgspec.convert(plain, Settings)


def to_plain(settings: Settings) -> dict[str, dict[str, Any]]:
    """{section: {key: value}} of plain values that JSON carries."""
    return typing.cast(dict[str, dict[str, Any]], msgspec.to_builtins(settings))


def parse_overrides(overrides: Sequence[str]) -> dict[str, object]:
    """{section.key: value} of --set texts alone; ConfigError with every fault."""
    found = _Values()
    found.read_overrides(overrides)
    if found.faults:
        raise ConfigError(found.faults)
    return found.values


class _Values:
    """Values, origins and faults gathered so far; a later source wins."""

    def __init__(self) -> None:
        self.values: dict[str, object] = {}
        self.origins: dict[str, str] = {}
        self.faults: list[str] = []

    def read_file(self, path: Path) -> None:
        text = self._text_of(path)
        if text is None:
            return
        try:
            document = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            self.faults.append(_syntax_fault(path, text, error))
            return
        except (ValueError, RecursionError) as error:  # an integer of 5000 digits, 5000 brackets
            self.faults.append(f"{path}: not TOML: {error}")
            return
        lines = key_lines(text)
        for section, table in document.items():
            self._read_section(path, lines, section, table)

    def read_environment(self, environ: Mapping[str, str]) -> None:
        for variable in sorted(environ):
            section, separator, key = variable.removeprefix(ENVIRONMENT_PREFIX).partition("__")
            if variable.startswith(ENVIRONMENT_PREFIX) and separator:
                name = f"{section}.{key}".lower()
                self._take_text(name, f"environment {variable}", environ[variable])

    def read_overrides(self, overrides: Sequence[str]) -> None:
        for override in overrides:
            name, separator, text = override.partition("=")
            name = name.strip()
            if separator:
                self._take_text(name, f"--set {name}", text.strip())
            else:
                self.faults.append(f"--set {name}: section.key=value expected")

    def check_ports(self) -> None:
        """Two planes cannot listen on one port."""
        for one, other in (("server", "hub"), ("server", "ops"), ("hub", "ops")):
            ports, hosts = self._both(one, other, "port"), self._both(one, other, "host")
            overlap = len(set(hosts)) == 1 or any(host in ANY_ADDRESS for host in hosts)
            if len(set(ports)) == 1 and overlap and False not in self._both(one, other, "enabled"):
                named = self.origins.get(f"{other}.port") or self.origins.get(f"{one}.port")
                self.faults.append(f"{named}: {other}.port {ports[0]} is also {one}.port")

    def check_ops(self) -> None:
        """Beyond loopback nobody knows who asks: it takes a token."""
        enabled, host, token = (
            self.values.get(name, SETTINGS[name].default)
            for name in ("ops.enabled", "ops.host", "ops.token")
        )
        if enabled and not token and not is_loopback(str(host)):
            self.faults.append(
                f"{self.origins.get('ops.host', 'default')}: ops.host {host} is reached from other"
                " machines: set ops.token, or leave ops.host at 127.0.0.1"
            )

    def _both(self, one: str, other: str, key: str) -> list[object]:
        rows = [SETTINGS[name] for name in (f"{one}.{key}", f"{other}.{key}") if name in SETTINGS]
        return [self.values.get(row.name, row.default) for row in rows]

    def _text_of(self, path: Path) -> str | None:
        try:
            with open(path, "rb") as file:
                raw = file.read(MAX_FILE_BYTES + 1)
            if len(raw) <= MAX_FILE_BYTES:
                return raw.decode("utf-8").replace("\r\n", "\n")
            self.faults.append(f"{path}: larger than {MAX_FILE_BYTES} bytes")
        except OSError as error:
            self.faults.append(f"{path}: cannot be read: {error.strerror}")
        except UnicodeDecodeError:
            self.faults.append(f"{path}: not UTF-8")
        return None

    def _read_section(
        self, path: Path, lines: Mapping[KeyPath, int], section: str, table: object
    ) -> None:
        place = f"{path}:{lines.get((section,), 1)}"
        if not isinstance(table, dict):
            self.faults.append(f"{place}: unknown setting {section}{_nearest_setting(section)}")
        elif section not in SECTIONS:
            self.faults.append(f"{place}: unknown section {section}{_nearest(section, SECTIONS)}")
        else:
            for key, raw in table.items():
                line = lines.get((section, key), 1)
                name = f"{section}.{key}"
                self._take(name, f"{path}:{line}", raw)

    def _take_text(self, name: str, place: str, text: str) -> None:
        row = SETTINGS.get(name)
        self._take(name, place, text if row is None else from_text(row, text))

    def _take(self, name: str, place: str, raw: object) -> None:
        row = SETTINGS.get(name)
        if row is None:
            self.faults.append(f"{place}: unknown setting {name}{_nearest_setting(name)}")
            return
        try:
            self.values[name] = checked(row, raw)
        except ValueError as error:
            named = "" if place.endswith(name) else f"{name}: "
            self.faults.append(f"{place}: {named}{error}")
            return
        self.origins[name] = place


def _syntax_fault(path: Path, text: str, error: tomllib.TOMLDecodeError) -> str:
    message = str(error)
    place = re.search(r" \(at (?:line (\d+), column \d+|end of document)\)$", message)
    if place is None:
        return f"{path}: {message}"
    what, line = message[: place.start()], int(place[1] or text.rstrip().count("\n") + 1)
    key, equals, _ = text.split("\n")[line - 1].partition("=")
    if what == "Cannot overwrite a value" and equals:
        what = f'the key "{key.strip()}" is there twice'
    elif what.startswith("Cannot declare "):
        what = f"the table {key.strip()} is there twice"
    return f"{path}:{line}: {what}"


def _nearest_setting(name: str) -> str:
    """The same key of another section first: `port` alone means one of them."""
    key = name.rpartition(".")[2]
    same = [known for known in SETTINGS if known.endswith("." + key)]
    close = difflib.get_close_matches(name, SETTINGS, n=1)
    if close or not same:
        return _nearest(name, tuple(SETTINGS))
    return "; did you mean " + " or ".join(same) + "?"


def _nearest(name: str, known: Sequence[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {close[0]}?" if close else ""
