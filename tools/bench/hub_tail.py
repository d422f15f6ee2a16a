"""Times the live tail of usage with many viewers: when each sees a call, and the CPU that it takes.

    python -m tools.bench.hub_tail --viewers 100

Creates a SQLite store in its own folder, serves the Hub over it in this process, and books calls as
the writer does while the viewers watch, half of them only the calls of one key.
"""

import asyncio
import statistics
import tempfile
import threading
import time
from pathlib import Path

import click
from tornado.httpclient import AsyncHTTPClient, HTTPRequest
from tornado.httpserver import HTTPServer

from handlers.hub.app import make_app
from handlers.hub.web.base import SESSION_COOKIE
from handlers.hub.web.live_tail import VIEWERS_OF_USER_MAX
from handlers.hub.web.site import Site
from store.calls.booking import apply_records
from store.db.database import transaction
from store.values.ids import new_ulid, now_ms
from store.values.usage_record import CallFacts, UsageRecord
from tests.support.ports import HOST, free_port
from tools.bench.harness import session_of, site_of, store

BATCH_S = 0.1  # between two batches of the writer
SETTLE_S = 2.0


def _record(number: int) -> UsageRecord:
    facts = CallFacts(
        *(now_ms(), "u" * 26, "alice", f"{number % 2:026}", "laptop", "default"),
        *("/v1/chat/completions", "chat_completions", "gpt-4.1", True),
    )
    return UsageRecord(id=new_ulid(), call=facts, status=200, channel="main", duration_ms=5)


def book(url: str, seconds: float, batch: int, booked: dict[str, float]) -> None:
    """Book `batch` calls every BATCH_S, and record the time of each by its id."""
    until, number = time.monotonic() + seconds, 0
    with store(url) as db:
        while time.monotonic() < until:
            records = [_record(number + place) for place in range(batch)]
            number += batch
            transaction(db, lambda records=records: apply_records(db, records, now_ms()))  # type: ignore[misc]
            booked |= dict.fromkeys((record.id for record in records), time.monotonic())
            time.sleep(BATCH_S)


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
    cookies = [session_of(site.db, f"admin-{number}") for number in range(admins)]
    queries = ("", f"?key_id={1:026}")
    first = [_record(0), _record(1)]  # makes the key known
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
    waits = [at - booked[call_id] for call_id in booked for at in seen.get(call_id, [])]
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
        with store(url, schema=True) as db:
            site = site_of(db)
            asyncio.run(_run(site, url, viewers, seconds, batch))
            site.close()


if __name__ == "__main__":
    main()
