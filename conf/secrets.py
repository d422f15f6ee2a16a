"""The secrets of an installation: peppers of key digests, cipher keys of upstream keys, cookie
secrets, and keys that sign the opaque state of translated conversations.

They are in a separate TOML file with mode 0600, beside gateway.toml or at SLUICE_SECRETS_FILE. Each
list has the newest first: new values are made with the first one, older ones still verify and
decrypt. `upcoming` has those that a rotation has added: they also verify and decrypt, but make
nothing before every process knows them (`secrets rotate`). No secret may appear in a log, a table
or a message.
"""

import base64
import binascii
import hashlib
import os
import stat
import tomllib
from pathlib import Path

import msgspec

from conf.configuration import SECRETS_VARIABLE, ConfigError, Loaded
from conf.toml_edits import replace_file

SECRET_BYTES = 32
PLACEHOLDER_BYTES = 8  # distinct bytes; 32 random bytes never have so few
MARK_CHARS = 12
MODE = 0o600
KINDS = {
    "pepper": "peppers",
    "cipher": "cipher_keys",
    "cookie": "cookie_secrets",
    "translation": "translation_secrets",
}
"""What can be rotated, and the name of its list."""

_HEAD = """\
# Secrets of this gateway. Without this file its API keys and upstream keys are useless: keep a copy
# in a safe place, and keep it away from everybody else (mode 0600). Nodes of one store share it. In
# each list the newest comes first. To replace one: ./sluice secrets rotate
"""
_UPCOMING = """
# Being rotated: known to all, used by none yet. `./sluice secrets rotate` goes on with it.
[upcoming]
"""
_REMEDY = "restore the file from your backup"
_BRIDGE_VERSION = "Sluice 0.1.0 at schema 23 (git-4ce62c7e6920)"
"""The version that reads files without translation_secrets and writes them with these."""


class Secrets(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Lists of URL-safe base64 texts of 32 random bytes, newest first, none empty."""

    peppers: list[str]
    cipher_keys: list[str]
    cookie_secrets: list[str]
    translation_secrets: list[str]
    upcoming: dict[str, str] = {}

    @property
    def mark(self) -> str:
        """Return a short name of all lists in their order, which does not reveal the secrets."""
        lists = [getattr(self, name) for name in KINDS.values()]
        return hashlib.sha256(msgspec.json.encode(lists)).hexdigest()[:MARK_CHARS]

    def __repr__(self) -> str:
        return "Secrets(…)"


def fresh() -> str:
    """Return a new secret."""
    return base64.urlsafe_b64encode(os.urandom(SECRET_BYTES)).decode()


def create(path: Path) -> None:
    """Create a file with mode 0600. Raises FileExistsError if there is one."""
    secrets = msgspec.convert({name: [fresh()] for name in KINDS.values()}, Secrets)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, MODE)
    with open(descriptor, "w", encoding="utf-8") as file:
        os.fchmod(descriptor, MODE)  # the caller's umask may have removed bits
        file.write(_text(secrets))
        file.flush()
        os.fsync(descriptor)


def replace(path: Path, secrets: Secrets) -> None:
    """Write secrets, in the form of `read`, into the file in one step. Its owner and mode do not
    change."""
    replace_file(path, _text(secrets))


def _text(secrets: Secrets) -> str:
    lists = [f"{name} = {_quoted(getattr(secrets, name))}" for name in KINDS.values()]
    text = _HEAD + "\n".join(lists) + "\n"
    if secrets.upcoming:
        rows = [f'{name} = "{value}"' for name, value in secrets.upcoming.items()]
        text += _UPCOMING + "\n".join(rows) + "\n"
    return text


def _quoted(values: list[str]) -> str:
    return "[" + ", ".join(f'"{value}"' for value in values) + "]"


def of(loaded: Loaded) -> Secrets:
    """Return the secrets of a configuration. A ConfigError also names the configuration."""
    try:
        return load(loaded.secrets_path)
    except ConfigError as error:
        raise ConfigError(error.faults, read=loaded.path) from None


def load(path: Path) -> Secrets:
    """Read the file, with upcoming secrets last in their lists. A ConfigError names the remedy."""
    stored = read(path)
    lists = {name: [*getattr(stored, name)] for name in KINDS.values()}
    for kind, secret in stored.upcoming.items():
        lists[KINDS[kind]].append(secret)
    return msgspec.structs.replace(stored, **lists)


def read(path: Path) -> Secrets:
    """Return the content of the file. Raises ConfigError with the fault and the remedy."""
    try:
        with open(path, "rb") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            document = tomllib.load(file)
    except FileNotFoundError:
        remedy = "restore it from your backup"
        if os.environ.get(SECRETS_VARIABLE):
            remedy += f", or correct {SECRETS_VARIABLE}, which names it"
        else:
            remedy += f", or make a new installation: ./sluice init {path.parent}"
        raise ConfigError([f"{path}: the secrets file is missing; {remedy}"]) from None
    except OSError as error:
        raise ConfigError([f"{path}: cannot be read: {error.strerror}"]) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError):
        # the parser's message might quote a secret
        raise ConfigError([f"{path}: not a TOML file; {_REMEDY}"]) from None
    if mode & stat.S_IRWXO:
        raise ConfigError([f"{path}: everybody may read it; run: chmod 600 {path}"])
    return _checked(path, document)


def _checked(path: Path, document: dict[str, object]) -> Secrets:
    if "cipher_keys" in document and "translation_secrets" not in document:
        remedy = f"run ./sluice secrets rotate translation of {_BRIDGE_VERSION} first"
        problem = f"{path} has no translation_secrets, too old for this version"
        raise ConfigError([f"{problem}: {remedy}"])
    try:
        secrets = msgspec.convert(document, Secrets)
    except msgspec.ValidationError as error:
        raise ConfigError([f"{path}: {error}"]) from None  # it names types, never values
    unknown = secrets.upcoming.keys() - KINDS.keys()
    faults = [f"{path}: upcoming: unknown {name}" for name in sorted(unknown)]
    for name in KINDS.values():
        faults += _faults(f"{path}: {name}", getattr(secrets, name))
    for kind, value in secrets.upcoming.items():
        faults += _faults(f"{path}: upcoming.{kind}", [value])
    if faults:
        raise ConfigError(faults)
    return secrets


def _faults(place: str, values: list[str]) -> list[str]:
    """Return the faults of the values of a list, without quoting one."""
    if not values:
        return [f"{place} is empty; {_REMEDY}"]
    raw = [_bytes_of(value) for value in values]
    if any(len(secret) < SECRET_BYTES for secret in raw):
        return [f"{place}: {SECRET_BYTES} bytes in URL-safe base64 expected; {_REMEDY}"]
    if any(len(set(secret)) < PLACEHOLDER_BYTES for secret in raw):
        return [f"{place}: a placeholder, not {SECRET_BYTES} random bytes; {_REMEDY}"]
    return []


def _bytes_of(value: str) -> bytes:
    """Return the bytes of a value; empty if it is not base64."""
    try:
        return base64.b64decode(value, altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        return b""
