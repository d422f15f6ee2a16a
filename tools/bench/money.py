"""Times what money and records add to a call: hold, settle, journal, writer. Thread CPU in us.

    python -m tools.bench.money --store sqlite:////tmp/bench.db

Each figure is the minimum of several rounds. The store is created if it is missing. One user's
wallet has a warm lease, as in a worker under load.
"""

import asyncio
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import click
import peewee

from store.calls.booking import Batch, account_charges, apply_batch
from store.calls.journal import Journal
from store.calls.journal_lines import OpenLine
from store.calls.journal_reader import JournalReader
from store.catalog.keys import KeyEntry
from store.db.database import execute, transaction
from store.money import leases
from store.money.accounts import Payment, payment_of
from store.money.funds import Funds, Hold
from store.money.leases import Order
from store.values.ids import new_ulid, now_ms
from store.values.pricing import NANOS_PER_UNIT, plain_rate
from store.values.usage import Usage
from store.values.usage_record import AttemptRecord, CallFacts, Charge, UsageRecord
from tools.bench.harness import ROUNDS, store, store_option

CALLS = 2_000
BATCH = 250  # records in a batch: 2500 calls a second, for 100 ms
PRICES = plain_rate({"input": 2 * 10**9, "output": 8 * 10**9, "cache_read": 5 * 10**8})
ATTEMPT = AttemptRecord("openai-main", 200, None, 12)
WANTED, COST = 66_000_000, 1_630_000


def _key(user_id: str) -> KeyEntry:
    return KeyEntry(
        *(new_ulid(), "laptop", user_id, "alice", "default", False, False, None, None, ()),
        *("plan_first", None),
    )


def _facts(key: KeyEntry, hold: Hold) -> CallFacts:
    return CallFacts(
        started_ms=now_ms(),
        user_id=key.user_id,
        user=key.user,
        key_id=key.id,
        key_name=key.name,
        group=key.group,
        endpoint="/v1/chat/completions",
        family="chat_completions",
        model="gpt-4.1",
        stream=False,
        prices=PRICES.text,
        multiplier_ppm=10**6,
        client_ip="127.0.0.1",
        user_agent="python-requests/2.32.3",
        limit_account=hold.limit_accounts[0],
    )


def _open_line(call_id: str, facts: CallFacts, hold: Hold) -> OpenLine:
    return OpenLine(id=call_id, call=facts, input_tokens=15, holds=hold.parts)


def _record(call_id: str, facts: CallFacts, charges: tuple[Charge, ...]) -> UsageRecord:
    return UsageRecord(
        id=call_id,
        call=facts,
        upstream_family="chat_completions",
        upstream_model="gpt-4.1-2025-04-14",
        channel="openai-main",
        status=200,
        outcome="ok",
        error_code=None,
        error_message=None,
        usage=Usage(15, 200),
        usage_source="reported",
        cost_nanos=COST,
        charges=charges,
        reported_usage=None,
        ttft_ms=12,
        duration_ms=13,
        attempts=(ATTEMPT,),
        upstream_request_id="req_0123456789",
        node="web-1",
        stored=None,
    )


class Bench:
    """The steps of a call, run in their order for CALLS calls a round. Keeps the best times."""

    def __init__(self, db: peewee.Database, folder: Path) -> None:
        self.db = db
        self.journal = Journal(folder, refused_per_minute=10**9)
        self.reader = JournalReader(folder, self.journal.id)
        self.funds = Funds(self._lend)
        self.offset = 0
        self.best: dict[str, float] = {}
        self.key = _key(self._user())

    def _user(self) -> str:
        user_id = new_ulid()
        row = (user_id, 10**9 * NANOS_PER_UNIT)
        insert = 'INSERT INTO "wallets" ("user_id", "balance") VALUES (?, ?)'
        transaction(self.db, lambda: execute(self.db, insert, row))
        insert = 'INSERT INTO "journals" ("id", "node", "offset", "opened_ms") VALUES (?, ?, 0, 0)'
        transaction(self.db, lambda: execute(self.db, insert, (self.journal.id, "web-1")))
        return user_id

    def _lend(self, order: Order) -> bool:
        [answer] = transaction(self.db, lambda: leases.carry_out(self.db, self.journal.id, [order]))
        asyncio.get_running_loop().call_soon(self.funds.answered, order, answer)
        return True

    def time(self, name: str, work: Callable[[], object]) -> None:
        began = time.thread_time_ns()
        work()
        micros = (time.thread_time_ns() - began) / 1000 / CALLS
        self.best[name] = min(micros, self.best.get(name, micros))

    async def round(self) -> None:
        payment: Payment = payment_of(self.key, now_ms())
        warm = [await self.funds.hold(payment, WANTED, WANTED) for _ in range(CALLS)]
        for hold in warm:
            self.funds.settle(hold, 0)
        await asyncio.sleep(0)
        holds: list[Hold] = []
        ids = [new_ulid() for _ in range(CALLS)]
        facts: list[CallFacts] = []

        def hold_all() -> None:
            for _ in range(CALLS):
                hold = self.funds.try_hold(payment_of(self.key, 1), WANTED)
                assert hold is not None
                holds.append(hold)

        def open_all() -> None:
            for call_id, hold in zip(ids, holds, strict=True):
                facts.append(_facts(self.key, hold))
                self.journal.open_call(_open_line(call_id, facts[-1], hold))

        charges: list[tuple[Charge, ...]] = []

        def settle_all() -> None:
            charges.extend([self.funds.settle(hold, COST) for hold in holds])

        def close_all() -> None:
            for call_id, call, charged in zip(ids, facts, charges, strict=True):
                self.journal.close_call(_record(call_id, call, charged))

        self.time("hold", hold_all)
        self.time("settle", settle_all)
        self.time("journal, open line", open_all)
        self.time("journal, close line", close_all)
        while self.journal.synced_offset < self.journal.written_offset:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        self.time("writer", self._write_all)

    def _write_all(self) -> None:
        while self.offset < self.journal.synced_offset:
            closed = self.reader.read_closed(self.offset, self.journal.synced_offset, BATCH)
            batch = Batch(self.journal.id, self.offset, closed.offset, closed.records)
            left = transaction(self.db, partial(apply_batch, self.db, batch, now_ms()))
            self.offset = closed.offset
            self.funds.applied(left, account_charges(closed.records))


async def _run(bench: Bench) -> None:
    for _ in range(ROUNDS):
        await bench.round()


@click.command()
@store_option
def main(url: str) -> None:
    """Print the cost of each step."""
    with store(url, schema=True) as db, tempfile.TemporaryDirectory() as folder:
        bench = Bench(db, Path(folder))
        asyncio.run(_run(bench))
        bench.journal.close()
    for name, micros in bench.best.items():
        click.echo(f"{name:22} {micros:6.2f}")
    click.echo(f"{'together':22} {sum(bench.best.values()):6.2f}")


if __name__ == "__main__":
    main()
