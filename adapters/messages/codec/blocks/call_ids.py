"""Ids of tool calls: the family takes letters, digits, ``_`` and ``-`` alone; others are written as
``gw_`` and base64url, which can be read again. Imported by the codec."""

import base64
import binascii
import re

_FIT = re.compile(r"[a-zA-Z0-9_-]+")
_PREFIX = "gw_"


def fit_id(given: str) -> str:
    """The id as the family takes it."""
    if _FIT.fullmatch(given) and not given.startswith(_PREFIX):
        return given
    encoded = base64.urlsafe_b64encode(given.encode(errors="replace"))
    return _PREFIX + encoded.rstrip(b"=").decode()


def given_id(fit: str) -> str:
    """The id that ``fit_id`` was given; any other as it is."""
    if not fit.startswith(_PREFIX):
        return fit
    text = fit[len(_PREFIX) :]
    try:
        found = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode()
    except (binascii.Error, ValueError):
        return fit
    return found if found and fit_id(found) == fit else fit
