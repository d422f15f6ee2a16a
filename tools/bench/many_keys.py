"""The cost of a large catalog and many keys: start, memory, the first call of a key, a reload.

    python -m tools.bench.many_keys --folder /tmp/many --keys 100000

Creates a store of 200 channels, 200 models, 50 groups and many users with a wallet and a key each,
starts a gateway of one worker in front of the scripted vendor, and makes one call with each of some
keys, one after the other. A reload is timed in this process, while another thread wants to run.
"""

import http.client
import json
import statistics
import threading
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import peewee

from store.catalog.catalog import load_snapshot
from store.db.database import execute, executemany, transaction
from store.values.cipher import Cipher
from store.values.ids import new_ulid, now_ms
from store.values.key_secrets import digest, make_secret, pepper_id, shown_parts
from store.values.pricing import NANOS_PER_UNIT
from tests.support.gateway import Gateway
from tests.support.upstream import ScriptedUpstream
from tools.bench.harness import store

CHANNELS = MODELS = 200
GROUPS = 50
SERVED_BY = 20  # channels that serve a model
BATCH_ROWS = 5_000
RELOADS = 20
READY_WAIT_S = 120
FAMILY = "chat_completions"
WARM_UP = 200  # calls of one key first, so that everything except keys is loaded


def catalog(url: str) -> dict[str, Any]:
    """Return a document in which each group may use every model, and each model has some
    channels."""
    groups = [f"group-{number}" for number in range(GROUPS)]
    served: list[dict[str, str]] = [{} for _ in range(CHANNELS)]
    for number in range(MODELS):
        for offset in range(SERVED_BY):
            served[(number + offset) % CHANNELS][f"model-{number}"] = "demo-small"
    channels = [
        {
            "name": f"channel-{number}",
            "vendor": "demo",
            "family": FAMILY,
            "base_url": url,
            "keys": [f"sk-upstream-{number}"],
            "groups": groups,
            "models": models,
        }
        for number, models in enumerate(served)
    ]
    price = {"input": "3", "output": "15"}
    return {
        "model": [{"name": f"model-{n}", "price": price} for n in range(MODELS)],
        "group": [{"name": name} for name in groups],
        "channel": channels,
    }


def add_keys(db: peewee.Database, count: int, pepper: str) -> list[str]:
    """Insert `count` users with a wallet and a key each. Return the secrets."""
    query = 'SELECT "id" FROM "groups" ORDER BY "name"'
    groups = [row[0] for row in transaction(db, lambda: execute(db, query).fetchall())]
    secrets = [make_secret() for _ in range(count)]
    for begin in range(0, count, BATCH_ROWS):
        rows = list(_key_rows(secrets[begin : begin + BATCH_ROWS], begin, groups, pepper))
        transaction(db, lambda rows=rows: _insert(db, rows))  # type: ignore[misc]
    return secrets


def _key_rows(
    secrets: list[str], first: int, groups: list[str], pepper: str
) -> Iterator[dict[str, tuple[Any, ...]]]:
    at_ms = now_ms()
    for number, secret in enumerate(secrets, first):
        user_id, key_id, shown = new_ulid(), new_ulid(), shown_parts(secret)
        group = groups[number % len(groups)]
        parts = (shown["prefix"], shown["last_four"], "[]", "[]", "total", at_ms)
        yield {
            "users": (user_id, f"user-{number}", "user", "plan_first", at_ms),
            "wallets": (user_id, 100 * NANOS_PER_UNIT),
            "api_keys": (key_id, user_id, "main", group, *parts),
            "key_secrets": (digest(secret, pepper), key_id, pepper_id(pepper)),
        }


_COLUMNS = {
    "users": ("id", "name", "role", "spend_order", "created_ms"),
    "wallets": ("user_id", "balance"),
    "api_keys": ("id", "user_id", "name", "group_id", "prefix", "last_four", "models", "networks",
                 "limit_window", "created_ms"),
    "key_secrets": ("digest", "key_id", "pepper_id"),
}  # fmt: skip


def _insert(db: peewee.Database, rows: list[dict[str, tuple[Any, ...]]]) -> None:
    for table, columns in _COLUMNS.items():
        names = ", ".join(f'"{name}"' for name in columns)
        marks = ", ".join("?" * len(columns))
        text = f'INSERT INTO "{table}" ({names}) VALUES ({marks})'
        executemany(db, text, [row[table] for row in rows])


def pss_mib(pids: list[int]) -> float:
    """Return the memory of processes in MiB, with shared pages counted once."""
    lines = (Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines() for pid in pids)
    return sum(int(line.split()[1]) for text in lines for line in text if line[:4] == "Pss:") / 1024


def call_each(port: int, secrets: list[str]) -> list[float]:
    """Make one call with each key, on one connection. Return the milliseconds of each call."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    times = []
    for number, secret in enumerate(secrets):
        model = f"model-{number % MODELS}"
        message = {"role": "user", "content": "Say something."}
        body = json.dumps({"model": model, "max_tokens": 16, "messages": [message]})
        headers = {"Authorization": f"Bearer {secret}", "Content-Type": "application/json"}
        began = time.perf_counter()
        connection.request("POST", "/v1/chat/completions", body, headers)
        answer = connection.getresponse()
        data = answer.read()
        times.append((time.perf_counter() - began) * 1000)
        if answer.status != 200:
            raise RuntimeError(f"status {answer.status}: {data[:200]!r}")
    connection.close()
    return times


def measure_reload(db: peewee.Database, cipher: Cipher) -> tuple[float, float, float]:
    """Return the CPU of a reload, the longest pause of another thread meanwhile, and the same
    without a reload, in ms."""
    cpu: list[float] = []
    ended = threading.Event()

    def reload() -> None:
        for _ in range(RELOADS):
            began = time.thread_time_ns()
            load_snapshot(db, cipher)
            cpu.append((time.thread_time_ns() - began) / 1e6)
        ended.set()

    worker = threading.Thread(target=reload)
    worker.start()
    during = _pauses(ended.is_set)
    worker.join()
    until = time.perf_counter() + len(during) / 1000
    quiet = _pauses(lambda: time.perf_counter() > until)
    return statistics.median(cpu), max(during), max(quiet)


def _pauses(over: Any) -> list[float]:
    """Return the excess of sleeps of 1 ms, in ms, until `over`."""
    pauses = [0.0]
    while not over():
        began = time.perf_counter()
        time.sleep(0.001)
        pauses.append((time.perf_counter() - began) * 1000 - 1)
    return pauses


def quantiles(times: list[float]) -> str:
    """Return the median, 95 %, 99 % and the largest."""
    cuts = statistics.quantiles(times, n=100)
    return f"{cuts[49]:.1f} / {cuts[94]:.1f} / {cuts[98]:.1f} / {max(times):.1f} ms"


@click.command()
@click.option("--folder", type=click.Path(path_type=Path), required=True, help="A new folder.")
@click.option("--keys", "count", default=100_000, show_default=True)
@click.option("--called", default=10_000, show_default=True, help="Keys that are called once.")
def main(folder: Path, count: int, called: int) -> None:
    """Print what a gateway with many keys costs."""
    settings = {"server.workers": 1, "log.level": "warning"}
    with ScriptedUpstream() as vendor:
        gateway = Gateway(folder, settings)
        try:
            _run(gateway, vendor.url, count, called)
        finally:
            gateway.close()


def _run(gateway: Gateway, url: str, count: int, called: int) -> None:
    began = time.perf_counter()
    gateway.apply(catalog(url))
    click.echo(f"apply of the catalog           {time.perf_counter() - began:8.1f} s")
    stored = tomllib.loads((gateway.folder / "secrets.toml").read_text())
    with store(f"sqlite:///{gateway.folder}/sluice.db") as db:
        secrets = add_keys(db, count, stored["peppers"][0])
        cpu_ms, pause_ms, quiet_ms = measure_reload(db, Cipher(stored["cipher_keys"]))
    click.echo(f"CPU of a catalog reload        {cpu_ms:8.1f} ms")
    click.echo(f"longest pause meanwhile        {pause_ms:8.1f} ms (otherwise {quiet_ms:.1f})")
    began = time.perf_counter()
    gateway.start(wait_s=READY_WAIT_S)
    click.echo(f"start until ready              {time.perf_counter() - began:8.2f} s")
    warm = secrets[-1:] * WARM_UP
    call_each(gateway.port, warm)
    _print_memory(gateway, "memory before")
    cold = call_each(gateway.port, secrets[:called])
    _print_memory(gateway, f"memory after {called} keys")
    again = call_each(gateway.port, secrets[:called])
    click.echo("milliseconds of a call: median / 95 % / 99 % / the largest")
    click.echo(f"  first call of a key     {quantiles(cold)}")
    click.echo(f"  second call of a key    {quantiles(again)}")
    click.echo(f"  one key repeatedly      {quantiles(call_each(gateway.port, warm))}")


def _print_memory(gateway: Gateway, title: str) -> None:
    time.sleep(6)  # freed memory is returned every five seconds
    process, workers = gateway.process, gateway.worker_pids()
    if process is None:
        raise RuntimeError("the gateway is not running")
    supervisor, worker = pss_mib([process.pid]), pss_mib(workers)
    memory = f"supervisor {supervisor:.1f} MiB, worker {worker:.1f} MiB"
    click.echo(f"{title:30} {memory}")


if __name__ == "__main__":
    main()
