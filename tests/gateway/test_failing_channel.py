"""Three equal channels under a steady stream of calls, and one of them fails, in every known way.

Nobody notices; the record of a call tells what it met; the channel is left after few failures and
back by itself. Each way has a model and channels of its own, so that all are played at one time.
"""

import asyncio
import contextlib
import functools
import itertools
import json
import re
import threading
import time
from dataclasses import dataclass, field

import pytest

from handlers.relay.routing.breaker import CONSECUTIVE_FAULTS, COOLDOWN_S
from handlers.relay.routing.health import SLOW_S
from tests.support import echo
from tests.support.client import encode_head
from tests.support.dialects import CHAT, PATHS, ask, credentials
from tests.support.documents import channel, document
from tests.support.echo import ANSWER, CHUNK, ERROR

HOST = "127.0.0.1"
SLOW_ANSWER_S = 10.0
RETRY_AFTER_S = 2
TIMEOUT_S = 12  # until the first byte
PATIENCE_S = 60
RATE, OUTAGE_S = 12.0, 3.0  # calls a second for each way, and how long it fails
LATE_OUTAGE_S = 8.0  # it takes some seconds to see that an answer is late
PLAY_S = 300  # at most, for all scenes
IN_FLIGHT = 3  # calls that are under way to the bad channel when it is left
SLACK_S = 3.0  # of a busy machine
_numbers = itertools.count()

answer_of = functools.partial(echo.answer_of, connection="keep-alive")


def said(value, streamed):
    """A value as plain answer or as the only event of a stream."""
    if not streamed:
        return answer_of(200, value)
    events = b"data: %b\n\ndata: [DONE]\n\n" % json.dumps(value).encode()
    return answer_of(200, events, "text/event-stream")


def well(streamed):
    return said(CHUNK if streamed else ANSWER, streamed)


HEAD_ONLY = b"HTTP/1.1 200 OK\r\nContent-Type: %b\r\nContent-Length: 500\r\n\r\n"


def after_head(streamed):
    return HEAD_ONLY % (b"text/event-stream" if streamed else b"application/json")


# Bytes that are sent for a request, in the ways that are no more than that.
BYTES = {
    "500": lambda _: answer_of(500, ERROR),
    "503": lambda _: answer_of(503, ERROR),
    "429": lambda _: answer_of(429, ERROR),
    "429-told": lambda _: answer_of(429, ERROR, retry_after=RETRY_AFTER_S),
    "401": lambda _: answer_of(401, ERROR),
    "html": lambda _: answer_of(200, b"<html>sorry</html>", "text/html"),
    "error-inside": lambda streamed: said(ERROR, streamed),
    "dies-in-head": lambda _: b"HTTP/1.1 200 OK\r\nContent-Ty",
    "dies-after-head": after_head,
}
DIE = ("dies-in-head", "dies-after-head")
AFTER_S = 6.0  # so many calls that a tenth is not missed by chance
QUICK = [*BYTES, "refuses", "resets"]
LATE = ["slow", "stalls"]


class Upstream:
    """One upstream; it is well as long as `way` is None."""

    def __init__(self):
        self.way = None
        self.well_at = []  # when it answered well
        self.port = 0
        self._server = None
        self._writers = set()

    async def open(self):
        self._server = await asyncio.start_server(self._serve, HOST, self.port, backlog=512)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self):
        """Ends, with all its connections: whoever connects is refused."""
        self._server.close()
        for writer in list(self._writers):
            writer.transport.abort()

    async def fail(self, way):
        self.way = way
        if way == "refuses":
            await self.close()
        elif way == "resets":
            for writer in list(self._writers):
                writer.transport.abort()

    async def recover(self):
        way, self.way = self.way, None
        if way == "refuses":
            await self.open()

    async def _serve(self, reader, writer):
        self._writers.add(writer)
        try:
            while self.way != "resets":
                await self._answer(reader, writer)
        except (OSError, EOFError, asyncio.CancelledError):
            pass
        finally:
            self._writers.discard(writer)
            writer.transport.abort()

    async def _answer(self, reader, writer):
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        size = re.search(rb"content-length: (\d+)", head)
        request = await reader.readexactly(int(size[1])) if size else b""
        streamed = b'"stream":true' in request.replace(b" ", b"")
        way = self.way
        if way == "stalls":
            await reader.read()
            raise EOFError
        if way == "slow":
            await asyncio.sleep(SLOW_ANSWER_S)
        if way in BYTES:
            writer.write(BYTES[way](streamed))
        else:
            writer.write(well(streamed))
            if way is None:
                self.well_at.append(time.monotonic())
        await writer.drain()
        if way in DIE:
            await asyncio.sleep(0.01)  # so that these bytes come before the reset
            raise EOFError


@dataclass(frozen=True)
class Seen:
    """What a caller saw."""

    began_s: float
    seconds: float
    status: int
    served: bool
    call_id: str


async def call(port, model, streamed):
    began = time.monotonic()
    # A conversation of its own: others would stay with the channel that served them last.
    body = json.dumps(ask(CHAT, model, f"Question {next(_numbers)}", stream=streamed)).encode()
    headers = {**credentials(CHAT), "Connection": "close"}
    reader, writer = await asyncio.open_connection(HOST, port)
    try:
        writer.write(encode_head("POST", PATHS[CHAT], headers, body) + body)
        async with asyncio.timeout(PATIENCE_S):
            data = await reader.read()
    finally:
        writer.close()
    head, _, answer = data.partition(b"\r\n\r\n")
    status = int(head.split(b" ", 2)[1])
    end = b"data: [DONE]\n\n\r\n0\r\n\r\n" if streamed else b"}"
    served = status == 200 and b'"Hi"' in answer and answer.endswith(end)
    call_id = re.search(rb"(?i)x-request-id: (\S+)", head)[1].decode()
    return Seen(began, time.monotonic() - began, status, served, call_id)


@dataclass
class Scene:
    """One way to fail, under calls that come `rate` times a second, plain and streamed in turn."""

    way: str
    port: int
    model: str
    upstreams: list
    rate: float
    outage_s: float
    seen: list = field(default_factory=list)
    failed_at: float = 0.0
    recovered_at: float = 0.0
    back_s: float = 0.0  # from the recovery to the first good answer

    @property
    def bad(self):
        return f"{self.model}-0"

    async def play(self):
        bad = self.upstreams[0]
        calling = asyncio.create_task(self._call_on())
        await asyncio.sleep(2.0)
        self.failed_at = time.monotonic()
        await bad.fail(self.way)
        await asyncio.sleep(self.outage_s)
        await bad.recover()
        self.recovered_at = time.monotonic()
        if self.way != "401":  # for long: not waited for
            limit = self.recovered_at + PATIENCE_S
            while not [at for at in bad.well_at if at > self.recovered_at]:
                assert time.monotonic() < limit, f"{self.way}: it does not come back"
                await asyncio.sleep(0.02)
            self.back_s = time.monotonic() - self.recovered_at
        await asyncio.sleep(AFTER_S)
        calling.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await calling

    async def _call_on(self):
        began, running = time.monotonic(), set()
        try:
            for number in itertools.count():
                task = asyncio.create_task(call(self.port, self.model, number % 2 == 0))
                running.add(task)
                await asyncio.sleep(max(0.0, began + (number + 1) / self.rate - time.monotonic()))
        finally:
            self.seen = await asyncio.gather(*running)


def faults_of(scene, gateway, within_s):
    """Failed attempts at the bad channel by calls that began so soon after it failed."""
    faults = 0
    for seen in scene.seen:
        attempts = gateway.record(seen.call_id)["attempts"]
        assert attempts, seen
        assert len({one["channel"] for one in attempts}) == len(attempts)
        if seen.served:
            assert (attempts[-1]["status"], attempts[-1]["error"]) == (200, None)
        for one in attempts:
            if one["error"] is not None:
                assert one["channel"] == scene.bad, (scene.way, attempts)
                faults += 0 <= seen.began_s - scene.failed_at < within_s
    return faults


@dataclass
class Stage:
    """A gateway with a model and three channels for each way."""

    gateway: object
    loop: asyncio.AbstractEventLoop
    upstreams: dict

    def begin(self, rate, outage_s, late_s=None):
        """Begins to play all ways at the same time; the future has way -> the scene, played."""
        scenes = {
            way: Scene(
                way,
                self.gateway.port,
                way,
                three,
                rate,
                late_s if late_s and way in LATE else outage_s,
            )
            for way, three in self.upstreams.items()
        }

        async def play_all():
            async with asyncio.TaskGroup() as group:
                for scene in scenes.values():
                    group.create_task(scene.play())
            return scenes

        return asyncio.run_coroutine_threadsafe(play_all(), self.loop)


@pytest.fixture(scope="module")
def loop():
    """A loop in a thread, for upstreams and callers."""
    made = asyncio.new_event_loop()
    thread = threading.Thread(target=made.run_forever, daemon=True)
    thread.start()
    yield made

    async def end():
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run_coroutine_threadsafe(end(), made).result(10)
    made.call_soon_threadsafe(made.stop)
    thread.join(10)
    made.close()


@pytest.fixture(scope="module")
def build(launch, loop):
    """build(ways, **settings) -> a stage."""
    opened = []

    async def on_all(do, upstreams):
        for one in upstreams:
            await do(one)

    def run(coroutine):
        asyncio.run_coroutine_threadsafe(coroutine, loop).result(10)

    def make(ways, **settings):
        upstreams = {way: [Upstream() for _ in range(3)] for way in ways}
        opened.extend(itertools.chain(*upstreams.values()))
        run(on_all(Upstream.open, itertools.chain(*upstreams.values())))
        channels = [
            channel(f"{way}-{number}", CHAT, f"http://{HOST}:{one.port}", {way: "up"})
            for way, three in upstreams.items()
            for number, one in enumerate(three)
        ]
        base = {
            "log.level": "info",
            "upstream.first_byte_timeout_s": TIMEOUT_S,
        }
        return Stage(launch(document(ways, channels), {**base, **settings}), loop, upstreams)

    yield make
    run(on_all(Upstream.close, opened))


@pytest.fixture(scope="module")
def both(build):
    """A stage for all ways that repeats calls after a time-out, and one that does not, played."""
    stages = [build([*QUICK, *LATE], **{"routing.retry_timeouts": "true"}), build(["stalls"])]
    playing = [stage.begin(RATE, OUTAGE_S, LATE_OUTAGE_S) for stage in stages]
    return [(stage.gateway, one.result(PLAY_S)) for stage, one in zip(stages, playing, strict=True)]


@pytest.fixture(scope="module")
def gateway(both):
    return both[0][0]


@pytest.fixture(scope="module")
def played(both):
    return both[0][1]


def tell(scene, faults):
    print(f"{scene.way}: {len(scene.seen)} calls, {faults} faults, back in {scene.back_s:.2f} s")


def check_nobody_noticed(scene):
    lost = [seen for seen in scene.seen if not seen.served]
    assert not lost, (scene.way, len(lost), len(scene.seen), lost[:3])


def check_put_aside(scene, gateway):
    """Few calls met it before its circuit opened for the first time."""
    at_once = scene.way in ("401", "429-told")
    cooldown_s = RETRY_AFTER_S if scene.way == "429-told" else 0.7 * COOLDOWN_S
    faults = faults_of(scene, gateway, cooldown_s)
    tell(scene, faults)
    assert 1 <= faults <= (1 if at_once else CONSECUTIVE_FAULTS) + IN_FLIGHT, (scene.way, faults)


def check_shared_again(scene):
    bad, *others = (
        sum(at > scene.recovered_at + scene.back_s for at in one.well_at) for one in scene.upstreams
    )
    assert bad >= sum(others) / 10, (scene.way, bad, others)


@pytest.mark.parametrize("way", QUICK)
def test_nobody_notices_and_it_is_left_and_comes_back(played, gateway, way):
    scene = played[way]
    check_nobody_noticed(scene)
    check_put_aside(scene, gateway)
    if way == "401":
        return
    cooldown_s = RETRY_AFTER_S if way == "429-told" else COOLDOWN_S
    assert scene.back_s <= cooldown_s + SLACK_S
    check_shared_again(scene)


@pytest.mark.parametrize("way", LATE)
def test_a_channel_that_does_not_answer_in_time_is_left_to_those_it_has(played, way):
    """Nobody fails: calls that it has are late, new ones go elsewhere."""
    scene = played[way]
    check_nobody_noticed(scene)
    # Known as slow by the first sweeps behind SLOW_S; then a probe at a time.
    late = [seen for seen in scene.seen if seen.seconds > SLOW_S]
    after = [seen for seen in late if seen.began_s > scene.failed_at + SLOW_S + SLACK_S]
    assert late and len(after) <= 3, (len(late), len(after))
    assert scene.back_s <= TIMEOUT_S + 2 * COOLDOWN_S + SLACK_S


def test_without_repeats_only_the_calls_that_the_stalling_channel_had_are_lost(both):
    gateway, scenes = both[1]
    scene = scenes["stalls"]
    lost = [seen for seen in scene.seen if not seen.served]
    assert lost and {seen.status for seen in lost} <= {200, 504}
    assert all(seen.began_s < scene.failed_at + SLOW_S + SLACK_S for seen in lost)
    for seen in lost:
        record = gateway.record(seen.call_id)
        assert (record["outcome"], len(record["attempts"])) == ("timeout", 1)


@pytest.mark.long
@pytest.mark.parametrize("way", [*QUICK, *LATE])
def test_fifty_calls_a_second_and_a_long_outage(build, way):
    stage = build([way], **{"routing.retry_timeouts": "true"})
    scene = stage.begin(50.0, 30.0).result(PLAY_S)[way]
    check_nobody_noticed(scene)
    if way in LATE:
        tell(scene, sum(seen.seconds > SLOW_S for seen in scene.seen))
        return
    check_put_aside(scene, stage.gateway)
    if way != "401":
        # The fourth cool-down of the outage is the longest that may be running.
        cooldown_s = RETRY_AFTER_S if way == "429-told" else 8 * COOLDOWN_S
        assert scene.back_s <= cooldown_s + SLACK_S
        check_shared_again(scene)
