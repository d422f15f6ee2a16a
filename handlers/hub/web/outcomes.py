"""How pages show the end of a call: the shape of each outcome, the short words of each code; words
are `codes.outcome_…` and `codes.CODE`."""

import re
from collections.abc import Mapping

_WAIT = re.compile(r"in (\d+) ?s\b")
_LEFT = re.compile(r": ([\d.]+[^,]*) is left, and it needs at least ([\d.]+.*?)\.(?: |$)")
OF_MONEY = frozenset({"insufficient_quota", "subscription_quota_exceeded"})
"""Codes of calls that wallet, plan or limit did not cover."""

SHAPES: Mapping[str, str] = {
    "ok": "ok",
    "refused": "idle",
    "client_gone": "gone",
    "upstream_truncated": "warn",
    "drained": "live",
}
"""Of outcomes that are no plain failure; all others are `bad`."""


def shape_of(outcome: str) -> str:
    """The shape of an outcome, as the part State takes it."""
    return SHAPES.get(outcome, "bad")


def code_word(words: Mapping[str, str], code: str | None) -> str | None:
    """The short words of an error code; the code itself where there are none; None for none."""
    return words.get(f"codes.{code}", code) if code else None


def short_word(words: Mapping[str, str], code: str | None) -> str | None:
    """The same where there is little room; its whole words where these are short."""
    return words.get(f"codes.short_{code}") or code_word(words, code)


def reason(words: Mapping[str, str], code: str | None, message: str | None) -> str | None:
    """The same with what the whole message tells: how long to wait, or how much money is left and
    how much is needed."""
    money = _LEFT.search(message or "")
    if money and (with_money := words.get(f"codes.{code}_left")):
        return with_money.format(left=money[1], needed=money[2])
    wait = _WAIT.search(message or "")
    if wait and (with_wait := words.get(f"codes.{code}_wait")):
        return with_wait.format(wait=wait[1])
    return code_word(words, code)


def upstreams_fault(outcome: str) -> bool:
    """Whether neither the client nor a rule of the gateway ended a call."""
    return outcome not in ("ok", "refused", "client_gone")
