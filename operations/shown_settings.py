"""The settings in force, for people: secrets masked."""

import re
from collections.abc import Mapping
from typing import Any

from conf.settings import SETTINGS, Settings, to_plain

MASK = "***"

# user and password of an address; anything that looks like a secret key
_CREDENTIALS = re.compile(r"(?<=://)[^/@\s]*@|\bsk-[A-Za-z0-9._-]{8,}")


def mask(text: str) -> str:
    """The text without passwords of addresses and without secret keys."""
    return _CREDENTIALS.sub(lambda match: "***@" if match[0].endswith("@") else "sk-***", text)


def rows(settings: Settings, origins: Mapping[str, str] | None) -> list[dict[str, Any]]:
    """Name and value of each setting; with `origins` also where it comes from."""
    plain = to_plain(settings)
    shown = []
    for name, setting in SETTINGS.items():
        value = plain[setting.section][setting.key]
        if setting.secret and value:
            value = MASK
        elif isinstance(value, str):
            value = mask(value)
        where = {} if origins is None else {"origin": origins.get(name, "default")}
        shown.append({"name": name, "value": value, **where})
    return shown
