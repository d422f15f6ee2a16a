"""`app.py worker`: one relay process, started by the supervisor. The composition root of the relay.

Reads its orders from stdin (one line of JSON first, commands after it), builds store, catalog,
relay and server, writes its state for the supervisor once a second, and runs until it has drained.
The end of stdin means that the supervisor died.
"""

import asyncio
import functools
import io
import ipaddress
import logging
import math
import os
import signal
import socket
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from random import random

import msgspec
import peewee
import uvloop
from tornado.ioloop import IOLoop, PeriodicCallback

from adapters.registry import LOSSES
from commands.process import store_check
from commands.process.limits import node_cells, remote_cells, save
from commands.process.logs import FORMS, LogFile, redact, text_line
from commands.process.memory import MemoryPolicy
from commands.process.metrics import WordTable
from commands.process.node_clock import NodeClock
from commands.process.worker_metrics import WorkerMetrics
from commands.process.worker_state import StateWriter
from conf import secrets
from conf.configuration import ConfigError
from conf.metrics import RATE_LIMITED
from conf.settings import Settings, from_plain
from conf.version import CODE_CHANGED, VERSION, build_id, revision
from handlers.entries.base import Deadlines, Site
from handlers.entries.grants import Grants
from handlers.entries.key_view import KeyViews
from handlers.entries.routes import RelayServer
from handlers.entries.wrong_paths import WrongPaths
from handlers.logs import LogThread
from handlers.relay.limits.body_memory import BodyMemory
from handlers.relay.limits.limits import Limits
from handlers.relay.live import LiveCalls
from handlers.relay.pipeline import Relay
from handlers.relay.recent_responses import shared_recent_responses
from handlers.relay.routing.breaker import OpenBreakers
from handlers.relay.routing.health import Health
from handlers.relay.routing.prober import Prober
from handlers.relay.routing.suspended_keys import KeyCheck, KeyReport
from handlers.relay.stored_responses import StoredResponses
from handlers.relay.translations import Translations
from handlers.relay.upstream.client import UpstreamClient
from handlers.relay.upstream.idle_connections import max_connections
from handlers.telemetry.calls import Telemetry
from handlers.telemetry.metrics import Metrics
from operations.alerts.sender import Sender, hub_url
from operations.client_settings import base_url
from store.calls.journal import Journal
from store.calls.stored_responses import find_stored
from store.calls.writer import DOWN, Hooks, Writer
from store.catalog.catalog import Refresh, Snapshot
from store.catalog.key_cache import KeyCache
from store.catalog.keys import KeyEntry, PepperMoves, find_key, keys_of, recent_keys
from store.catalog.suspended_keys import KeyReports, SuspendedKey
from store.catalog.wrong_paths import Notices
from store.db.changes import KEYS, Changes
from store.db.database import open_watched
from store.db.nodes import DRAINING, HANGING, Process, serving
from store.hub.key_view import view_of
from store.money.funds import Funds
from store.money.leases import Order
from store.money.node_leases import NodeLeases
from store.upkeep import lease
from store.upkeep.retention import Keep
from store.upkeep.thread import Upkeep
from store.values.cipher import Cipher
from store.values.errors import StoreError, StoreUnavailable
from store.values.grants import GrantMaker
from store.values.ids import now_ms

log = logging.getLogger("sluice.worker")

SWEEP_MS = 1000
LOOKUP_THREADS = 4  # database threads that look up keys that are not in memory
STORED_THREADS = 4  # separate ones for stored responses, so that neither waits for the other
VIEW_THREADS = 2  # for what a key can see of itself
REFUSED_EXIT = 3  # tells the supervisor to give up instead of restarting the worker again and again
STOP_WITHIN_S = 2.0
SILENT_S = 2.0  # without a turn of the loop, before the store is told that it hangs
ERROR_CHARS = 300  # of the store's error in the answer of /readyz
WRITER_STOP_S = 10.0  # for writing the last records if the database answers
DRAIN_POLL_S = 0.05
STDIN_CHUNK_BYTES = 65536
CALLS_LOGGED = ("debug", "info")  # levels
MAX_ENDING = 10_000  # channels in a state
LIMITS_SAVED_S = 5  # the most that limits can refill when a node is killed


class Orders(msgspec.Struct):
    """The supervisor's first orders to a worker."""

    settings: dict[str, dict[str, object]]
    build: str
    secrets_path: str
    slot: int
    listen_fd: int
    state_fd: int
    limits_fd: int
    node: str
    responses_fd: int
    leases_fd: int
    metrics_fd: int
    run: str = ""


class Command(msgspec.Struct):
    """A later order: drain, stop, log-level or reopen-log."""

    cmd: str
    level: str = ""


def main(args: Sequence[str]) -> int:
    """Run `worker` without click. Return the exit code."""
    # Signals go to the supervisor, which notifies the workers through their stdin.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    # Unbuffered, because the loop reads the lines after the first.
    orders = msgspec.json.decode(io.FileIO(0, closefd=False).readline(), type=Orders)
    settings = from_plain(orders.settings)
    logs = LogThread(FORMS[settings.log.format], LogFile(settings.log.file), redact)
    logs.start(settings.log.level)
    try:
        if orders.build != build_id():  # changed since the supervisor checked
            log.error(CODE_CHANGED)
            return REFUSED_EXIT
        keys = secrets.load(Path(orders.secrets_path))
        checked = store_check.check(settings, first=orders.slot == 0)
        if checked is not None and checked.refusal:
            log.error(checked.refusal)
            return REFUSED_EXIT
        code = 0
        if checked is not None:
            # An event costs about a fifth less than on asyncio's loop (docs/lab/figures.md).
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                code = runner.run(_serve(orders, settings, keys, logs, checked.unreachable))
    except (ConfigError, StoreError) as error:
        log.error("%s", error)
        return REFUSED_EXIT
    finally:
        logs.stop()
    # All is recorded and closed. A look-up thread that still waits must not keep the process alive.
    os._exit(code)


async def _serve(
    orders: Orders, settings: Settings, keys: secrets.Secrets, logs: LogThread, away: str
) -> int:
    return await Worker(orders, settings, keys, logs).run(away)


class Worker:
    """The composition of one relay process."""

    def __init__(
        self, orders: Orders, settings: Settings, keys: secrets.Secrets, logs: LogThread
    ) -> None:
        self._orders, self._settings = orders, settings
        self._state = StateWriter(orders.state_fd)
        self._loop = IOLoop.current()
        self._threads = ThreadPoolExecutor(LOOKUP_THREADS, thread_name_prefix="lookup")
        self._stored_threads = ThreadPoolExecutor(STORED_THREADS, thread_name_prefix="stored")
        self._view_threads = ThreadPoolExecutor(VIEW_THREADS, thread_name_prefix="views")
        store = settings.store
        self._db = open_watched(store.url, store.connect_timeout_s, store.read_timeout_s)
        self._telemetry = Telemetry(
            text=text_line if settings.log.format == "text" else None,
            clean=redact,
            metrics=Metrics(WordTable(orders.metrics_fd), settings.money.currency),
        )
        self._journal = Journal(
            Path(settings.journal.dir),
            sync_ms=settings.journal.sync_ms,
            refused_per_minute=settings.journal.refused_per_minute,
        )
        self._recent = shared_recent_responses(orders.responses_fd, self._journal.id)
        self._node_leases = NodeLeases(orders.leases_fd, self._journal.id)
        self._refresh = Refresh(
            Cipher(keys.cipher_keys),
            self._loop.add_callback,
            self._take_snapshot,
            self._take_changes,
            losses=LOSSES,
        )
        # While a pepper is upcoming, other nodes may not use it for digests yet.
        self._pepper_moves = PepperMoves([] if "pepper" in keys.upcoming else keys.peppers)
        self._secrets_mark = keys.mark
        self._relay = self._make_relay(keys)
        self._logs = logs
        self._log_from(settings.log.level)
        self._metrics = WorkerMetrics(
            self._telemetry.metrics, self._relay, self._journal, self._state.beat
        )
        self._open_breakers = OpenBreakers(self._relay.health.breakers)
        self._prober = Prober(
            settings, self._relay.client, self._relay.health, self._loop.add_callback
        )
        self._key_news = KeyReports(lambda: self._writer.state == DOWN)
        self._notices = Notices()
        self._site = self._make_site(keys)
        self._server = RelayServer(self._site, max_connections())
        self._writer = self._make_writer()
        self._upkeep = self._make_upkeep(keys)
        self._clock = NodeClock()
        self._version = f"{VERSION} {revision(orders.build)}"
        self._memory = MemoryPolicy(lambda: self._relay.live.streams)
        self._drained: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._draining_task: asyncio.Task[None] | None = None
        self._catalog_seen, self._keys_read = False, threading.Event()
        self._left: dict[str, str] = {}  # channels that take no new calls: id -> name

    def _make_relay(self, keys: secrets.Secrets) -> Relay:
        live = LiveCalls()
        self._cells = node_cells(self._orders.limits_fd, self._settings.journal.dir)
        self._remote = remote_cells(self._settings.limits.url, self._journal.id)
        count_refused = functools.partial(self._telemetry.metrics.count, RATE_LIMITED)
        return Relay(
            self._settings,
            keys=KeyCache(
                self._load_key,
                self._threads,
                keys.peppers,
                limit=self._settings.store.keys_in_memory,
            ),
            funds=Funds(self._order, self._node_leases.note),
            journal=self._journal,
            client=UpstreamClient(
                force_instance=True, allow_private=self._settings.upstream.allow_private
            ),
            live=live,
            health=Health(
                random, live.attempts_health, self._share_key_news, self._begin_key_check
            ),
            telemetry=self._telemetry,
            limits=Limits(self._cells, count_refused, self._remote, self._settings.limits.fallback),
            stored=StoredResponses(
                functools.partial(find_stored, self._db, self._orders.node),
                self._stored_threads,
                now_ms,
                self._recent,
                refuse=self._settings.routing.unknown_responses == "refuse",
            ),
            node=self._orders.node,
            translations=Translations([secret.encode() for secret in keys.translation_secrets]),
        )

    def _make_site(self, keys: secrets.Secrets) -> Site:
        server = self._settings.server
        return Site(
            settings=self._settings,
            relay=self._relay,
            telemetry=self._telemetry,
            bodies=Deadlines(),
            trusted=tuple(
                ipaddress.ip_network(net, strict=False) for net in server.trusted_proxies
            ),
            base_url=base_url(server),
            wrong_paths=WrongPaths(self._relay.keys, self._notices),
            grants=self._make_grants(keys),
            key_views=KeyViews(functools.partial(view_of, self._db), self._view_threads),
            spool_dir=server.spool_dir or str(Path(self._settings.journal.dir) / "spool"),
            spool_memory=BodyMemory(
                server.spool_bytes, functools.partial(self._telemetry.metrics.count, RATE_LIMITED)
            ),
        )

    def _make_grants(self, keys: secrets.Secrets) -> Grants:
        return Grants(
            GrantMaker(keys.cookie_secrets, self._orders.run),
            [ipaddress.ip_network(net) for net in self._settings.hub.relay_networks],
            self._relay.limits,
            self._load_key_of_id,
            self._threads,
        )

    def _load_key_of_id(self, key_id: str) -> KeyEntry | None:
        """Return a key with its newest secret, after reading the catalog that it may need."""
        keys = [entry for _, entry in keys_of(self._db, [key_id])]
        self._refresh.poll(self._db)
        return max(keys, key=lambda entry: entry.valid_until_ms or math.inf, default=None)

    def _order(self, order: Order) -> bool:
        return self._writer.order(order)

    def _load_key(self, digests: list[bytes]) -> KeyEntry | None:
        """Return a key, after reading the catalog, which must not be older than the key."""
        key = find_key(self._db, digests)
        if key is not None:
            self._pepper_moves.note(digests)
            self._refresh.poll(self._db)
        return key

    def _fill_keys(self) -> None:
        """Read the keys that are likely to be used next into memory. Runs in its own thread."""
        keys, db, count = self._relay.keys, self._db, 0
        try:
            generation = keys.generation
            for portion in recent_keys(db, self._settings.store.keys_in_memory):
                # The catalog comes first, as for a single key.
                self._refresh.poll(db)
                self._loop.add_callback(keys.fill, portion, generation)
                generation = keys.generation
                count += len(portion)
            log.info("keys read into memory: %d", count)
        except StoreUnavailable as error:
            log.warning("not all keys were read into memory, the others are when used: %s", error)
        finally:
            self._loop.add_callback(self._keys_read.set)  # after the last portion
            db.close()

    def _make_writer(self) -> Writer:
        funds, on_loop = self._relay.funds, self._loop.add_callback
        hooks = Hooks(
            applied=functools.partial(on_loop, funds.applied),
            answered=functools.partial(on_loop, funds.answered),
            recalled=functools.partial(on_loop, funds.recalled),
            held=funds.held,
            open_breakers=lambda: self._open_breakers.rows,
            poll=self._poll,
            tell=self._tell,
            reached=functools.partial(self._recent.reached, self._journal.id),
            finished=self._recent.finished,
            lost=functools.partial(on_loop, self._metrics.lost),
            describe=self._describe,
        )
        return Writer(self._db, self._journal, self._orders.node, hooks)

    def _make_upkeep(self, keys: secrets.Secrets) -> Upkeep:
        usage, journal = self._settings.usage, self._settings.journal
        keep = Keep(usage.keep_days, usage.keep_sums_days, journal.keep_days)
        sender = Sender(self._settings.mail, hub_url(self._settings.hub), Cipher(keys.cipher_keys))
        return Upkeep(
            self._db,
            self._journal.id,
            self._orders.node,
            keep,
            send=sender.send,
            currency=self._settings.money.currency,
        )

    def _poll(self, db: peewee.Database) -> None:
        """Do the work of each second in the writer's thread."""
        self._refresh.poll(db)
        self._prober.rota.look(db)
        self._clock.look(db)
        self._pepper_moves.write(db)
        self._loop.add_callback(self._relay.funds.prepare, self._node_leases.exchange())
        if self._settings.limits.nodes == "share" or self._remote is not None:
            self._loop.add_callback(self._relay.limits.divide, max(1, serving(db)))

    def _tell(self, db: peewee.Database) -> None:
        """Write what the loop has for other processes. Called in every round of the writer's
        thread."""
        self._key_news.write(db)
        self._notices.write(db)

    def _take_snapshot(self, snapshot: Snapshot) -> None:
        self._compare_channels(snapshot)
        self._relay.take_snapshot(snapshot)
        self._site.base_url = base_url(self._settings.server, snapshot.base_url)
        self._metrics.take_snapshot(snapshot)
        self._prober.take_snapshot(snapshot)
        self._relay.health.keys.take(snapshot, time.monotonic(), snapshot.read_ms)
        for fault in snapshot.faults:
            log.error("%s", fault)
        if not self._catalog_seen:
            self._catalog_seen = True
            threading.Thread(target=self._fill_keys, name="keys", daemon=True).start()
        self._write_state()

    def _compare_channels(self, snapshot: Snapshot) -> None:
        """Note channels that take no new calls. Reset the health of those with a new
        destination."""
        before = {channel.id: channel for channel in self._relay.snapshot.channels}
        names = {channel.id: channel.name for channel in (*before.values(), *snapshot.channels)}
        running = self._relay.live.running_at(self._left)
        names |= {id_: name for id_, name in self._left.items() if name in running}
        taking = {channel.id for channel in snapshot.channels if channel.takes_calls}
        self._left = {id_: name for id_, name in names.items() if id_ not in taking}
        for channel in snapshot.channels:
            if channel.id in before and channel.leads_elsewhere(before[channel.id]):
                self._relay.health.forget(channel)

    def _take_changes(self, changes: Changes) -> None:
        self._relay.keys.apply_changes(changes)
        refs = {change.ref for change in changes.changes if change.kind == KEYS}
        if refs or not changes.complete:
            self._relay.funds.reconsider(refs if changes.complete else None)

    def _share_key_news(self, news: KeyReport) -> None:
        """Share with all workers that an upstream key was suspended, or answers again."""
        channel = news.channel
        name = (channel.id, channel.fingerprints[news.key] if channel.fingerprints else "")
        if news.wait_s is None:
            self._key_news.lift(name)
        else:
            at_ms = now_ms()
            until_ms = at_ms + round(news.wait_s * 1000)
            suspended = SuspendedKey(*name, at_ms, until_ms, news.times, news.reason)
            self._key_news.suspend(
                suspended,
                f"upstream key refused, circuit opened for {news.wait_s:.0f} s:"
                f" channel={channel.name} upstream_key={news.key + 1}/{len(channel.keys)}"
                f' cause="{news.reason}"',
            )
        self._writer.wake()

    def _begin_key_check(self, check: KeyCheck) -> bool:
        return self._prober.begin_check(check)

    async def run(self, away: str) -> int:
        """Serve until drained; return the exit code. `away`: the error of the store at the start,
        if it was unreachable, which is reported at once."""
        if away:
            self._writer.note_unavailable(away)
            self._write_state()
        self._writer.start()
        os.set_blocking(0, False)
        self._loop.add_handler(0, self._hear, IOLoop.READ)  # orders of the supervisor
        await store_check.first_contact(self._writer, self._keys_read)
        self._upkeep.start()
        self._metrics.start(self._settings.telemetry.otlp_endpoint, self._orders.node)
        if self._remote is not None:
            await self._remote.start()
        listener = socket.socket(fileno=self._orders.listen_fd)
        listener.setblocking(False)
        self._server.listen_on(listener)
        sweeping = PeriodicCallback(self._sweep, SWEEP_MS)
        sweeping.start()
        self._memory.start(self._loop)
        code = await self._drained
        sweeping.stop()
        await self._close()
        return code

    def _sweep(self) -> None:
        now_s = int(time.monotonic())  # the loop's own clock jumps with the wall clock
        self._server.sweep(now_s)
        self._site.bodies.sweep(now_s)
        self._relay.sweep(now_s)
        self._relay.limits.sweep()
        if now_s % LIMITS_SAVED_S == 0 and self._cells.saves:
            asyncio.get_running_loop().run_in_executor(None, save, self._cells)
        for count, record in self._journal.sweep():
            self._telemetry.refused_without_line(count, record)
        self._relay.funds.sweep()
        self._open_breakers.update(self._relay.snapshot)
        self._telemetry.flush()
        self._publish()
        self._write_state()

    def _publish(self) -> None:
        self._metrics.publish(self._server, self._writer, self._db, self._logs)

    def _write_state(self) -> None:
        why = self._not_ready_because()
        if not why:
            self._state.beat()  # from now on it does not have the longer time of a start
        self._state.write(
            {
                "ready": not why,
                "why": why,
                "streams": self._relay.live.streams,
                "calls": self._relay.live.calls,
                "connections": self._server.connections,
                "ending": self._ending(),
                "store": self._writer.state,
                "journal_backlog_bytes": self._journal.backlog_bytes,
                "open_breakers": len(self._open_breakers.rows),
                "upstream_surplus": self._relay.client.idle_connections.surplus,
                "upstream_repeats": self._relay.client.repeated,
                "draining": self._server.draining,
                "upkeep": self._upkeep.seen and lease.to_public(self._upkeep.seen),
                "last_done": dict(self._upkeep.last_done),
                "secrets": self._secrets_mark,
                "clock_lead_ms": self._clock.lead_ms,
                "limits_up": None if self._remote is None else self._remote.up,
            }
        )

    def _ending(self) -> dict[str, int]:
        """Count the running calls of channels that are disabled, draining or removed."""
        counts = self._relay.live.running_at(self._left) if self._left else {}
        return dict(islice(counts.items(), MAX_ENDING))

    def _describe(self) -> Process:
        """Return the state of this process for the store. Called in the writer's thread."""
        # In its first round `was_up` is not set yet, but the round itself shows that the writer is
        # up.
        why = self._not_ready_because() if self._writer.was_up else ""
        if not why and self._state.silent_s > SILENT_S:
            why = HANGING
        return Process(self._version, self._journal.backlog_bytes, why)

    def _not_ready_because(self) -> str:
        if self._server.draining:
            return DRAINING
        # A key's look-up may load the catalog before the writer can give out leases.
        if not (self._catalog_seen and self._writer.was_up):
            error = self._writer.trouble[:ERROR_CHARS]
            return "the store has not been read yet" + (error and f": {error}")
        if not self._journal.accepting:
            return "the journal cannot be written"
        return ""

    # ---- orders of the supervisor ----------------------------------------------------------------

    def _hear(self, fd: int, events: int) -> None:
        try:
            data = os.read(0, STDIN_CHUNK_BYTES)
        except BlockingIOError:
            return
        if not data:
            self._loop.remove_handler(0)
            log.error("supervisor ended; draining")
            self._begin_drain()
            return
        for line in data.splitlines():
            self._obey(msgspec.json.decode(line, type=Command))

    def _obey(self, command: Command) -> None:
        if command.cmd == "log-level":
            self._logs.set_level(command.level)
            self._log_from(command.level)
        elif command.cmd == "reopen-log":
            self._logs.reopen()
        elif command.cmd == "stop":
            self._relay.live.force_end()
            self._begin_drain()
            self._loop.call_later(STOP_WITHIN_S, self._end, 1)
        else:
            self._begin_drain()

    def _log_from(self, level: str) -> None:
        self._telemetry.write = self._logs.write if level in CALLS_LOGGED else None

    def _begin_drain(self) -> None:
        if self._draining_task is None:
            self._draining_task = asyncio.create_task(self._drain())

    async def _drain(self) -> None:
        """Stop taking connections; wait for running calls and kept connections within the
        time-out."""
        self._server.drain()
        self._prober.close()
        self._write_state()
        self._writer.beat()
        limit_s = self._settings.server.drain_timeout_s
        force_at = time.monotonic() + limit_s
        while self._relay.live.calls or self._server.connections:
            if time.monotonic() >= force_at:
                self._relay.live.force_end()
                force_at = time.monotonic() + STOP_WITHIN_S
                if not self._relay.live.calls:
                    break
            await asyncio.sleep(DRAIN_POLL_S)
        self._end(0)

    def _end(self, code: int) -> None:
        if not self._drained.done():
            self._drained.set_result(code)

    async def _close(self) -> None:
        """Record everything that is pending, then release all resources."""
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, self._upkeep.stop)
        await loop.run_in_executor(None, save, self._cells)
        if self._remote is not None:
            await self._remote.close()
        if not await loop.run_in_executor(None, self._writer.stop, WRITER_STOP_S):
            log.warning("store not reached: the rest of the journal is written at the next start")
        self._telemetry.flush()
        self._metrics.stop()
        self._publish()
        self._relay.client.close()
        self._memory.stop()
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._stored_threads.shutdown(wait=False, cancel_futures=True)
        self._view_threads.shutdown(wait=False, cancel_futures=True)
