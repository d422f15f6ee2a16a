"""Limits that all nodes count together, in Redis: the cells of limits.py, by scripts.

One connection and one pipeline at a time for a worker: what calls need and give back while the last
one runs goes into the next. A call waits for its answer, at most WAIT_S; nobody waits for what is
given back. Where Redis does not answer, or slowly, a breaker keeps calls from waiting, and
`RemoteAway` leaves the choice to the caller. Slots are leases: a worker's count while its key of
liveness is there; what a lost answer left unknown is written again with the next renewal.
"""

import asyncio
import contextlib
import hashlib
import logging
import os
import time
from collections import Counter, deque
from collections.abc import Coroutine, Sequence
from typing import Any
from urllib.parse import quote, urlsplit

import redis
from msgspec import Struct
from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import NoScriptError, RedisError

from handlers.relay.limits.cells import Claim, LimitRefusal, Reservation, Slots
from handlers.relay.limits.scripts import ALIVE_MS, ENTER, LEAVE, STATE

log = logging.getLogger("sluice.relay")

WAIT_S = 0.05  # of a call for Redis
LONGEST_WAIT_S = 0.3  # with the time in which this process was busy
LEAST_WAIT_S = 0.002  # that is worth another timer
SLOW_S = 0.02
CONNECT_S = 1.0
RECENT_WAITS = 20
MOST_BAD_WAITS = 5  # of the recent ones: failed or slow
OPEN_S = 1.0  # then one call tries again
RENEW_S = 3.0
MAX_QUEUED = 20_000  # commands that wait for the connection; give-backs beyond it are counted anew
MAX_BATCH = 50  # commands of one pipeline
MAX_PLACES = 8  # of one script call
PREFIX = "sluice:"
_WORKER = PREFIX + "worker:"
_NS_PER_US = 1000
_ENV = "env:"
_DIGESTS = {s: hashlib.sha1(s.encode()).hexdigest() for s in (ENTER, LEAVE, STATE)}


class RemoteAway(TimeoutError):
    """Redis does not answer in time: limits cannot be counted by it now."""


class RemoteEntry(Struct, frozen=True, gc=False):
    """The slots that a call has of its callers and of a place, by the place's position."""

    callers: Slots
    place: Slots
    position: int


class _Command(Struct, eq=False):
    """A script call: its name, keys and arguments; `answer`: of a call that waits."""

    script: str
    keys: list[str]
    args: list[str | int]
    answer: asyncio.Future[Any] | None = None


def with_password(url: str) -> str:
    """Return the address with its password, where that is `env:NAME`. Raises KeyError without the
    variable."""
    parts = urlsplit(url)
    user, _, password = parts.netloc.rpartition("@")[0].partition(":")
    if not password.startswith(_ENV):
        return url
    secret = quote(os.environ[password.removeprefix(_ENV)], safe="")
    return parts._replace(netloc=f"{user}:{secret}@{parts.netloc.rpartition('@')[2]}").geturl()


def server_version(url: str) -> str:
    """Return the version of the server, as Redis counts it. Waits. Raises RedisError, OSError,
    KeyError, ValueError."""
    with redis.Redis.from_url(
        with_password(url), socket_timeout=CONNECT_S, socket_connect_timeout=CONNECT_S
    ) as client:
        return str(client.info("server")["redis_version"])


class RemoteCells:
    """The cells of all nodes of a store. `worker`: a name that no other process ever has."""

    def __init__(self, url: str, worker: str) -> None:
        self._redis = Redis.from_pool(
            BlockingConnectionPool.from_url(
                url,
                max_connections=2,  # for commands, for the renewal
                timeout=WAIT_S,
                socket_timeout=CONNECT_S,
                socket_connect_timeout=CONNECT_S,
                retry=Retry(NoBackoff(), 0),
                decode_responses=True,
            )
        )
        self._worker = worker
        self._queue: deque[_Command] = deque()
        self._running: Counter[str] = Counter()  # this worker's calls, by subject
        self._unsure: set[str] = set()  # subjects of which Redis may have another count
        self._bad: deque[bool] = deque(maxlen=RECENT_WAITS)
        self._open_until_s = 0.0
        self._tasks: set[asyncio.Task[None]] = set()
        self._flushing = False
        self.up = False

    def start(self) -> None:
        """Begin to renew the leases. On the loop."""
        self._spawn(self._renew())

    async def close(self) -> None:
        """Give up the leases, so that nobody waits for their end, and the connections."""
        for task in self._tasks:
            task.cancel()
        with contextlib.suppress(RedisError, OSError, TimeoutError):
            await self._redis.delete(_WORKER + self._worker)
        with contextlib.suppress(RedisError, OSError, TimeoutError):
            await self._redis.aclose()

    # ---- calls -----------------------------------------------------------------------------------

    async def enter(
        self,
        callers: Sequence[Claim],
        places: Sequence[Sequence[Claim]] = (),
        tokens: int = 0,
        least: int = 0,
    ) -> RemoteEntry | LimitRefusal | list[LimitRefusal]:
        """Take a call's part of all callers' claims and of the first place with room, or nothing: a
        caller's refusal with the longest wait, or one of each place. At most MAX_PLACES places; one
        without claims has room. Raises RemoteAway."""
        command = self._enter_command(callers, places, tokens, least)
        reply = await self._ask(command)
        if reply[0] == 0:
            _, number, kind, wait_us, requests_us, tokens_us = reply
            claim = callers[number - 1]
            states = (requests_us * _NS_PER_US, tokens_us * _NS_PER_US)
            return LimitRefusal(claim, kind, wait_us * _NS_PER_US or None, *states)
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
        return _Command(ENTER, keys, args)

    def _slots(self, reservations: list[Reservation]) -> Slots:
        of_tokens = any(reservation.claim.tpm for reservation in reservations)
        return Slots(reservations, of_tokens, home=self)

    def leave(self, slots: Slots, used_tokens: int | None) -> None:
        """Give slots back, settled by the tokens used; None: as if the call had never come.
        Idempotent; nobody waits for it."""
        if slots.left:
            return
        slots.left = True
        self._count(slots.reservations, -1)
        reservations = [
            reservation
            for reservation in slots.reservations
            if reservation.claim.concurrency or reservation.claim.tpm or used_tokens is None
        ]
        if not reservations:
            return
        used = -1 if used_tokens is None else used_tokens
        command = _Command(LEAVE, [], [self._worker, used])
        for reservation in reservations:
            claim = reservation.claim
            command.keys.append(PREFIX + claim.subject)
            reserved_us = reservation.reserved_ns // _NS_PER_US
            command.args += (claim.rpm, claim.tpm, claim.concurrency, reserved_us)
        self._put(command)

    async def state(self, claim: Claim) -> tuple[int, int, int]:
        """As SharedCells.state: the nanoseconds until the buckets of requests and tokens are full
        again, and the calls in flight of living workers. Raises RemoteAway."""
        keys = [_WORKER, PREFIX + claim.subject]
        requests_us, tokens_us, running = await self._ask(_Command(STATE, keys, [self._worker]))
        return requests_us * _NS_PER_US, tokens_us * _NS_PER_US, running

    def _count(self, reservations: Sequence[Reservation], by: int) -> None:
        for reservation in reservations:
            if reservation.claim.concurrency:
                subject = reservation.claim.subject
                self._running[subject] += by
                if not self._running[subject]:
                    del self._running[subject]

    # ---- the connection --------------------------------------------------------------------------

    async def _ask(self, command: _Command) -> Any:
        """Return the answer of a command. Raises RemoteAway."""
        now_s = time.monotonic()
        if now_s < self._open_until_s:
            raise RemoteAway
        if self._open_until_s:
            self._open_until_s = now_s + OPEN_S  # this one tries, others do not
        command.answer = asyncio.get_running_loop().create_future()
        wait = _Wait(command.answer)
        self._put(command)
        try:
            reply = await command.answer
        except (TimeoutError, RedisError, OSError) as error:
            self._unsure.update(command.keys[1:])
            self._note(bad=True, error=error)
            raise RemoteAway from None
        except asyncio.CancelledError:
            self._unsure.update(command.keys[1:])
            raise
        finally:
            wait.end()
        self._note(bad=wait.idle_s() > SLOW_S)
        return reply

    def _note(self, *, bad: bool, error: BaseException | None = None) -> None:
        """Note how a wait ended; open the breaker when many of the last were bad."""
        self._bad.append(bad)
        if self._open_until_s and not bad:
            self._open_until_s = 0.0
            self._bad.clear()
        elif self._open_until_s or sum(self._bad) >= MOST_BAD_WAITS:
            self._open_until_s = time.monotonic() + OPEN_S
            self._set_up(up=False, why=error)
        if not bad:
            self._set_up(up=True)

    def _set_up(self, *, up: bool, why: BaseException | None = None) -> None:
        if up != self.up:
            self.up = up
            if up:
                log.info("limits: Redis counts for all nodes")
            else:
                log.error("limits: Redis does not answer in time: %s", why or "slow answers")

    def _put(self, command: _Command) -> None:
        if len(self._queue) >= MAX_QUEUED:
            self._unsure.update(command.keys)
            return
        self._queue.append(command)
        if not self._flushing:
            self._flushing = True
            self._spawn(self._flush())

    async def _flush(self) -> None:
        """Send what has come in this turn of the loop, and what comes meanwhile."""
        try:
            await asyncio.sleep(0)
            while self._queue:
                batch = [self._queue.popleft() for _ in range(min(MAX_BATCH, len(self._queue)))]
                try:
                    await self._run(batch)
                except (RedisError, OSError, TimeoutError) as error:
                    self._fail(batch, error)
        finally:
            self._flushing = False

    async def _run(self, batch: list[_Command]) -> None:
        replies = await self._pipeline(batch)
        again = [
            command
            for command, reply in zip(batch, replies, strict=True)
            if isinstance(reply, NoScriptError)
        ]
        if again:  # the server was started anew
            await self._load_scripts()
            await self._run(again)
        for command, reply in zip(batch, replies, strict=True):
            if isinstance(reply, NoScriptError):
                continue
            if isinstance(reply, Exception):
                self._fail([command], reply)
            elif command.answer is not None and not command.answer.done():
                command.answer.set_result(reply)
            elif command.answer is not None and reply[0] == 1:
                self._unsure.update(command.keys[1:])  # taken for a call that did not wait

    async def _pipeline(self, batch: list[_Command]) -> list[Any]:
        pipeline = self._redis.pipeline(transaction=False)
        for command in batch:
            pipeline.evalsha(
                _DIGESTS[command.script], len(command.keys), *command.keys, *command.args
            )
        return await pipeline.execute(raise_on_error=False)

    async def _load_scripts(self) -> None:
        for script in _DIGESTS:
            await self._redis.script_load(script)

    def _fail(self, batch: Sequence[_Command], error: BaseException) -> None:
        for command in batch:
            self._unsure.update(key for key in command.keys if key != _WORKER)
            if command.answer is not None and not command.answer.done():
                command.answer.set_exception(error)

    # ---- leases ----------------------------------------------------------------------------------

    async def _renew(self) -> None:
        """Keep this worker's leases, and write again what Redis may have wrong."""
        while True:
            try:
                before = await self._redis.set(_WORKER + self._worker, 1, px=ALIVE_MS, get=True)
                self._set_up(up=not self._open_until_s)
                if before is None:  # it lost its data, or this worker was away
                    await self._load_scripts()
                    self._unsure.update(PREFIX + subject for subject in self._running)
                await self._repair()
            except (RedisError, OSError, TimeoutError) as error:
                self._set_up(up=False, why=error)
            await asyncio.sleep(RENEW_S)

    async def _repair(self) -> None:
        unsure, self._unsure = self._unsure, set()
        if not unsure:
            return
        pipeline = self._redis.pipeline(transaction=False)
        for key in unsure:
            count = self._running.get(key.removeprefix(PREFIX), 0)
            if count:
                pipeline.hset(key, self._worker, count)
            else:
                pipeline.hdel(key, self._worker)
        try:
            await pipeline.execute()
        except (RedisError, OSError, TimeoutError):
            self._unsure |= unsure
            raise

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


class _Wait:
    """The wait of a call for its answer, without the time in which this loop was busy itself. Not
    asyncio's time-out, which wants a task: a call is not always one."""

    def __init__(self, answer: asyncio.Future[Any]) -> None:
        self._answer = answer
        self._began_s, self._cpu_s = time.monotonic(), time.thread_time()
        self._timer = asyncio.get_running_loop().call_later(WAIT_S, self._expire)

    def idle_s(self) -> float:
        """Return how long Redis was waited for."""
        return time.monotonic() - self._began_s - (time.thread_time() - self._cpu_s)

    def end(self) -> None:
        self._timer.cancel()

    def _expire(self) -> None:
        left_s = WAIT_S - self.idle_s()
        late = time.monotonic() - self._began_s > LONGEST_WAIT_S
        if left_s > LEAST_WAIT_S and not late and not self._answer.done():
            self._timer = asyncio.get_running_loop().call_later(left_s, self._expire)
        elif not self._answer.done():
            self._answer.set_exception(TimeoutError())


def _triples(values: Sequence[int]) -> list[tuple[int, int, int]]:
    """Return values by three: of requests, of tokens, reserved."""
    return [(values[at + 2], values[at], values[at + 1]) for at in range(0, len(values), 3)]
