"""The money this process may promise: holds and settlements, in memory, for the loop's thread.

free = balance last read - open holds - charges that are not written yet. The writer brings
balances and says in the same moment which charges they contain (`applied`), so that no amount is
counted twice or forgotten. The database side of wallets is in wallet; nothing here waits for it
except the first hold of a user.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor

from store.errors import StoreError
from store.usage import WALLET, Charge

Account = tuple[str, str]
"""Who pays: (WALLET, user id)."""

IDLE_S = 300.0
"""A wallet nobody uses for so long is forgotten at the next `applied`, and read anew later."""

_FORGET_PER_CALL = 1000


class WalletEmpty(StoreError):
    """The free money of the account does not cover the least a call may need."""


class Hold:
    """Money that a running call has reserved; to be settled exactly once."""

    __slots__ = ("accounts", "amount_nanos", "settled")

    def __init__(self, accounts: Sequence[Account], amount_nanos: int) -> None:
        self.accounts = accounts
        self.amount_nanos = amount_nanos
        self.settled = False


class _Wallet:
    __slots__ = ("balance", "held", "unwritten", "used_at")

    def __init__(self, balance: int | None, used_at: float) -> None:
        self.balance = balance
        self.held = 0
        self.unwritten = 0
        self.used_at = used_at


class Funds:
    """Holds and charges of all users of this process. All methods are for the loop's thread,
    except `active_users`, which any thread may call.
    """

    def __init__(
        self,
        load_balance: Callable[[str], int],
        executor: Executor,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`load_balance` blocks, runs in the executor and raises StoreUnavailable."""
        self._load_balance = load_balance
        self._executor = executor
        self._clock = clock
        # Least recently used first.
        self._wallets: dict[str, _Wallet] = {}
        self._loading: dict[str, asyncio.Task[None]] = {}

    def try_hold(
        self, accounts: Sequence[Account], wanted_nanos: int, least_nanos: int
    ) -> Hold | None:
        """`hold` without waiting; None when the balance is not known yet."""
        if wanted_nanos <= 0:
            return Hold(accounts, 0)
        user_id = _payer(accounts)
        wallet = self._wallets.get(user_id)
        if wallet is None or wallet.balance is None:
            return None
        self._touch(user_id, wallet)
        free = wallet.balance - wallet.held - wallet.unwritten
        if free >= wanted_nanos:
            amount = wanted_nanos
        elif free >= least_nanos > 0:
            amount = free
        else:
            raise WalletEmpty("the wallet's free balance does not cover this call")
        wallet.held += amount
        return Hold(accounts, amount)

    async def hold(self, accounts: Sequence[Account], wanted_nanos: int, least_nanos: int) -> Hold:
        """Reserve money for a call: `wanted`, or all that is free when that is `least` or more.

        Nothing wanted always passes. Raises WalletEmpty, and StoreUnavailable when the balance
        was never seen and the store is away.
        """
        held = self.try_hold(accounts, wanted_nanos, least_nanos)
        while held is None:
            await self._load(_payer(accounts))
            held = self.try_hold(accounts, wanted_nanos, least_nanos)
        return held

    def settle(self, hold: Hold, cost_nanos: int) -> tuple[Charge, ...]:
        """Give a hold back and charge the cost, which may be more or less; the charges made.

        They count as spent from now on; the caller writes them into the call's record.
        """
        if hold.settled:
            raise RuntimeError("a hold is settled once")
        hold.settled = True
        if not hold.amount_nanos and not cost_nanos:
            return ()
        user_id = _payer(hold.accounts)
        wallet = self._wallets.get(user_id)
        if wallet is None:
            wallet = self._wallets[user_id] = _Wallet(None, self._clock())
        wallet.held -= hold.amount_nanos
        wallet.unwritten += cost_nanos
        return (Charge(WALLET, cost_nanos),) if cost_nanos else ()

    def applied(self, balances: Mapping[str, int], charged: Mapping[str, int]) -> None:
        """Take in balances from the store that contain `charged` of this process's charges.

        Both by user id. The writer's posts must arrive in the order it made them.
        """
        for user_id, balance in balances.items():
            if wallet := self._wallets.get(user_id):
                wallet.balance = balance
        for user_id, amount in charged.items():
            if wallet := self._wallets.get(user_id):
                wallet.unwritten -= amount
        self._forget_idle()

    def active_users(self) -> list[str]:
        """The users whose balance should be read again and again."""
        return list(self._wallets)

    def free_nanos(self, user_id: str) -> int | None:
        """What a user could still hold here; None when the balance is not known."""
        wallet = self._wallets.get(user_id)
        if wallet is None or wallet.balance is None:
            return None
        return wallet.balance - wallet.held - wallet.unwritten

    async def _load(self, user_id: str) -> None:
        loading = self._loading.get(user_id)
        if loading is None:
            loading = asyncio.ensure_future(self._read(user_id))
            self._loading[user_id] = loading
        # Shielded: others may wait for the same reading.
        await asyncio.shield(loading)

    async def _read(self, user_id: str) -> None:
        try:
            loop = asyncio.get_running_loop()
            balance = await loop.run_in_executor(self._executor, self._load_balance, user_id)
        finally:
            del self._loading[user_id]
        wallet = self._wallets.setdefault(user_id, _Wallet(None, self._clock()))
        # What the writer brought meanwhile is newer than what was read beside it.
        if wallet.balance is None:
            wallet.balance = balance

    def _touch(self, user_id: str, wallet: _Wallet) -> None:
        wallet.used_at = self._clock()
        del self._wallets[user_id]
        self._wallets[user_id] = wallet

    def _forget_idle(self) -> None:
        # While the store is away nothing is applied, so nothing is forgotten either.
        idle_since = self._clock() - IDLE_S
        for _ in range(min(_FORGET_PER_CALL, len(self._wallets))):
            user_id, wallet = next(iter(self._wallets.items()))
            if wallet.used_at > idle_since:
                return
            if wallet.held or wallet.unwritten:
                self._touch(user_id, wallet)
            else:
                del self._wallets[user_id]


def _payer(accounts: Sequence[Account]) -> str:
    (account,) = accounts
    kind, user_id = account
    if kind != WALLET:
        raise ValueError(f"an account of kind {kind!r} cannot pay")
    return user_id
