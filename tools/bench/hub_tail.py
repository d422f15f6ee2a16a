"""Times the live tail of usage with many viewers: when each sees a call, and the CPU that it takes.

    python -m tools.bench.hub_tail --viewers 100

Makes a SQLite store in a folder of its own, serves the Hub over it in this process, and books calls
as the writer does while so many viewers look on, half of them at the calls of one key only.
"""

import asyncio
import statistics
import tempfile
import threading
import time
from pathlib import Path

import click
import peewee
from tornado.httpclient import AsyncHTTPClient, HTTPRequest
from tornado.httpserver import HTTPServer

from conf.settings import Settings
from handlers.hub.app import make_app
from handlers.hub.web.base import SESSION_COOKIE
from handlers.hub.web.live_tail import VIEWERS_OF_USER_MAX
from handlers.hub.web.site import Site
from store.admin.objects import Sealing
from store.calls.booking import apply_records
from store.db import migrate
from store.db.database import discard, insert_rows, open_database, transaction
from store.db.tables.money import Wallet
from store.db.tables.users import User
from store.hub import sessions
from store.values.cipher import Cipher
from store.values.ids import new_ulid, now_ms
from store.values.usage_record import CallFacts, UsageRecord
from tests.support.ports import HOST, free_port

BATCH_S = 0.1  # between two batches of the writer
SETTLE_S = 2.0


def _admin(db: peewee.Database, name: str) -> str:
    user_id = new_ulid()
    user = {"id": user_id, "name": name, "role": "admin", "spend_order": "plan_first"}

    def work() -> None:
        insert_rows(db, User, [{**user, "created_ms": now_ms()}])
        insert_rows(db, Wallet, [{"user_id": user_id, "balance": 0}])

    transaction(db, work)
    return sessions.begin(db, user_id, HOST, "bench")


def _record(number: int) -> UsageRecord:
    facts = CallFacts(
        *(now_ms(), "u" * 26, "alice", f"{number % 2:026}", "laptop", "default"),
        *("/v1/chat/completions", "chat_completions", "gpt-4.1", True),
    )
    return UsageRecord(id=new_ulid(), call=facts, status=200, channel="main", duration_ms=5)


def book(url: str, seconds: float, batch: int, booked: dict[str, float]) -> None:
    """Books `batch` calls each BATCH_S; by id, when each was booked."""
    db = open_database(url)
    until = time.monotonic() + seconds
    number = 0
    while time.monotonic() < until:
        records = [_record(number + place) for place in range(batch)]
        number += batch
        transaction(db, lambda records=records: apply_records(db, records, now_ms()))  # type: ignore[misc]
        booked |= dict.fromkeys((one.id for one in records), time.monotonic())
        time.sleep(BATCH_S)
    discard(db)


async def _look(port: int, cookie: str, query: str, seen: dict[str, list[float]]) -> None:
    def take(piece: bytes) -> None:
        at = time.monotonic()
        for line in piece.split(b"\n"):
            if line.startswith(b"id: "):
                seen.setdefault(line[4:].decode(), []).append(at)

    client = AsyncHTTPClient(force_instance=True, max_clients=1)
    request = HTTPRequest(
        f"http://{HOST}:{port}/api/usage/tail{query}",
        headers={"Cookie": f"{SESSION_COOKIE}={cookie}"},
        request_timeout=0,
        streaming_callback=take,
    )
    try:
        await client.fetch(request)
    finally:
        client.close()


async def _run(site: Site, url: str, viewers: int, seconds: float, batch: int) -> None:
    port, seen = free_port(), dict[str, list[float]]()
    server = HTTPServer(make_app(site))
    server.listen(port, HOST)
    admins = -(-viewers // VIEWERS_OF_USER_MAX)
    cookies = [_admin(site.db, f"admin-{number}") for number in range(admins)]
    queries = ("", f"?key_id={1:026}")
    first = [_record(0), _record(1)]  # so that the key is known
    transaction(site.db, lambda: apply_records(site.db, first, now_ms()))
    looking = [
        asyncio.create_task(_look(port, cookies[number % admins], queries[number % 2], seen))
        for number in range(viewers)
    ]
    await asyncio.sleep(SETTLE_S)
    booked: dict[str, float] = {}
    writer = threading.Thread(target=book, args=(url, seconds, batch, booked))
    cpu = time.process_time()
    writer.start()
    while writer.is_alive():  # noqa: ASYNC110
        await asyncio.sleep(BATCH_S)
    await asyncio.sleep(SETTLE_S)
    cpu = time.process_time() - cpu
    waits = [at - booked[one] for one in booked for at in seen.get(one, [])]
    cuts = statistics.quantiles(waits, n=100)
    click.echo(
        f"{viewers} viewers, {len(booked)} calls in {seconds:.0f} s, {len(waits)} messages:"
        f" seen after {cuts[49] * 1000:.0f} ms, p99 {cuts[98] * 1000:.0f}; CPU of the process,"
        f" writer and viewers included, {100 * cpu / (seconds + SETTLE_S):.0f} %"
    )
    server.stop()
    await server.close_all_connections()
    await asyncio.gather(*looking, return_exceptions=True)


@click.command()
@click.option("--viewers", default=100, show_default=True)
@click.option("--seconds", default=10.0, show_default=True)
@click.option("--batch", default=5, show_default=True, help="Calls booked each tenth of a second.")
def main(viewers: int, seconds: float, batch: int) -> None:
    """Print when viewers see a call."""
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{Path(folder) / 'bench.db'}"
        db = open_database(url)
        migrate.up(db)
        site = Site(Settings(), db, Sealing(Cipher(["bench"]), ["bench"]), (), ["bench"])
        asyncio.run(_run(site, url, viewers, seconds, batch))
        site.close()


if __name__ == "__main__":
    main()
