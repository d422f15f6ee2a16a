"""The wall clock is set back by an hour while calls run (and forward again)."""

import datetime
import os
import shutil
import subprocess
import time

import pytest

from store.ids import ulid_ms
from tests.load import GOOD_PROMPTS, Load, Manner, check_books, gateway_before, names_in
from tests.upstream import ScriptedUpstream

HOUR_S = 3600
STAGE_S = 1.5
TOLERANCE_MS = 1000 * (HOUR_S + 60)
LONGEST_MS = 60_000
STEADY = Manner(callers=8, prompts=GOOD_PROMPTS, rest_s=0.05)


@pytest.fixture
def clock(tmp_path):
    """(environment of a process whose clock can be set, a function that sets it)."""
    program = shutil.which("faketime")
    if program is None:
        reason = "faketime is not installed (Debian: faketime)"
        pytest.fail(reason) if os.environ.get("CI") == "true" else pytest.skip(reason)
    library = subprocess.run(
        [program, "-m", "-f", "+0", "sh", "-c", "echo $LD_PRELOAD"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()
    offset = tmp_path / "offset"

    def set_by(seconds):
        # In one step: a process that reads meanwhile must not find an empty file.
        (tmp_path / "next").write_text(f"{seconds:+d}")
        (tmp_path / "next").rename(offset)

    set_by(0)
    environment = {
        "LD_PRELOAD": library,
        "FAKETIME_TIMESTAMP_FILE": str(offset),
        "FAKETIME_NO_CACHE": "1",
        "DONT_FAKE_MONOTONIC": "1",
        # Times of files are the disk's own.
        "NO_FAKE_STAT": "1",
    }
    return environment, set_by


def test_a_clock_that_is_set_back_an_hour_harms_neither_calls_nor_books(clock, tmp_path):
    environment, set_by = clock
    with ScriptedUpstream(log_file=tmp_path / "vendor.log") as vendor:
        gateway = gateway_before(vendor, tmp_path / "node", {"server.workers": 2})
        gateway.env = environment
        began_ms = int(time.time() * 1000)
        try:
            gateway.start()
            load = Load(gateway.port, "clock", STEADY)
            for seconds in (0, -HOUR_S, 0):
                set_by(seconds)
                time.sleep(STAGE_S)
            load.stop()
            assert load.not_served() == []
            records = check_books(gateway, names_in(tmp_path / "vendor.log"), [load])
            assert "Traceback" not in gateway.log()
            assert gateway.stop() == 0
        finally:
            gateway.close()
    check_times(records, began_ms)


def check_times(records, began_ms):
    """Ids and times are those of the clock as it was, whichever way it went."""
    ids = [record["id"] for record in records]
    assert len(set(ids)) == len(ids)
    back = [call_id for call_id in ids if ulid_ms(call_id) < began_ms - HOUR_S * 500]
    assert 0 < len(back) < len(ids), "the clock was not set back, or for good"
    for record in records:
        at_ms = ulid_ms(record["id"])
        started = datetime.datetime.fromisoformat(record["started_at"])
        # The id is the day of the record: both are taken at the same moment.
        assert abs(started.timestamp() * 1000 - at_ms) < 1000, record
        assert abs(at_ms - began_ms) < TOLERANCE_MS, record
    # Of a call that ran meanwhile the times are those of the clock, though never below zero.
    odd = [r for r in records if not r["ttft_ms"] <= r["duration_ms"] < LONGEST_MS]
    assert len(odd) <= 2 * STEADY.callers, odd[:3]
