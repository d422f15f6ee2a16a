"""`app.py hub`: the Hub's process, started by the supervisor.

Reads its orders from stdin (one line of JSON), then serves until it is terminated or stdin ends,
which means that the supervisor died. It shares only the store with the relay.
"""

import asyncio
import gc
import io
import ipaddress
import logging
import os
import signal
import socket
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import msgspec
from tornado.ioloop import IOLoop

import commands.process.lean_driver  # noqa: F401 # first: later imports need PyMySQL
from commands.process.logs import FORMS, LogFile, redact
from commands.process.memory import find_malloc_trim, one_arena
from commands.process.metrics import WordTable
from commands.process.store_check import announce
from commands.process.worker_state import StateWriter
from conf import secrets
from conf.configuration import ConfigError
from conf.metrics import SIGN_INS
from conf.settings import Settings, from_plain
from conf.version import CODE_CHANGED, VERSION, build_id
from handlers.hub.app import make_app
from handlers.hub.http.server import HubServer
from handlers.hub.web.site import Site
from handlers.hub.web.throttle import SignInLog
from handlers.logs import LogThread
from handlers.telemetry.metrics import Metrics
from store.admin.objects import Sealing
from store.db.database import open_watched
from store.hub import administrators
from store.values.cipher import Cipher
from store.values.errors import StoreUnavailable
from store.values.grants import GrantMaker

log = logging.getLogger("sluice.hub")

REFUSED_EXIT = 3
STDIN_CHUNK_BYTES = 65536
ALIVE_EVERY_S = 1.0
TRIM_EVERY_S = 2.0
STORE_PAUSE_S = 5.0  # before an unreachable store is tried again


class Orders(msgspec.Struct):
    """The supervisor's first orders to the Hub."""

    settings: dict[str, dict[str, object]]
    build: str
    secrets_path: str
    listen_fd: int
    state_fd: int
    metrics_fd: int
    origins: dict[str, str] = {}
    run: str = ""


class Command(msgspec.Struct):
    """A later order: log-level or reopen-log."""

    cmd: str
    level: str = ""


def main(args: Sequence[str]) -> int:
    """Run `hub` without click. Return the exit code."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    one_arena()
    orders = msgspec.json.decode(io.FileIO(0, closefd=False).readline(), type=Orders)
    settings = from_plain(orders.settings)
    logs = LogThread(FORMS[settings.log.format], LogFile(settings.log.file), redact)
    logs.start(settings.log.level)
    try:
        if orders.build != build_id():
            log.error(CODE_CHANGED)
            return REFUSED_EXIT
        site = _site(settings, secrets.load(Path(orders.secrets_path)), orders)
        asyncio.run(_serve(site, orders, logs))
    except ConfigError as error:
        log.error("%s", error)
        return REFUSED_EXIT
    finally:
        logs.stop()
    # A thread that waits for an unresponsive database must not keep the process alive.
    os._exit(0)


def _site(settings: Settings, keys: secrets.Secrets, orders: Orders) -> Site:
    proxies, store = settings.server.trusted_proxies, settings.store
    metrics = Metrics(WordTable(orders.metrics_fd))
    return Site(
        settings=settings,
        db=open_watched(store.url, store.connect_timeout_s, store.read_timeout_s),
        sealing=Sealing(Cipher(keys.cipher_keys), keys.peppers),
        trusted=tuple(ipaddress.ip_network(net, strict=False) for net in proxies),
        cookie_secrets=keys.cookie_secrets,
        grants=GrantMaker(keys.cookie_secrets, orders.run),
        origins=orders.origins,
        sign_ins=SignInLog(partial(metrics.count, SIGN_INS)),
        version=VERSION,
    )


async def _serve(site: Site, orders: Orders, logs: LogThread) -> None:
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)

    def hear(fd: int, events: int) -> None:
        data = os.read(0, STDIN_CHUNK_BYTES)
        if not data:
            IOLoop.current().remove_handler(0)
            ended.set()
        for line in data.splitlines():
            command = msgspec.json.decode(line, type=Command)
            if command.cmd == "log-level":
                logs.set_level(command.level)
            else:
                logs.reopen()

    os.set_blocking(0, False)
    IOLoop.current().add_handler(0, hear, IOLoop.READ)
    server = HubServer(site, make_app(site))
    listener = socket.socket(fileno=orders.listen_fd)
    listener.setblocking(False)
    server.listen_on(listener)
    announcing = asyncio.create_task(_announce_first_run(site))
    gc.collect()
    gc.freeze()
    trimming = asyncio.create_task(_trim())
    living = asyncio.create_task(_tend(server, StateWriter(orders.state_fd)))
    await ended.wait()
    for task in (trimming, living, announcing):
        task.cancel()
    site.close()


async def _tend(server: HubServer, state: StateWriter) -> None:
    """Close connections that are over their time, and report to the supervisor that the loop turns.
    The supervisor replaces a Hub that stops reporting."""
    while True:
        state.beat()
        server.sweep(int(asyncio.get_running_loop().time()))
        server.site.sign_ins.sweep(time.monotonic())
        await asyncio.sleep(ALIVE_EVERY_S)


async def _trim() -> None:
    """Free the memory that the start and the pages leave. Each page leaves a reference cycle with
    all of its rows, and Python itself would collect it only after dozens of pages."""
    while trim := find_malloc_trim():
        await asyncio.sleep(TRIM_EVERY_S)
        if any(gc.get_count()[1:]):
            gc.collect()
        trim(0)


async def _announce_first_run(site: Site) -> None:
    """Print the link of the first run when the store is reachable again. Does nothing if it was
    reachable at the start: the first worker has printed the link then."""
    away = False
    while True:
        try:
            if away:
                await site.store(announce, site.settings)
            else:
                await site.store(administrators.exist)
            return
        except StoreUnavailable:
            away = True
            await asyncio.sleep(STORE_PAUSE_S)
