"""Limits that all nodes count together, in Redis: the cells of limits.py, by scripts.

One connection and one pipeline at a time for a worker: what calls need and give back while the last
one runs goes into the next. A call waits for its answer, a pipeline at most WAIT_S; nobody waits
for what is given back. Where Redis does not answer, or slowly, a breaker keeps calls from waiting,
and `RemoteAway` leaves the choice to the caller. Slots are leases: a worker's count while its key
of liveness is there; what a lost answer left unknown is written again with the next renewal. What
nodes let through by themselves meanwhile is owed: Redis counts it before the next call.
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

WAIT_S = 0.05  # of a call for Redis
SLOW_S = 0.02
CONNECT_S = 1.0
RECENT_WAITS = 20
MOST_BAD_WAITS = 5  # of the recent ones: failed or slow
OPEN_S = 1.0  # then one call tries again
RENEW_S = 3.0
AGAIN_S = 0.2  # between two tries to connect
MAX_QUEUED = 20_000  # commands that wait for the connection; give-backs beyond it are counted anew
MAX_BATCH = 50  # commands of one pipeline
MAX_PLACES = 8  # of one script call
MAX_OWED = 5_000  # subjects; beyond them all is forgiven
OWED_BATCH = 200  # subjects of one command
PREFIX = "sluice:"
_WORKER = PREFIX + "worker:"
_NS_PER_US = 1000
MINUTE_US = MINUTE_NS // _NS_PER_US
_ENV = "env:"
_DIGESTS = {s: hashlib.sha1(s.encode()).hexdigest() for s in (ENTER, LEAVE, OWED, STATE)}


class RemoteAway(TimeoutError):
    """Redis does not answer in time: limits cannot be counted by it now."""


class RemoteEntry(Struct, frozen=True, gc=False):
    """The slots that a call has of its callers and of a place, by the place's position."""

    callers: Slots
    place: Slots
    position: int


class _Command(Struct, eq=False):
    """A command: its words, the keys of subjects whose slots it takes or gives back; `answer`: of
    one that is waited for."""

    words: list[str | int]
    keys: list[str] = []
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
    """The cells of all nodes of a store. `worker`: a name that no other process ever has. Raises
    ValueError of an address that is none."""

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
        self._unsure: set[str] = set()  # keys of subjects of which Redis may have another count
        # By the key of a subject: the time when its buckets of requests and tokens would be full
        # again, had only this worker taken from them, and only while Redis was away.
        self._owed: dict[str, list[int]] = {}
        self._bad: deque[bool] = deque(maxlen=RECENT_WAITS)
        self._open_until_s = 0.0
        self._flusher: asyncio.Task[None] | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._tried, self._lost = asyncio.Event(), asyncio.Event()
        self._late = False
        self._to_repair = False  # with the next pipeline
        self._connected = False  # with the scripts on their way
        self.up = False
        self._codes: set[str | None] = set()  # of errors that Redis answered since it last counted

    async def start(self) -> None:
        """Connect, and renew the leases from now on; return after the first try: what a node counts
        by itself before it would be counted twice."""
        self._keeper = asyncio.get_running_loop().create_task(self._keep())
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._tried.wait(), CONNECT_S)

    async def close(self) -> None:
        """Give up the leases, so that nobody waits for their end, and the connection."""
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
        """Take a call's part of all callers' claims and of the first place with room, or nothing: a
        caller's refusal with the longest wait, or one of each place. At most MAX_PLACES places; one
        without claims has room. Raises RemoteAway."""
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
        """Give slots back, settled by the tokens used; None: as if the call had never come. Once;
        nobody waits for it."""
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
        """As SharedCells.state: the nanoseconds until the buckets of requests and tokens are full
        again, and the calls in flight of living workers. Raises RemoteAway."""
        keys = [_WORKER, PREFIX + claim.subject]
        requests_us, tokens_us, running = await self._ask(_script(STATE, keys, [self._worker]))
        return requests_us * _NS_PER_US, tokens_us * _NS_PER_US, running

    def owe(self, claims: Iterable[Claim], requests: int, tokens: int) -> None:
        """Have Redis count, once it is back, what this node let through by itself."""
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
        """Send what is owed, ahead of the call that is to be counted next."""
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
        """Send what has come in this turn of the loop, and what comes meanwhile."""
        while self._queue:
            if self._to_repair:
                await asyncio.sleep(0)  # who has an answer counts it first
                self._repair()
            batch = [self._queue.popleft() for _ in range(min(MAX_BATCH, len(self._queue)))]
            wait = _Wait(self._is_answered, self._expire)
            try:
                if not self._connection.is_connected:
                    raise RemoteAway
                replies = await self._exchange(batch)
            except Exception as error:  # whatever it is: calls wait for this
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
        """Return whether there is something to read, or nothing will come any more."""
        writer = self._connection._writer
        if writer is None or writer.is_closing():
            return True
        poll = select.poll()
        poll.register(writer.get_extra_info("socket"), select.POLLIN)
        return bool(poll.poll(0))

    def _expire(self) -> None:
        """Give up the batch that runs."""
        if self._flusher is not None:
            self._late = True
            self._flusher.cancel()

    async def _exchange(self, batch: Sequence[_Command]) -> list[Any]:
        connection = self._connection
        # Its types know no tuple of several words.
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
        """Answer the commands of a batch; a server that refuses them does not count."""
        failures = [reply for reply in replies if isinstance(reply, ResponseError)]
        if any(isinstance(failure, NoScriptError) for failure in failures):  # it lost them
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
            await self._lose([], refusals[0])  # the name may lead to another server by now

    def _fail(self, commands: Iterable[_Command], error: BaseException) -> None:
        for command in commands:
            self._unsure.update(command.keys)
            if command.answer is not None and not command.answer.done():
                command.answer.set_exception(error)

    async def _lose(self, batch: Sequence[_Command], error: BaseException) -> None:
        """Fail what was sent and what waits; the connection is of no use any more."""
        self._fail([*batch, *self._queue], error)
        self._queue.clear()
        self._connected = False
        self._note(bad=True, why=error)
        self._set_up(up=False, why=error)
        with contextlib.suppress(RedisError, OSError):
            await self._connection.disconnect(nowait=True)
        self._lost.set()

    def _note(self, *, bad: bool, why: BaseException | None = None) -> None:
        """Note how a wait ended; open the breaker when many of the last were bad."""
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
        """Note whether Redis counts; the log has each change, and each other error it answers."""
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
        """Keep the connection and this worker's leases; write again what Redis may have wrong."""
        while True:
            self._lost.clear()
            try:
                if not self._connected:
                    await self._connect()
                await self._renew()
            except Exception as error:  # whatever it is: it is tried again
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
        """Renew the lease, whatever the breaker says, behind what Redis may have wrong."""
        self._to_repair = True
        self._pay()
        self._put(_script(STATE, [_WORKER, PREFIX], [self._worker]))  # scripts run, too
        words: list[str | int] = ["SET", _WORKER + self._worker, 1, "PX", ALIVE_MS, "GET"]
        before = await self._send(_Command(words))
        if before is None:  # it lost its data, or this worker was away
            self._load_scripts()
            self._unsure.update(PREFIX + subject for subject in self._running)
            self._to_repair = True

    def _repair(self) -> None:
        """Send this worker's counts that Redis may have wrong, while no command runs: ahead of
        those that wait, of which give-backs are counted already."""
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
    """Return a call of a script, which changes the slots of these claims."""
    words = ["EVALSHA", _DIGESTS[script], len(keys), *keys, *args]
    return _Command(words, [PREFIX + claim.subject for claim in claims if claim.concurrency])


class _Wait:
    """A limit to the wait for Redis, from when the loop has sent what it was given. Only a look at
    the socket tells that Redis is late: this loop may be, while the answer is there. `slow`: it had
    not come after SLOW_S; `on_late` is called once, after WAIT_S."""

    def __init__(self, is_answered: Callable[[], bool], on_late: Callable[[], None]) -> None:
        self._is_answered, self._on_late = is_answered, on_late
        self._loop = asyncio.get_running_loop()
        self._sent_s = 0.0
        self.slow = False
        # The loop sends at the end of a turn, and then begins the next one.
        self._next: asyncio.Handle = self._loop.call_soon(self._begin)

    def _begin(self) -> None:
        self._sent_s = time.monotonic()
        self._next = self._loop.call_later(SLOW_S, self._look_soon)

    def _look_soon(self) -> None:
        # After those that were waiting for what this loop has read by now.
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
    """Return values by three: of requests, of tokens, reserved."""
    return [(values[at + 2], values[at], values[at + 1]) for at in range(0, len(values), 3)]
