"""Times all pages and endpoints of the Hub with ten million records of 1,500 users.

    python -m tools.bench.hub_size
    python -m tools.bench.hub_size --store mysql://root@127.0.0.1:3307/bench --only errors

Starts its own MariaDB and fills it as usage_records.py does, or uses a store, which it fills if it
has no records. Adds users, keys, models, channels and groups that the records name, and an audit
log of AUDITED changes. Then it starts a gateway, with the Hub in its own process, and opens each
page once, as the busiest member and as an administrator. It reads the Hub's memory MEMORY_AFTER_S
later. Then it requests each page until it has ROUNDS answers.

The line of each page has: the median and the 95th percentile until the first byte, the first one
ever, and until the last byte; of a request, the time in the database and the CPU of the Hub; the
bytes of the answer, compressed, and with the assets of a first visit. It ends with SLOW or LARGE
beyond SLOW_MS and LARGE_BYTES.
"""

import contextlib
import gzip
import html
import http.client
import random
import re
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import quote

import click
import peewee

from handlers.hub.web.base import SESSION_COOKIE
from store.calls.usage_queries import Filters, history
from store.db.database import execute, first_row, insert_rows, transaction
from store.db.tables.catalog import Channel, Group, Model, Price
from store.db.tables.system import AuditRow
from store.db.tables.usage import UsageRow
from store.db.tables.users import ApiKey, User
from store.values.ids import DAY_MS, HOUR_MS, first_ulid, new_ulid, now_ms, ulid
from store.values.usage_record import rfc3339
from tests.support.gateway import Gateway
from tests.support.mariadb import MariaDb
from tests.support.ports import HOST, free_port
from tools.bench.harness import session_of, store
from tools.bench.hub_pages import ADMIN_PAGES, MEMBER_PAGES
from tools.bench.usage_records import BATCH_ROWS, CHANNELS, MODELS, PRICES, USERS, fill_days

SLOW_MS, LARGE_BYTES = 300, 150_000
ROUNDS = 20
PATIENCE_S = 20  # for one page, after ROUNDS_MIN answers
ROUNDS_MIN = 5
MEMORY_AFTER_S = 15
MEMORY_MIB = 70
MEMBER, ADMIN = "user-0", "bench-admin"
AUDITED = 100_000
GROUP_ID = f"01GROUP{0:019}"
SERVER_OPTIONS = (
    *("--innodb-buffer-pool-size=1G", "--innodb-log-file-size=1G"),
    *("--innodb-flush-log-at-trx-commit=0", "--skip-innodb-doublewrite"),
)
_DATABASE_S = """SELECT SUM(busy_time) FROM information_schema.user_statistics"""
_ASSET = re.compile(rb'(?:href|src)="(/static/[^"]+)"')
_LATER = re.compile(rb'data-bones="([^"]+)"')
_IMPORT = re.compile(rb'(?:from|import)\s*\(?"(/static/[^"]+|\./[^"]+)"')

Rows = list[dict[str, Any]]


def people(db: peewee.Database) -> Iterator[tuple[Any, Rows]]:
    """Yield the objects that the records name, and an audit log, a batch at a time."""
    group = {"multiplier_ppm": 1_000_000, "models": ["*"], "entries": []}
    yield Group, [{"id": GROUP_ID, "name": "default", **group}]
    models = {f"model-{number}": f"01MODEL{number:019}" for number in range(MODELS)}
    yield (
        Model,
        [{"id": id_, "name": name, "created_ms": 0} for name, id_ in models.items()],
    )
    price = {"effective_ms": 0, "input": PRICES.prices["input"], "output": PRICES.prices["output"]}
    yield Price, [{"model_id": model_id, **price} for model_id in models.values()]
    channel: dict[str, Any] = {
        "vendor": "demo",
        "family": "chat_completions",
        "base_url": "https://vendor.example",
    }
    channel |= {"models": {name: f"{name}-2026-01-01" for name in models}, "groups": ["default"]}
    names = [f"channel-{number}" for number in range(CHANNELS)]
    yield Channel, [{"id": new_ulid(), "name": name, **channel} for name in names]
    user = {"role": "member", "spend_order": "plan_first", "created_ms": 0}
    yield (
        User,
        [{"id": f"01USER{n:020}", "name": f"user-{n}", **user} for n in range(USERS)],
    )
    key: dict[str, Any] = {
        "group_id": GROUP_ID,
        "prefix": "sl-benc",
        "last_four": "0000",
        "models": ["*"],
    }
    key |= {"networks": [], "limit_window": "month", "created_ms": 0}
    keys = [(number, f"01USER{number // 2:020}") for number in range(2 * USERS)]
    for owned in (keys[at : at + BATCH_ROWS] for at in range(0, len(keys), BATCH_ROWS)):
        yield (
            ApiKey,
            [
                {"id": f"01KEY{number:021}", "user_id": owner, "name": f"key-{number}", **key}
                for number, owner in owned
            ],
        )
    for at in range(0, AUDITED, BATCH_ROWS):
        yield AuditRow, [_change(number) for number in range(at, at + BATCH_ROWS)]


def _change(number: int) -> dict[str, Any]:
    chance, at_ms = random.Random(number), now_ms() - (AUDITED - number) * 60_000
    kind = ("user", "key", "channel", "model")[number % 4]
    fields = {"rpm": chance.randrange(100), "keys": ["***"], "groups": ["default"]}
    return {
        **{"id": ulid(at_ms, chance.randbytes(10)), "at_ms": at_ms, "action": "update"},
        **{"actor": ("boss", "ops", "cli")[number % 3], "kind": kind},
        **{"name": f"{kind}-{number % 1_000}", "before": fields, "after": {**fields, "rpm": 7}},
    }


def _make_up(db: peewee.Database) -> None:
    if first_row(db, User.select(User.id).where(User.name == MEMBER)) is None:
        for table, rows in people(db):
            transaction(db, lambda table=table, rows=rows: insert_rows(db, table, rows))  # type: ignore[misc]


def _places(db: peewee.Database) -> dict[str, str]:
    """Return the values for names in braces."""
    [last] = history(db, Filters(user=MEMBER), 1)
    deep_ms = last["started_ms"] - 20 * DAY_MS
    changes = AuditRow.select(AuditRow.id).order_by(AuditRow.id.desc()).offset(AUDITED // 2)
    audit = first_row(db, changes.limit(1))
    hours = rfc3339(last["started_ms"] - 2 * HOUR_MS)
    return {
        **{"call": last["id"], "key": f"01KEY{0:021}", "deep": first_ulid(deep_ms)},
        **{"audit": str(audit[0]) if audit else "", "h": quote(hours)},
    }


@dataclass(slots=True)
class PageTimes:
    """The times of the answers to one page: seconds until first and last byte, the bytes of the
    first."""

    first_s: list[float] = field(default_factory=list)
    whole_s: list[float] = field(default_factory=list)
    size: int = 0
    visit: int = 0
    status: int = 0
    database_ms: float = 0
    cpu_ms: float = 0

    def __str__(self) -> str:
        first, whole = sorted(self.first_s), sorted(self.whole_s)
        p95 = first[max(0, len(first) * 95 // 100 - 1)] * 1000
        text = (
            f"{first[len(first) // 2] * 1000:6.0f} {p95:6.0f} {self.first_s[0] * 1000:6.0f}"
            f" {whole[len(whole) // 2] * 1000:6.0f} {self.database_ms:6.0f} {self.cpu_ms:5.0f}"
            f" {self.size:8,} {self.visit:8,}"
        )
        marks = [("SLOW", p95 > SLOW_MS), ("LARGE", self.visit > LARGE_BYTES)]
        marks.append((f"status {self.status}", self.status >= HTTPStatus.BAD_REQUEST))
        return " ".join([text, *(mark for mark, is_so in marks if is_so)])


class Visitor:
    """A signed-in user without a browser cache."""

    def __init__(self, port: int, cookie: str) -> None:
        self._port = port
        self._headers = {"Cookie": f"{SESSION_COOKIE}={cookie}; zone=Europe/Berlin"}
        self._headers["Accept-Encoding"] = "gzip"

    def ask(self, path: str, times: PageTimes) -> bytes:
        """Request a page, then the sums that it loads later, and add its times. For an export, stop
        after the first chunk."""
        connection = http.client.HTTPConnection(HOST, self._port, timeout=60)
        try:
            begun = time.perf_counter()
            connection.request("GET", path, headers=self._headers)
            answer = connection.getresponse()
            times.first_s.append(time.perf_counter() - begun)
            data = answer.read1() if "/export" in path or ".csv" in path else answer.read()
            times.whole_s.append(time.perf_counter() - begun)
        finally:
            connection.close()
        times.status, times.size = answer.status, len(data)
        packed = answer.getheader("Content-Encoding") == "gzip" and answer.length == 0
        text = gzip.decompress(data) if packed else data
        if (later := _LATER.search(text)) and "wait=1" not in path:  # as a browser does
            sums = PageTimes()
            self.ask(html.unescape(later[1].decode()), sums)
            times.whole_s[-1] += sums.whole_s[0]
        return text

    def first_visit(self, path: str, times: PageTimes) -> None:
        """Request a page and its assets, and count their bytes."""
        text, sizes = self.ask(path, times), {"": times.size}
        ahead = [match.decode() for match in _ASSET.findall(text)] if b"<html" in text else []
        while ahead:
            asset = PageTimes()
            if (address := ahead.pop()) not in sizes:
                code = self.ask(address, asset)
                sizes[address] = asset.size
                names = [match.decode() for match in _IMPORT.findall(code)]
                ahead += [name.replace("./", "/static/js/") for name in names]
        times.visit = sum(sizes.values())


def _pid_of_hub(gateway: Gateway) -> int:
    for pid in gateway.pids():
        if b"hub" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"):
            return pid
    raise click.ClickException("the Hub does not run")


def _cpu_ms(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * 10.0


def _memory_mib(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.findall(r"VmRSS:\s+(\d+)", status)[0]) / 1024


@contextlib.contextmanager
def _hub(url: str) -> Iterator[tuple[int, int]]:
    """Start a gateway on a store. Yield the port and the process of its Hub."""
    port = free_port()
    settings = {"hub.enabled": "true", "hub.port": port, "store.url": url, "server.workers": 1}
    with tempfile.TemporaryDirectory() as folder:
        gateway = Gateway(Path(folder), {**settings, "log.level": "warning"})
        try:
            gateway.start(wait_s=60)
            deadline = time.monotonic() + 60
            while True:
                with contextlib.suppress(OSError):
                    gateway.call("GET", "/sign-in", port=port)
                    break
                if time.monotonic() > deadline:
                    raise click.ClickException("the Hub does not answer")
                time.sleep(0.1)
            yield port, _pid_of_hub(gateway)
        finally:
            gateway.close()


def _database_ms(db: peewee.Database) -> float:
    rows = transaction(db, lambda: execute(db, _DATABASE_S).fetchall())
    return float(rows[0][0] or 0) * 1000


def _measure(db: peewee.Database, url: str, only: str, who: str) -> None:
    transaction(db, lambda: execute(db, "SET GLOBAL userstat = 1"))
    places, visits = _places(db), []
    with _hub(url) as (port, pid):
        for name, pages in ((MEMBER, MEMBER_PAGES), (ADMIN, ADMIN_PAGES)):
            visitor = Visitor(port, session_of(db, name))
            for page in dict.fromkeys(pages) if who in ("both", name) else ():
                if only in page:
                    visits.append((name, page, visitor, PageTimes()))
        for _, page, visitor, times in visits:
            visitor.first_visit(page.format(**places), times)
        peak = _memory_mib(pid)
        time.sleep(MEMORY_AFTER_S)
        memory = _memory_mib(pid)
        columns = "p50    p95  first  whole     db   cpu     size    visit"
        click.echo(f"{'':12} {'':62}    {columns}")
        for name, page, visitor, times in visits:
            begun, database_ms, cpu_ms = time.monotonic(), _database_ms(db), _cpu_ms(pid)
            while len(times.first_s) < ROUNDS and (
                len(times.first_s) < ROUNDS_MIN or time.monotonic() - begun < PATIENCE_S
            ):
                visitor.ask(page.format(**places), times)
            rounds = max(1, len(times.first_s) - 1)
            times.database_ms = (_database_ms(db) - database_ms) / rounds
            times.cpu_ms = (_cpu_ms(pid) - cpu_ms) / rounds
            click.echo(f"{name:12} {page:62} {times}")
        mark = " LARGE" if memory > MEMORY_MIB else ""
        pages = f"{len(visits)} pages were opened once"
        click.echo(f"Hub: {memory:.1f} MiB {MEMORY_AFTER_S} s after {pages} ({peak:.1f}){mark}")


def _filled(url: str, rows: int, days: int) -> None:
    with store(url, schema=True) as db:
        if first_row(db, UsageRow.select(UsageRow.id).limit(1)) is None:
            for line in fill_days(db, rows, days):
                click.echo(line)
        _make_up(db)


@click.command()
@click.option("--store", "url", default="", help="store.url of a database; else one is made.")
@click.option("--rows", type=click.IntRange(1), default=10_000_000, show_default=True)
@click.option("--days", type=click.IntRange(1), default=60, show_default=True)
@click.option("--only", default="", help="Of pages with this text in their address.")
@click.option("--who", type=click.Choice(["both", MEMBER, ADMIN]), default="both")
def main(url: str, rows: int, days: int, only: str, who: str) -> None:
    """Print how long each page takes, and how large it is."""
    with contextlib.ExitStack() as stack:
        if not url:
            url = stack.enter_context(contextlib.closing(MariaDb(*SERVER_OPTIONS))).fresh_url()
        _filled(url, rows, days)
        with store(url) as db:
            _measure(db, url, only, who)


if __name__ == "__main__":
    main()
