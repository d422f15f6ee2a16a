"""Times home, channel status and wallet of a user over the Hub's port: what a browser waits for.

    python -m bench.hub_overview --store sqlite:////tmp/bench.db --user user-1
    python -m bench.hub_overview --store sqlite:////tmp/bench.db --user user-1 --path /usage

The store is that of bench.status (200 channels and models) or of bench.usage_records (millions of
calls); an administrator of the name is made when there is none. Prints for each page the median and
the 95th percentile of the time gone by, the CPU of the process, and the size.
"""

import asyncio
import http.client
import threading
import time

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


def _user_id(db: peewee.Database, name: str) -> str:
    row = first_row(db, User.select(User.id).where(User.name == name))
    if row is not None:
        return str(row[0])
    user_id = new_ulid()
    user = {"id": user_id, "name": name, "role": "admin", "spend_order": "plan_first"}

    def work() -> None:
        insert_rows(db, User, [{**user, "created_ms": now_ms()}])
        insert_rows(db, Wallet, [{"user_id": user_id, "balance": 10**10}])

    transaction(db, work)
    return user_id


def _serve(site: Site, port: int) -> None:
    async def run() -> None:
        HTTPServer(make_app(site)).listen(port, HOST)
        await asyncio.Event().wait()

    threading.Thread(target=lambda: asyncio.run(run()), daemon=True).start()


def _ask(port: int, path: str, cookie: str) -> int:
    connection = http.client.HTTPConnection(HOST, port, timeout=60)
    try:
        connection.request("GET", path, headers={"Cookie": f"{SESSION_COOKIE}={cookie}"})
        answer = connection.getresponse()
        size = len(answer.read())
    finally:
        connection.close()
    if answer.status != http.HTTPStatus.OK:
        raise click.ClickException(f"{path}: status {answer.status}")
    return size


@click.command()
@click.option("--store", "url", required=True, help="Url of a filled store.")
@click.option("--user", required=True, help="Whose pages.")
@click.option("--group", default="group-1", help="Of the JSON of channel status.")
@click.option("--path", "paths", multiple=True, default=PATHS, help="Other pages than these.")
def main(url: str, user: str, group: str, paths: tuple[str, ...]) -> None:
    """Print how long each page takes."""
    db = open_database(url)
    site = Site(Settings(), db, Sealing(Cipher(["bench"]), ["bench"]), ())
    cookie = sessions.begin(db, _user_id(db, user), HOST, "bench")
    port = free_port()
    _serve(site, port)
    time.sleep(0.5)
    for path in paths:
        path = path.format(group=group)
        times, cpu = [], time.process_time()
        for _ in range(ROUNDS):
            began = time.perf_counter()
            size = _ask(port, path, cookie)
            times.append((time.perf_counter() - began) * 1000)
        cpu_ms = (time.process_time() - cpu) * 1000 / ROUNDS
        p50, p95 = sorted(times)[ROUNDS // 2], sorted(times)[ROUNDS * 95 // 100 - 1]
        click.echo(f"{path:32} {p50:7.0f} ms, p95 {p95:7.0f}, CPU {cpu_ms:6.0f} ms, {size:8,} B")
    discard(db)


if __name__ == "__main__":
    main()
