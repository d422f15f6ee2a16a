"""Needs: problems shown on the home pages; and the need about calls refused for lack of money,
which members and administrators see."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import peewee

from handlers.hub.web.formats import amounts_lacking, money
from handlers.hub.web.parts import At
from store.calls.reading.refusals import MoneyRefusals, money_refusals, of_today
from store.money import wallet
from store.values.errors import NotFound
from store.values.pricing import parse_money
from store.values.usage_record import rfc3339

MONEY_DECIMALS = 2
WALLET_SHORT = "insufficient_quota"


@dataclass(frozen=True, slots=True)
class Need:
    """A problem that the user can fix. `fact`, `detail` and `link` are names of texts: two
    sentences and the label of the link to the fix. `values`: the values in the texts."""

    shape: str
    fact: str
    detail: str
    link: str
    href: str
    values: Mapping[str, Any] = field(default_factory=dict)


def money_needs(db: peewee.Database, at_ms: int, user: str) -> list[Need]:
    """Return the need of a member whose calls were refused today for lack of money, if they still
    would be."""
    refusals = money_refusals(db, of_today(at_ms, user))
    values = refusals and lacking(db, user, refusals)
    if not values:
        return []
    detail = money_detail(values)
    return [Need("bad", "need_money", detail, "need_wallet", "/wallet#redeem", values)]


def lacking(db: peewee.Database, user: str, refusals: MoneyRefusals) -> dict[str, Any] | None:
    """Return the values of the texts about refused calls: `calls`, `since`, and from the last
    call's message `left` and `needed`, empty if it has no amounts. None: the wallet has enough
    money now."""
    code, amounts = refusals.last["error_code"], amounts_lacking(refusals.last["error_message"])
    if code == WALLET_SHORT:
        try:
            balance_nanos = wallet.show(db, user).balance_nanos
        except NotFound:
            return None
        needed_nanos = parse_money(amounts[1].split()[0]) if amounts else 1
        if balance_nanos >= needed_nanos:
            return None
    left, needed = map(_short, amounts or ("", ""))
    return {
        **{"calls": refusals.calls, "since": At(refusals.first_ms)},
        **{"left": left, "needed": needed, "of": code},
    }


def _short(amount: str) -> str:
    """Return an amount with its currency, formatted as in lists."""
    number, _, currency = amount.partition(" ")
    return f"{money(number)} {currency}".rstrip() if number else ""


def money_detail(values: Mapping[str, Any]) -> str:
    """Return the name of the text below the one about refused calls."""
    if values["left"]:
        return "need_money_amounts"
    return "need_money_wallet" if values["of"] == WALLET_SHORT else "need_money_quota"


def need_to_plain(need: Need) -> dict[str, Any]:
    """Return the kind of a need, its page and its values as JSON. Unknown times are null."""
    values = {
        name: (rfc3339(value.at_ms) if value.at_ms else None) if isinstance(value, At) else value
        for name, value in need.values.items()
    }
    return {"need": need.fact.removeprefix("need_"), "page": need.href, **values}
