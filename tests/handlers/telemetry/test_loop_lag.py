"""How late timers run."""

import asyncio
import time

from handlers.telemetry import metrics
from handlers.telemetry.metrics import LoopLag


async def test_a_blocked_loop_is_seen(monkeypatch):
    monkeypatch.setattr(metrics, "LAG_INTERVAL_S", 0.01)
    seen = []
    lag = LoopLag(seen.append)
    lag.start()
    await asyncio.sleep(0.05)
    assert seen
    time.sleep(0.1)  # noqa: ASYNC251 - that is the fault
    await asyncio.sleep(0.02)
    assert max(seen) > 50_000
    lag.stop()
    count = len(seen)
    await asyncio.sleep(0.03)
    assert len(seen) == count
