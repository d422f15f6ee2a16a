"""The values of settings: found in --set, environment, file or default, and checked.

All faults are reported at once, each with its place and the nearest known name.
"""

import difflib
import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from conf.settings import ANY_ADDRESS, SECTIONS, SETTINGS, Settings, from_plain
from conf.toml_edits import KeyPath, key_lines, with_value
from conf.values import absolute, checked, from_text, is_loopback, toml

FILE_NAME = "gateway.toml"
QUICKSTART_FOLDER = "run"  # the folder in which `make run` creates a gateway
CONFIG_VARIABLE = "SLUICE_CONFIG"
SAMPLE = Path(__file__).resolve().parent / FILE_NAME
SECRETS_NAME = "secrets.toml"
SECRETS_VARIABLE = "SLUICE_SECRETS_FILE"
ENVIRONMENT_PREFIX = "SLUICE_"
MAX_FILE_BYTES = 1024 * 1024

_SAMPLE_HEAD = """\
# Sluice, one gateway. Lines that begin with # and no blank show the defaults; uncomment to change.
# The environment (SLUICE_SERVER__PORT=8000) and --set server.port=8000 override this file.
# Relative paths start at the folder of this file. After a change: ./sluice check --config FILE
"""


class ConfigError(Exception):
    """An error for a refused configuration. `faults` has one line for each fault.

    `read` is the file that was read, or None. `lines` ends with the way to name another file,
    because the caller may have meant another gateway.
    """

    def __init__(self, faults: Sequence[str], read: Path | None = None) -> None:
        super().__init__("\n".join(faults))
        self.faults = list(faults)
        self.read = read

    @property
    def lines(self) -> list[str]:
        """Return the lines to print."""
        return [*self.faults, *([which(self.read)] if self.read else [])]


def which(read: Path | None) -> str:
    """Return the line of an error message that names the file read, and how to name another."""
    return f"configuration read: {read}; name another with --config FILE or {CONFIG_VARIABLE}"


class Loaded(msgspec.Struct, frozen=True, kw_only=True):
    """A configuration in force. `origins`: the source of each value, by section.key."""

    settings: Settings
    origins: Mapping[str, str]
    path: Path | None
    config_dir: Path
    secrets_path: Path


def find_config(option: Path | None, environ: Mapping[str, str]) -> Path:
    """Return the file of --config, else of SLUICE_CONFIG, else ./gateway.toml or
    ./run/gateway.toml.

    Raises ConfigError if there is none. Whether the file is readable is checked by `load`.
    """
    if option is not None:
        return option
    if environ.get(CONFIG_VARIABLE):
        return Path(environ[CONFIG_VARIABLE])
    for candidate in (Path(FILE_NAME), Path(QUICKSTART_FOLDER) / FILE_NAME):
        if os.path.isfile(candidate):  # also false in a folder that may not be read
            return candidate
    problem = f"no configuration: there is no {FILE_NAME} and no {QUICKSTART_FOLDER}/{FILE_NAME}"
    remedy = f"name one with --config FILE or {CONFIG_VARIABLE}, or make one: ./sluice init DIR"
    raise ConfigError([f"{problem} in {Path.cwd()}; {remedy}"])


def load(
    path: Path | None, overrides: Sequence[str], environ: Mapping[str, str], text: str | None = None
) -> Loaded:
    """Collect and check all values. `path` None: no file; relative paths start at the working
    folder. `text`: the future content of the file, used instead of the present one.

    `overrides` are texts "section.key=value" of --set. Raises ConfigError with every fault.
    """
    gathered = _Values()
    if path is not None:
        _refuse_sample(path)
        text = gathered.text_of(path) if text is None else text
    if path is not None and text is not None:
        gathered.read_text(path, text)
    gathered.read_environment(environ)
    gathered.read_overrides(overrides)
    gathered.check_ports()
    gathered.check_ops()
    gathered.check_openid()
    gathered.check_mail()
    gathered.check_retention()
    gathered.check_body_memory()
    if gathered.faults:
        raise ConfigError(gathered.faults, read=path)
    folder = path.parent.resolve() if path is not None else Path.cwd()
    plain: dict[str, dict[str, object]] = {section: {} for section in SECTIONS}
    for name, row in SETTINGS.items():
        value = gathered.values.get(name, row.default)
        plain[row.section][row.key] = absolute(name, value, folder)
    return Loaded(
        settings=from_plain(plain),
        origins={name: gathered.origins.get(name, "default") for name in SETTINGS},
        path=path,
        config_dir=folder,
        secrets_path=folder / environ.get(SECRETS_VARIABLE, SECRETS_NAME),
    )


def _refuse_sample(path: Path) -> None:
    # Its store and its secrets would be in the source tree.
    if path.resolve() == SAMPLE:
        remedy = "make a gateway's own with: ./sluice init DIR, and name that with --config FILE"
        problem = f"{path} is the sample, which is never a configuration itself; {remedy}"
        raise ConfigError([f"{problem} or {CONFIG_VARIABLE}"])


def with_setting(path: Path, name: str, value: str) -> str:
    """Return the text of the file with `name` (section.key) set to a value in the form of --set.
    The file is not written. Raises ConfigError if it cannot be read or changed, or if the result
    would be invalid."""
    _refuse_sample(path)
    gathered = _Values()
    gathered.take_text(name, name, value)
    text = gathered.text_of(path)
    if text is None or gathered.faults:
        raise ConfigError(gathered.faults)
    section, _, key = name.partition(".")
    try:
        changed = with_value(text, section, key, gathered.values[name])
    except ValueError as error:
        raise ConfigError([f"{path}: {error}"]) from None
    load(path, (), {}, changed)
    return changed


def parse_overrides(overrides: Sequence[str]) -> dict[str, object]:
    """Return {section.key: value} of --set texts only. Raises ConfigError with every fault."""
    gathered = _Values()
    gathered.read_overrides(overrides)
    if gathered.faults:
        raise ConfigError(gathered.faults)
    return gathered.values


class _Values:
    """The values, origins and faults collected so far. A later source overrides earlier ones."""

    def __init__(self) -> None:
        self.values: dict[str, object] = {}
        self.origins: dict[str, str] = {}
        self.faults: list[str] = []

    def read_text(self, path: Path, text: str) -> None:
        """Take the values of a file."""
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
                self.take_text(name, f"environment {variable}", environ[variable])

    def read_overrides(self, overrides: Sequence[str]) -> None:
        for override in overrides:
            name, separator, text = override.partition("=")
            name = name.strip()
            if separator:
                self.take_text(name, f"--set {name}", text.strip())
            else:
                self.faults.append(f"--set {name}: section.key=value expected")

    def check_ports(self) -> None:
        """Refuse two servers on one port."""
        for section, other in (("server", "hub"), ("server", "ops"), ("hub", "ops")):
            ports, hosts = self._both(section, other, "port"), self._both(section, other, "host")
            overlap = len(set(hosts)) == 1 or any(host in ANY_ADDRESS for host in hosts)
            on = False not in self._both(section, other, "enabled")
            if len(set(ports)) == 1 and overlap and on:
                named = self.origins.get(f"{other}.port") or self.origins.get(f"{section}.port")
                self.faults.append(f"{named}: {other}.port {ports[0]} is also {section}.port")

    def check_ops(self) -> None:
        """Require a token beyond loopback, where any machine may ask."""
        enabled, host, token = map(self._value, ("ops.enabled", "ops.host", "ops.token"))
        if enabled and not token and not is_loopback(str(host)):
            problem = f"{self.origins.get('ops.host', 'default')}: ops.host {host} is reached from"
            remedy = "set ops.token, or leave ops.host at 127.0.0.1"
            self.faults.append(f"{problem} other machines: {remedy}")

    def check_openid(self) -> None:
        """Require a client id for the provider: the Hub's name there."""
        if self._value("hub.oidc_issuer") and not self._value("hub.oidc_client_id"):
            origin = self.origins["hub.oidc_issuer"]
            self.faults.append(f"{origin}: hub.oidc_issuer needs hub.oidc_client_id")

    def check_mail(self) -> None:
        """Require a sender's address for a mail server."""
        if self._value("mail.url") and not self._value("mail.from"):
            where = self.origins.get("mail.url", "mail.url")
            self.faults.append(f"{where}: mail.url needs mail.from, the address that mail is from")

    def check_retention(self) -> None:
        """Require that sums are kept as long as records, against which they are verified."""
        records, sums = map(self._number, ("usage.keep_days", "usage.keep_sums_days"))
        if sums and (not records or sums < records):
            self.faults.append(
                f"{self.origins['usage.keep_sums_days']}: usage.keep_sums_days {sums} is less than"
                f" usage.keep_days ({records or 'forever'}): sums are kept as long as records"
            )

    def check_body_memory(self) -> None:
        """Require memory for at least one body of the largest size."""
        for names in (
            ("server.body_memory_bytes", "server.max_body_bytes"),
            ("server.spool_bytes", "server.max_upload_bytes"),
        ):
            memory, largest = map(self._number, names)
            if memory < largest:
                origins = (self.origins[name] for name in names if name in self.origins)
                self.faults.append(
                    f"{next(origins, 'default')}: {names[0]} {memory} is less than {names[1]}"
                    f" {largest}: the largest body must fit"
                )

    def _value(self, name: str) -> object:
        return self.values.get(name, SETTINGS[name].default)

    def _number(self, name: str) -> int:
        return int(str(self._value(name)))

    def _both(self, section: str, other: str, key: str) -> list[object]:
        names = (f"{section}.{key}", f"{other}.{key}")
        return [self._value(name) for name in names if name in SETTINGS]

    def text_of(self, path: Path) -> str | None:
        """Return the content of a file. If it cannot be read, add a fault and return None."""
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

    def take_text(self, name: str, place: str, text: str) -> None:
        """Take a value in the form of --set and the environment. `place` names its source."""
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
        what = f'the key "{key.strip()}" is defined twice'
    elif what.startswith("Cannot declare "):
        what = f"the table {key.strip()} is defined twice"
    return f"{path}:{line}: {what}"


def _nearest_setting(name: str) -> str:
    """Return a hint with the nearest name, preferring the same key of another section."""
    key = name.rpartition(".")[2]
    same = [setting for setting in SETTINGS if setting.endswith("." + key)]
    close = difflib.get_close_matches(name, SETTINGS, n=1)
    if close or not same:
        return _nearest(name, tuple(SETTINGS))
    return "; did you mean " + " or ".join(same) + "?"


def _nearest(name: str, known: Sequence[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {close[0]}?" if close else ""


def sample_text(values: Mapping[str, object]) -> str:
    """Return the complete file, with `values` (section.key: value) set."""
    parts = [_SAMPLE_HEAD]
    for section in SECTIONS:
        title = (type(getattr(Settings(), section)).__doc__ or "").strip()
        parts.append(f"\n[{section}]\n# {title}\n")
        for name, row in SETTINGS.items():
            if row.section == section:
                value = values.get(name, row.default)
                mark = "" if name in values else "#"
                parts.append(f"# {row.description}\n{mark}{row.key} = {toml(value)}\n")
    return "".join(parts)
