"""The accounts that pay for a call or limit it, in the order in which they are used. Pure.

An account is a wallet, the window of a subscription's quota, or the window of the spend limit of a
key or user. All are held, leased and settled in the same way. A spend limit does not pay, but the
cost of a call counts against it.
"""

import functools
from collections.abc import Sequence

import msgspec

from store.catalog.keys import KeyEntry, Subscription
from store.values.ids import HOUR_MS
from store.values.times import window_at
from store.values.usage_record import WALLET, Charge

SUBSCRIPTION = "subscription"
KEY_LIMIT = "limit"
USER_LIMIT = "user_limit"


class Account(msgspec.Struct, frozen=True, gc=False):
    """An account that calls are charged to or counted against. `id` is unique over all kinds. `ref`
    is the id of the user or key whose changes affect it, `to` its name in charges, `ends_ms` the
    end of its window."""

    id: str
    kind: str
    ref: str
    to: str
    ends_ms: int | None = None


class Payment(msgspec.Struct, frozen=True):
    """The payers of a call, in order, and the spend limits of its key and of its user."""

    payers: tuple[Account, ...]
    limits: tuple[Account, ...] = ()


def payment_of(key: KeyEntry, at_ms: int) -> Payment:
    """Return the payers of a call that arrives at `at_ms`. There are none for `plan_only` without
    an active subscription."""
    by_wallet = _by_wallet(key.user_id)
    unlimited = key.limit_window is None and key.user_limit_window is None
    if not key.subscriptions and unlimited and key.spend_order != "plan_only":
        return by_wallet
    (wallet,) = by_wallet.payers
    plans = tuple(
        _window_of(key, subscription, at_ms)
        for subscription in key.subscriptions
        if subscription.starts_ms <= at_ms < subscription.expires_ms
    )
    payers = {
        "plan_first": (*plans, wallet),
        "wallet_first": (wallet, *plans),
        "plan_only": plans,
        "wallet_only": (wallet,),
    }[key.spend_order]
    return Payment(payers, () if unlimited else _limits_of(key, at_ms))


@functools.lru_cache(maxsize=10_000)
def _by_wallet(user_id: str) -> Payment:
    return Payment((Account(user_id, WALLET, user_id, WALLET),))


def _window_of(key: KeyEntry, subscription: Subscription, at_ms: int) -> Account:
    account_id, ends_ms = quota_at(subscription.id, subscription.window, at_ms)
    to = f"{SUBSCRIPTION}:{subscription.plan}"
    return Account(account_id, SUBSCRIPTION, key.user_id, to, ends_ms)


def _limits_of(key: KeyEntry, at_ms: int) -> tuple[Account, ...]:
    """Return the limits in the order in which every call holds them."""
    limits = []
    for kind, owner, window in (
        (KEY_LIMIT, key.id, key.limit_window),
        (USER_LIMIT, key.user_id, key.user_limit_window),
    ):
        if window is not None:
            account_id, ends_ms = quota_at(owner, window, at_ms)
            limits.append(Account(account_id, kind, owner, kind, ends_ms))
    return tuple(limits)


def quota_at(owner: str, window: str, at_ms: int) -> tuple[str, int | None]:
    """Return the account id and the end (ms) of the window of a subscription, key or user at
    `at_ms`."""
    first_day, ends_ms = _window(window, at_ms // HOUR_MS)
    return f"{owner}:{window}:{first_day}", ends_ms


@functools.lru_cache(maxsize=64)
def _window(window: str, hour: int) -> tuple[int, int | None]:
    # Windows start on the hour, so one look-up serves all calls of that hour.
    return window_at(window, hour * HOUR_MS)


def owner_id(account_id: str) -> str:
    """Return the id of the subscription, key or user that a quota's window belongs to."""
    return account_id.partition(":")[0]


def split(cost_nanos: int, holds: Sequence[Charge]) -> tuple[Charge, ...]:
    """Return the charges of a call. Each payer in order pays up to its hold; the last pays the
    rest."""
    charges, left = [], cost_nanos
    for place, hold in enumerate(holds):
        last = place == len(holds) - 1
        amount = left if last else min(left, hold.amount_nanos)
        if amount:
            charges.append(Charge(hold.to, amount, hold.account))
            left -= amount
    return tuple(charges)
