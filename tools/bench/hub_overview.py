"""Times home, channel status and wallet of a user over the Hub's port: what a browser waits for.

    python -m tools.bench.hub_overview --store sqlite:////tmp/bench.db --user user-1
    python -m tools.bench.hub_overview --store sqlite:////tmp/bench.db --user user-1 --path /usage

The store is that of status.py (200 channels and models) or of usage_records.py (millions of
calls); an administrator of the name is made when there is none. Prints for each page the median and
the 95th percentile of the time gone by, the CPU of the process, and the size.
"""

import asyncio
import http.client
import threading
import time
from typing import NamedTuple

import click
import peewee
from tornado.httpserver import HTTPServer

from conf.settings import Settings
from handlers.hub.app import make_app
from handlers.hub.web.base import SESSION_COOKIE
from handlers.hub.web.site import Site
from store.admin.objects import Sealing
from store.db.database import discard, first_row, insert_rows, open_database, transaction
from store.db.tables.money import Wallet
from store.db.tables.users import User
from store.hub import sessions
from store.values.cipher import Cipher
from store.values.ids import new_ulid, now_ms
from tests.support.ports import HOST, free_port

PATHS = ("/", "/status", "/status?state=available&text=1", "/wallet", "/api/status?group={group}")
ROUNDS = 20
START_S = 0.5
PATIENCE_MS = 10_000


class Figures(NamedTuple):
    """Of a page: time gone by, CPU of the process, ms; bytes."""

    p50_ms: float
    p95_ms: float
    cpu_ms: float
    size: int

    def __str__(self) -> str:
        times = f"{self.p50_ms:7.0f} ms, p95 {self.p95_ms:7.0f}, CPU {self.cpu_ms:6.0f} ms"
        return f"{times}, {self.size:8,} B"


def user_id(db: peewee.Database, name: str) -> str:
    """The id of a user; an administrator is made when there is none of the name."""
    row = first_row(db, User.select(User.id).where(User.name == name))
    if row is not None:
        return str(row[0])
    made = new_ulid()
    user = {"id": made, "name": name, "role": "admin", "spend_order": "plan_first"}

    def work() -> None:
        insert_rows(db, User, [{**user, "created_ms": now_ms()}])
        insert_rows(db, Wallet, [{"user_id": made, "balance": 10**10}])

    transaction(db, work)
    return made


def serve(site: Site) -> int:
    """Serves the Hub in a thread of its own; its port."""
    port = free_port()

    async def run() -> None:
        HTTPServer(make_app(site)).listen(port, HOST)
        await asyncio.Event().wait()

    threading.Thread(target=lambda: asyncio.run(run()), daemon=True).start()
    time.sleep(START_S)
    return port


def ask(port: int, path: str, cookie: str) -> int:
    """The size of a page; of an export what has come first."""
    connection = http.client.HTTPConnection(HOST, port, timeout=60)
    try:
        connection.request("GET", path, headers={"Cookie": f"{SESSION_COOKIE}={cookie}"})
        answer = connection.getresponse()
        size = len(answer.read1() if "/export" in path else answer.read())
    finally:
        connection.close()
    if answer.status != http.HTTPStatus.OK:
        raise click.ClickException(f"{path}: status {answer.status}")
    return size


def time_of(port: int, path: str, cookie: str) -> Figures:
    """Asks for a page ROUNDS times, after once that does not count; of a slow one fewer times."""
    ask(port, path, cookie)
    times, cpu = [], time.process_time()
    for _ in range(ROUNDS):
        began = time.perf_counter()
        size = ask(port, path, cookie)
        times.append((time.perf_counter() - began) * 1000)
        if sum(times) > PATIENCE_MS:
            break
    cpu_ms = (time.process_time() - cpu) * 1000 / len(times)
    times.sort()
    return Figures(times[len(times) // 2], times[len(times) * 95 // 100 - 1], cpu_ms, size)


@click.command()
@click.option("--store", "url", required=True, help="Url of a filled store.")
@click.option("--user", required=True, help="Whose pages.")
@click.option("--group", default="group-1", help="Of the JSON of channel status.")
@click.option("--path", "paths", multiple=True, default=PATHS, help="Other pages than these.")
def main(url: str, user: str, group: str, paths: tuple[str, ...]) -> None:
    """Print how long each page takes."""
    db = open_database(url)
    site = Site(Settings(), db, Sealing(Cipher(["bench"]), ["bench"]), (), ["bench"])
    cookie = sessions.begin(db, user_id(db, user), HOST, "bench")
    port = serve(site)
    for path in paths:
        path = path.format(group=group)
        click.echo(f"{path:32} {time_of(port, path, cookie)}")
    discard(db)


if __name__ == "__main__":
    main()
