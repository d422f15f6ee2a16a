"""The harness of the benchmarks: stores, timers, and a Hub over a store.

Not a program; tools/bench/README.md lists the programs.
"""

import asyncio
import http.client
import resource
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import click
import peewee
from tornado.httpserver import HTTPServer

from conf.settings import Settings
from handlers.hub.app import make_app
from handlers.hub.web.base import SESSION_COOKIE
from handlers.hub.web.site import Site
from store.admin.objects import Sealing
from store.db import migrate
from store.db.database import discard, first_row, insert_rows, open_database, transaction
from store.db.tables.money import Wallet
from store.db.tables.users import User
from store.hub import sessions
from store.values.cipher import Cipher
from store.values.ids import new_ulid, now_ms
from tests.support.ports import HOST, free_port

ROUNDS = 5
PAGE_ROUNDS = 20
START_S = 0.5
PATIENCE_MS = 10_000
READ_TIMEOUT_S = 3600

store_option = click.option("--store", "url", required=True, help="store.url of the database.")


@contextmanager
def store(url: str, *, schema: bool = False) -> Iterator[peewee.Database]:
    """Open a store. With `schema`, also create the missing parts of its schema."""
    db = open_database(url, read_timeout_s=READ_TIMEOUT_S)
    try:
        if schema:
            migrate.up(db)
        yield db
    finally:
        discard(db)


# ---- timers -----------------------------------------------------------------------------------


def least_us(work: Callable[[], object], times: int, rounds: int = ROUNDS) -> float:
    """Return the thread CPU of one execution in µs: the minimum of some rounds of `times`
    executions."""
    figures = []
    for _ in range(rounds):
        begun = time.thread_time_ns()
        for _ in range(times):
            work()
        figures.append((time.thread_time_ns() - begun) / times / 1000)
    return min(figures)


def elapsed_ms(work: Callable[[], object], rounds: int) -> list[tuple[float, float]]:
    """Return (elapsed time, CPU of the process) of each round, in ms."""
    figures = []
    for _ in range(rounds):
        begun, cpu = time.perf_counter(), time.process_time()
        work()
        figures.append(((time.perf_counter() - begun) * 1000, (time.process_time() - cpu) * 1000))
    return figures


def peak_kib() -> int:
    """Return the peak memory of this process."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


# ---- the Hub ----------------------------------------------------------------------------------


class PageFigures(NamedTuple):
    """The figures of a page: elapsed time and CPU of the process in ms, size in bytes."""

    p50_ms: float
    p95_ms: float
    cpu_ms: float
    size: int

    def __str__(self) -> str:
        times = f"{self.p50_ms:7.0f} ms, p95 {self.p95_ms:7.0f}, CPU {self.cpu_ms:6.0f} ms"
        return f"{times}, {self.size:8,} B"


def site_of(db: peewee.Database) -> Site:
    """Return a Hub over a store, with its own secrets."""
    return Site(Settings(), db, Sealing(Cipher(["bench"]), ["bench"]), (), ["bench"])


def session_of(db: peewee.Database, name: str) -> str:
    """Return the cookie of a new session. Create an administrator if no user has the name."""
    row = first_row(db, User.select(User.id).where(User.name == name))
    user_id = str(row[0]) if row else new_ulid()
    if row is None:
        user = {"id": user_id, "name": name, "role": "admin", "spend_order": "plan_first"}

        def create() -> None:
            insert_rows(db, User, [{**user, "created_ms": now_ms()}])
            insert_rows(db, Wallet, [{"user_id": user_id, "balance": 10**10}])

        transaction(db, create)
    return sessions.begin(db, user_id, HOST, "bench")


def serve(site: Site) -> int:
    """Serve the Hub in its own thread. Return its port."""
    port = free_port()

    async def run() -> None:
        HTTPServer(make_app(site)).listen(port, HOST)
        await asyncio.Event().wait()

    threading.Thread(target=lambda: asyncio.run(run()), daemon=True).start()
    time.sleep(START_S)
    return port


def page_size(port: int, path: str, cookie: str) -> int:
    """Load a page and return its size, or that of the first chunk of an export."""
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


def page_figures(port: int, path: str, cookie: str) -> PageFigures:
    """Load a page once to warm up, then PAGE_ROUNDS times, or fewer if it is slow."""
    size = page_size(port, path, cookie)
    figures: list[tuple[float, float]] = []
    while len(figures) < PAGE_ROUNDS and sum(taken for taken, _ in figures) < PATIENCE_MS:
        figures += elapsed_ms(lambda: page_size(port, path, cookie), 1)
    times = sorted(taken for taken, _ in figures)
    cpu_ms = sum(cpu for _, cpu in figures) / len(figures)
    return PageFigures(times[len(times) // 2], times[len(times) * 95 // 100 - 1], cpu_ms, size)
