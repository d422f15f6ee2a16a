"""Limits that all nodes count together in Redis: the cells of limits.py as scripts.

A worker has one connection and one pipeline at a time: commands that calls send while the last
pipeline runs go into the next one. A call waits for its answer, a pipeline at most WAIT_S; nobody
waits for slots to be returned. If Redis is slow or does not answer, a breaker keeps calls from
waiting, and `RemoteAway` leaves the decision to the caller. Slots are leases: a worker's count is
valid while its liveness key exists. Counts left unknown by a lost answer are written again with the
next renewal. Requests and tokens that nodes let through by themselves meanwhile are owed: Redis
counts them before the next call.
"""

import asyncio
import contextlib
import hashlib
import itertools
import logging
import os
import select
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any
from urllib.parse import quote, urlsplit

import hiredis
import redis
from msgspec import Struct
from redis.asyncio.connection import AbstractConnection, Connection, parse_url
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import NoScriptError, ReadOnlyError, RedisError, ResponseError

from handlers.relay.limits.cells import MINUTE_NS, Claim, LimitRefusal, Reservation, Slots
from handlers.relay.limits.scripts import ALIVE_MS, ENTER, LEAVE, OWED, STATE

log = logging.getLogger("sluice.relay")

WAIT_S = 0.05  # the longest wait of a call for Redis
SLOW_S = 0.02
CONNECT_S = 1.0
RECENT_WAITS = 20
MOST_BAD_WAITS = 5  # failed or slow ones among the recent waits
OPEN_S = 1.0  # then one call tries again
RENEW_S = 3.0
AGAIN_S = 0.2  # between two attempts to connect
MAX_QUEUED = 20_000  # commands that wait for the connection; returns beyond it are recounted later
MAX_BATCH = 50  # commands of one pipeline
MAX_PLACES = 8  # of one script call
MAX_OWED = 5_000  # subjects; beyond it everything owed is dropped
OWED_BATCH = 200  # subjects of one command
PREFIX = "sluice:"
_WORKER = PREFIX + "worker:"
_NS_PER_US = 1000
MINUTE_US = MINUTE_NS // _NS_PER_US
_ENV = "env:"
_DIGESTS = {s: hashlib.sha1(s.encode()).hexdigest() for s in (ENTER, LEAVE, OWED, STATE)}


class RemoteAway(TimeoutError):
    """An error for a Redis that does not answer in time, and so cannot count limits now."""


class RemoteEntry(Struct, frozen=True, gc=False):
    """A call's slots of its callers and of one place, and the place's position."""

    callers: Slots
    place: Slots
    position: int


class _Command(Struct, eq=False):
    """A command: its words, and the keys of subjects whose slots it takes or returns. `answer`: set
    if a call waits for it."""

    words: list[str | int]
    keys: list[str] = []
    answer: asyncio.Future[Any] | None = None


def with_password(url: str) -> str:
    """Return the address with the password that `env:NAME` refers to. Raises KeyError if the
    variable is not set."""
    parts = urlsplit(url)
    user, _, password = parts.netloc.rpartition("@")[0].partition(":")
    if not password.startswith(_ENV):
        return url
    secret = quote(os.environ[password.removeprefix(_ENV)], safe="")
    return parts._replace(netloc=f"{user}:{secret}@{parts.netloc.rpartition('@')[2]}").geturl()


def server_version(url: str) -> str:
    """Return the server's Redis version. Blocks. Raises RedisError, OSError, KeyError,
    ValueError."""
    with redis.Redis.from_url(
        with_password(url), socket_timeout=CONNECT_S, socket_connect_timeout=CONNECT_S
    ) as client:
        return str(client.info("server")["redis_version"])


class RemoteCells:
    """The cells of all nodes of a store. `worker`: a name that no other process ever has. Raises
    ValueError if the address is invalid."""

    def __init__(self, url: str, worker: str) -> None:
        fields: dict[str, Any] = {**parse_url(url)}
        kind = fields.pop("connection_class", Connection)
        self._connection: AbstractConnection = kind(
            **fields,
            socket_connect_timeout=CONNECT_S,
            retry=Retry(NoBackoff(), 0),
            decode_responses=True,
        )
        self._worker = worker
        self._queue: deque[_Command] = deque()
        self._running: Counter[str] = Counter()  # this worker's calls, by subject
        self._unsure: set[str] = set()  # keys of subjects whose count in Redis may be wrong
        # By the key of a subject: the times at which its buckets of requests and tokens would be
        # full again if only this worker had taken from them, and only while Redis was away.
        self._owed: dict[str, list[int]] = {}
        self._bad: deque[bool] = deque(maxlen=RECENT_WAITS)
        self._open_until_s = 0.0
        self._flusher: asyncio.Task[None] | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._tried, self._lost = asyncio.Event(), asyncio.Event()
        self._late = False
        self._to_repair = False  # with the next pipeline
        self._connected = False  # the scripts have been sent, too
        self.up = False
        self._codes: set[str | None] = set()  # error codes of Redis since it last counted

    async def start(self) -> None:
        """Connect, and renew the leases from now on. Return after the first attempt, since calls
        that a node counted by itself before it would be counted twice."""
        self._keeper = asyncio.get_running_loop().create_task(self._keep())
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._tried.wait(), CONNECT_S)

    async def close(self) -> None:
        """Give up the leases, so that nobody waits until they expire, and close the connection."""
        if self._connected:
            with contextlib.suppress(RemoteAway):
                await self._send(_Command(["DEL", _WORKER + self._worker]))
        tasks = [task for task in (self._keeper, self._flusher) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        with contextlib.suppress(RedisError, OSError):
            await self._connection.disconnect(nowait=True)

    # ---- calls -----------------------------------------------------------------------------------

    async def enter(
        self,
        callers: Sequence[Claim],
        places: Sequence[Sequence[Claim]] = (),
        tokens: int = 0,
        least: int = 0,
    ) -> RemoteEntry | LimitRefusal | list[LimitRefusal]:
        """Take a call's part of all callers' claims and of the first place with room, or nothing.
        Return the caller's refusal with the longest wait, or one refusal for each place, if there
        is no room. At most MAX_PLACES places; a place without claims has room. Raises
        RemoteAway."""
        reply = await self._ask(self._enter_command(callers, places, tokens, least))
        if reply[0] == 0:
            _, number, kind, *times_us = reply
            wait_ns, *states = (time_us * _NS_PER_US for time_us in times_us)
            return LimitRefusal(callers[number - 1], kind, wait_ns or None, *states)
        if reply[0] == 2:
            return [
                LimitRefusal(claims[number - 1], kind, wait_us * _NS_PER_US or None, 0, 0)
                for claims, (number, kind, wait_us) in zip(places, reply[1:], strict=True)
            ]
        position = reply[1] - 1
        of_place = places[position] if places else ()
        reservations = [
            Reservation(claim, -1, *(value * _NS_PER_US for value in values))
            for claim, values in zip((*callers, *of_place), _triples(reply[2:]), strict=True)
        ]
        self._count(reservations, 1)
        first = len(callers)
        return RemoteEntry(
            self._slots(reservations[:first]), self._slots(reservations[first:]), position
        )

    def _enter_command(
        self, callers: Sequence[Claim], places: Sequence[Sequence[Claim]], tokens: int, least: int
    ) -> _Command:
        keys = [_WORKER, *(PREFIX + claim.subject for claim in callers)]
        args: list[str | int] = [self._worker, tokens, least, len(callers), len(places)]
        for claim in callers:
            args += (claim.rpm, claim.tpm, claim.concurrency)
        for claims in places:
            args.append(len(claims))
            for claim in claims:
                keys.append(PREFIX + claim.subject)
                args += (len(keys), claim.rpm, claim.tpm, claim.concurrency)
        return _script(ENTER, keys, args, [*callers, *itertools.chain(*places)])

    def _slots(self, reservations: list[Reservation]) -> Slots:
        of_tokens = any(reservation.claim.tpm for reservation in reservations)
        return Slots(reservations, of_tokens, everywhere=self)

    def leave(self, slots: Slots, used_tokens: int | None) -> None:
        """Return slots and settle the tokens used. None: undo, as if there had been no call. To be
        called once; does not wait."""
        self._count(slots.reservations, -1)
        reservations = [
            reservation
            for reservation in slots.reservations
            if reservation.claim.concurrency or reservation.claim.tpm or used_tokens is None
        ]
        if not reservations:
            return
        used = -1 if used_tokens is None else used_tokens
        args: list[str | int] = [self._worker, used]
        for reservation in reservations:
            claim, reserved_us = reservation.claim, reservation.reserved_ns // _NS_PER_US
            args += (claim.rpm, claim.tpm, claim.concurrency, reserved_us)
        claims = [reservation.claim for reservation in reservations]
        self._put(_script(LEAVE, [PREFIX + claim.subject for claim in claims], args, claims))

    async def state(self, claim: Claim) -> tuple[int, int, int]:
        """Return the nanoseconds until the buckets of requests and of tokens are full again, and
        the calls in flight of living workers, as SharedCells.state does. Raises RemoteAway."""
        keys = [_WORKER, PREFIX + claim.subject]
        requests_us, tokens_us, running = await self._ask(_script(STATE, keys, [self._worker]))
        return requests_us * _NS_PER_US, tokens_us * _NS_PER_US, running

    def owe(self, claims: Iterable[Claim], requests: int, tokens: int) -> None:
        """Note requests and tokens that this node let through by itself. Redis counts them once it
        is back."""
        now_us = time.monotonic_ns() // _NS_PER_US
        for claim in claims:
            if len(self._owed) >= MAX_OWED:
                self._owed.clear()
            owed = self._owed.setdefault(PREFIX + claim.subject, [0, 0])
            if claim.rpm:
                owed[0] = max(owed[0], now_us) + requests * -(-MINUTE_US // claim.rpm)
            if claim.tpm:
                owed[1] = max(owed[1], now_us) + tokens * MINUTE_US // claim.tpm

    def _pay(self) -> None:
        """Send what is owed, ahead of the call that is counted next."""
        now_us = time.monotonic_ns() // _NS_PER_US
        owed = [(key, fulls) for key, fulls in self._owed.items() if max(fulls) > now_us]
        self._owed.clear()
        for at in range(0, len(owed), OWED_BATCH):
            part = owed[at : at + OWED_BATCH]
            more = [max(0, full_us - now_us) for _, fulls in part for full_us in fulls]
            self._put(_script(OWED, [key for key, _ in part], more))

    def _count(self, reservations: Sequence[Reservation], by: int) -> None:
        for reservation in reservations:
            if reservation.claim.concurrency:
                subject = reservation.claim.subject
                self._running[subject] += by
                if not self._running[subject]:
                    del self._running[subject]

    # ---- the connection --------------------------------------------------------------------------

    async def _ask(self, command: _Command) -> Any:
        """Return the answer of a call's command, unless the breaker is open. Raises RemoteAway."""
        now_s = time.monotonic()
        if now_s < self._open_until_s or not self._connected:
            raise RemoteAway
        if self._open_until_s:
            self._open_until_s = now_s + OPEN_S  # this one tries, others do not
        if self._owed:
            self._pay()
        return await self._send(command)

    async def _send(self, command: _Command) -> Any:
        """Return the answer of a command. Raises RemoteAway."""
        command.answer = asyncio.get_running_loop().create_future()
        self._put(command)
        try:
            return await command.answer
        except Exception as error:
            raise RemoteAway from error
        except asyncio.CancelledError:
            if command in self._queue:
                self._queue.remove(command)
            self._unsure.update(command.keys)
            raise

    def _put(self, command: _Command) -> None:
        if not self._connected or len(self._queue) >= MAX_QUEUED:
            self._fail([command], RemoteAway())
            return
        self._queue.append(command)
        if self._flusher is None:
            self._flusher = asyncio.get_running_loop().create_task(self._flush())

    async def _flush(self) -> None:
        """Send the commands queued in this turn of the loop, and those that arrive meanwhile."""
        while self._queue:
            if self._to_repair:
                await asyncio.sleep(0)  # calls that have an answer count it first
                self._repair()
            batch = [self._queue.popleft() for _ in range(min(MAX_BATCH, len(self._queue)))]
            wait = _Wait(self._is_answered, self._expire)
            try:
                if not self._connection.is_connected:
                    raise RemoteAway
                replies = await self._exchange(batch)
            except Exception as error:  # any error, since calls wait for the result
                if not isinstance(error, RedisError | OSError):
                    log.exception("limits: the exchange with Redis failed")
                await self._lose(batch, error)
            except asyncio.CancelledError:
                if not self._late:
                    raise
                self._late = False
                await self._lose(batch, RemoteAway())
            else:
                await self._receive(batch, replies, slow=wait.slow)
            finally:
                wait.end()
        self._flusher = None

    def _is_answered(self) -> bool:
        """Return whether there is data to read, or the connection is closed."""
        writer = self._connection._writer
        if writer is None or writer.is_closing():
            return True
        poll = select.poll()
        poll.register(writer.get_extra_info("socket"), select.POLLIN)
        return bool(poll.poll(0))

    def _expire(self) -> None:
        """Give up the running batch."""
        if self._flusher is not None:
            self._late = True
            self._flusher.cancel()

    async def _exchange(self, batch: Sequence[_Command]) -> list[Any]:
        connection = self._connection
        # hiredis's types do not allow a tuple of several words.
        packed = [hiredis.pack_command(tuple(command.words)) for command in batch]  # type: ignore[arg-type]
        await connection.send_packed_command(packed, check_health=False)
        replies: list[Any] = []
        for _ in batch:
            try:
                replies.append(await connection.read_response())
            except ResponseError as error:
                replies.append(error)
        return replies

    async def _receive(
        self, batch: Sequence[_Command], replies: Sequence[Any], *, slow: bool
    ) -> None:
        """Answer the commands of a batch. A server that refuses commands cannot count limits."""
        failures = [reply for reply in replies if isinstance(reply, ResponseError)]
        if any(isinstance(failure, NoScriptError) for failure in failures):  # Redis lost scripts
            self._load_scripts()
            self._lost.set()
        refusals = [failure for failure in failures if not isinstance(failure, NoScriptError)]
        self._note(bad=slow or bool(refusals), why=refusals[0] if refusals else None)
        for command, reply in zip(batch, replies, strict=True):
            if isinstance(reply, ResponseError):
                self._fail([command], reply)
            elif command.answer is not None and not command.answer.done():
                command.answer.set_result(reply)
        if any(isinstance(refusal, ReadOnlyError) for refusal in refusals):
            await self._lose([], refusals[0])  # the host name may lead to another server by now

    def _fail(self, commands: Iterable[_Command], error: BaseException) -> None:
        for command in commands:
            self._unsure.update(command.keys)
            if command.answer is not None and not command.answer.done():
                command.answer.set_exception(error)

    async def _lose(self, batch: Sequence[_Command], error: BaseException) -> None:
        """Fail the commands that were sent and those that wait, and close the connection."""
        self._fail([*batch, *self._queue], error)
        self._queue.clear()
        self._connected = False
        self._note(bad=True, why=error)
        self._set_up(up=False, why=error)
        with contextlib.suppress(RedisError, OSError):
            await self._connection.disconnect(nowait=True)
        self._lost.set()

    def _note(self, *, bad: bool, why: BaseException | None = None) -> None:
        """Note how a wait ended. Open the breaker if many recent waits were bad."""
        self._bad.append(bad)
        if self._open_until_s and not bad:
            self._open_until_s = 0.0
            self._bad.clear()
        elif self._open_until_s or sum(self._bad) >= MOST_BAD_WAITS:
            self._open_until_s = time.monotonic() + OPEN_S
            self._set_up(up=False, why=why or "slow answers")
        if not bad:
            self._set_up(up=True)

    def _set_up(self, *, up: bool, why: BaseException | str = "") -> None:
        """Note whether Redis counts. Log each change, and each new error code of Redis."""
        code = getattr(why, "status_code", None)
        if up == self.up and self._tried.is_set() and code in {None, *self._codes}:
            return
        self._tried.set()
        self.up = up
        if up:
            self._codes.clear()
            log.info("limits: Redis counts for all nodes")
        else:
            self._codes.add(code)
            reason = f"{code} {why}" if code else str(why) or "no answer in time"
            log.error("limits: Redis cannot count, limits.fallback applies: %s", reason)

    # ---- leases ----------------------------------------------------------------------------------

    async def _keep(self) -> None:
        """Keep the connection and this worker's leases, and correct counts that may be wrong."""
        while True:
            self._lost.clear()
            try:
                if not self._connected:
                    await self._connect()
                await self._renew()
            except Exception as error:  # any error, since the loop must go on
                if not isinstance(error, RedisError | OSError):
                    log.exception("limits: the connection to Redis failed")
                self._set_up(up=False, why=error.__cause__ or error)
                await asyncio.sleep(AGAIN_S)
                continue
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._lost.wait(), RENEW_S)

    async def _connect(self) -> None:
        async with asyncio.timeout(CONNECT_S):
            await self._connection.connect()  # type: ignore[no-untyped-call]
        self._connected = True
        self._load_scripts()

    def _load_scripts(self) -> None:
        for script in _DIGESTS:
            self._put(_Command(["SCRIPT", "LOAD", script]))

    async def _renew(self) -> None:
        """Renew the lease, whatever the breaker's state, after counts that may be wrong are
        corrected."""
        self._to_repair = True
        self._pay()
        # Checks that scripts still run.
        self._put(_script(STATE, [_WORKER, PREFIX], [self._worker]))
        words: list[str | int] = ["SET", _WORKER + self._worker, 1, "PX", ALIVE_MS, "GET"]
        before = await self._send(_Command(words))
        if before is None:  # Redis lost its data, or this worker was away
            self._load_scripts()
            self._unsure.update(PREFIX + subject for subject in self._running)
            self._to_repair = True

    def _repair(self) -> None:
        """Send this worker's counts that may be wrong in Redis, while no command runs. They go
        ahead of the queue, whose returns of slots this worker has already subtracted."""
        unsure, self._unsure, self._to_repair = self._unsure, set(), False
        leaves = [command for command in self._queue if command.words[1] == _DIGESTS[LEAVE]]
        leaving = Counter(key for command in leaves for key in command.keys)
        for key in unsure:
            count = self._running.get(key.removeprefix(PREFIX), 0) + leaving[key]
            words: list[str | int] = ["HDEL", key, self._worker]
            if count:
                words = ["HSET", key, self._worker, count]
            self._queue.appendleft(_Command(words, [key]))


def _script(
    script: str, keys: list[str], args: Sequence[str | int], claims: Iterable[Claim] = ()
) -> _Command:
    """Return a script call that changes the slots of these claims."""
    words = ["EVALSHA", _DIGESTS[script], len(keys), *keys, *args]
    return _Command(words, [PREFIX + claim.subject for claim in claims if claim.concurrency])


class _Wait:
    """A limit on the wait for Redis, from the time when the loop has sent the commands. Only a look
    at the socket shows that Redis is late: the loop itself may be late while the answer is already
    there. `slow`: there was no answer after SLOW_S. `on_late` is called once, after WAIT_S."""

    def __init__(self, is_answered: Callable[[], bool], on_late: Callable[[], None]) -> None:
        self._is_answered, self._on_late = is_answered, on_late
        self._loop = asyncio.get_running_loop()
        self._sent_s = 0.0
        self.slow = False
        # The loop sends at the end of a turn, and then starts the next one.
        self._next: asyncio.Handle = self._loop.call_soon(self._begin)

    def _begin(self) -> None:
        self._sent_s = time.monotonic()
        self._next = self._loop.call_later(SLOW_S, self._look_soon)

    def _look_soon(self) -> None:
        # After the callbacks that handle what the loop has already read.
        self._next = self._loop.call_soon(self._look)

    def _look(self) -> None:
        waited_s = time.monotonic() - self._sent_s
        if self._is_answered():
            self._next = self._loop.call_later(SLOW_S, self._look_soon)
        elif waited_s < WAIT_S:
            self.slow = True
            self._next = self._loop.call_later(WAIT_S - waited_s, self._look_soon)
        else:
            self._on_late()

    def end(self) -> None:
        self._next.cancel()


def _triples(values: Sequence[int]) -> list[tuple[int, int, int]]:
    """Return values in threes, reordered as the reserved part, requests, tokens."""
    return [(values[at + 2], values[at], values[at + 1]) for at in range(0, len(values), 3)]
