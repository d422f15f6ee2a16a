"""The secrets of an installation: peppers of key digests, cipher keys of upstream keys, cookie
secrets, and what signs the opaque state of translated conversations.

They are in a TOML file of their own with mode 0600, beside gateway.toml or where
SLUICE_SECRETS_FILE says. Each list has the newest first: new values are made with the first one,
older ones still verify and decrypt. Nothing here may appear in a log, a table or a message.
"""

import base64
import binascii
import hmac
import os
import stat
import tomllib
from pathlib import Path

import msgspec

from conf.configuration import SECRETS_VARIABLE, ConfigError, Loaded

SECRET_BYTES = 32
MODE = 0o600

_TEXT = """\
# Secrets of this gateway. Without this file its API keys and upstream keys are useless: keep a copy
# in a safe place, and keep it away from everybody else (mode 0600). Nodes of one store share it. In
# each list the newest comes first.
peppers = ["{}"]
cipher_keys = ["{}"]
cookie_secrets = ["{}"]
translation_secrets = ["{}"]
"""
_DERIVED_FOR = b"sluice translation_secrets"


class Secrets(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Lists of URL-safe base64 texts of 32 random bytes, newest first, none empty."""

    peppers: list[str]
    cipher_keys: list[str]
    cookie_secrets: list[str]
    translation_secrets: list[str]

    def __repr__(self) -> str:
        return "Secrets(…)"


def create(path: Path) -> None:
    """Make a new file with mode 0600; FileExistsError when there is one already."""
    made = (base64.urlsafe_b64encode(os.urandom(SECRET_BYTES)).decode() for _ in range(4))
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, MODE)
    with open(descriptor, "w", encoding="utf-8") as file:
        os.fchmod(descriptor, MODE)  # the caller's umask may have removed bits
        file.write(_TEXT.format(*made))


def of(loaded: Loaded) -> Secrets:
    """The secrets of a configuration; ConfigError names the configuration, too."""
    try:
        return load(loaded.secrets_path)
    except ConfigError as error:
        raise ConfigError(error.faults, read=loaded.path) from None


def load(path: Path) -> Secrets:
    """Read the file. Raises ConfigError with the fault and the cure."""
    try:
        with open(path, "rb") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            document = tomllib.load(file)
    except FileNotFoundError:
        cure = "restore it from your backup"
        if os.environ.get(SECRETS_VARIABLE):
            cure += f", or correct {SECRETS_VARIABLE}, which names it"
        else:
            cure += f", or make a new installation: ./sluice init {path.parent}"
        raise ConfigError([f"{path}: the secrets file is missing; {cure}"]) from None
    except OSError as error:
        raise ConfigError([f"{path}: cannot be read: {error.strerror}"]) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError):
        raise ConfigError([f"{path}: not a TOML file"]) from None  # the parser might quote a secret
    if mode & stat.S_IRWXO:
        raise ConfigError([f"{path}: everybody may read it; run: chmod 600 {path}"])
    return _checked(path, document)


def _checked(path: Path, document: dict[str, object]) -> Secrets:
    cipher_keys = document.get("cipher_keys")
    if "translation_secrets" not in document and isinstance(cipher_keys, list):
        # A file of an older version: all nodes derive the same from what they share.
        document = {**document, "translation_secrets": [_derived(key) for key in cipher_keys]}
    try:
        secrets = msgspec.convert(document, Secrets)
    except msgspec.ValidationError as error:
        raise ConfigError([f"{path}: {error}"]) from None  # msgspec names types, never values
    faults = []
    for name in Secrets.__struct_fields__:
        values = getattr(secrets, name)
        if not values:
            faults.append(f"{path}: {name} is empty")
        if not all(_is_strong(value) for value in values):
            faults.append(f"{path}: {name}: {SECRET_BYTES} bytes in URL-safe base64 expected")
    if faults:
        raise ConfigError(faults)
    return secrets


def _derived(key: object) -> str:
    """A secret of its own, from which nobody learns the key."""
    digest = hmac.digest(str(key).encode(), _DERIVED_FOR, "sha256")
    return base64.urlsafe_b64encode(digest).decode()


def _is_strong(value: str) -> bool:
    try:
        return len(base64.b64decode(value, altchars=b"-_", validate=True)) >= SECRET_BYTES
    except (binascii.Error, ValueError):
        return False
