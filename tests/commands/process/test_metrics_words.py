"""Words and names of series that two processes share."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from commands.process import metrics as module
from commands.process.metrics import SCRATCH, WordReader, WordTable
from conf.metrics import DURATION, REQUESTS, TOKENS
from tests.support import leash

ROOT = Path(__file__).resolve().parents[3]
COUNTS = """
import sys
from commands.process.metrics import WordTable
from conf.metrics import TOKENS
table = WordTable(int(sys.argv[1]))
first = table.add(TOKENS, ("", "0"))
for number in range(1, 20_000):
    index = table.add(TOKENS, ("m" * (number % 300), str(number)))
    table.words[index] = number + 1
    if number == 500:
        print("begun", flush=True)
while True:
    table.words[first] += 1
"""


@pytest.fixture
def reader():
    made = WordReader()
    yield made
    made.close()


def test_a_worker_that_has_not_begun_has_nothing(reader):
    assert list(reader.read()) == [] and reader.series == []


def test_what_is_counted_is_read_at_once(reader):
    table = WordTable(reader.descriptor)
    first = table.add(TOKENS, ("m", "input"))
    table.words[first] += 2**53 + 1
    assert reader.read()[first] == 2**53 + 1
    assert [(one.metric, one.labels, one.first) for one in reader.series] == [
        (TOKENS, ("m", "input"), first)
    ]
    second = table.add(DURATION, ("messages", 'odd "name"\n\udce9'))
    third = table.add(TOKENS, ("m", "output"))
    assert third == second + DURATION.words
    table.words[third] = 3
    assert reader.read()[third] == 3
    assert [one.labels for one in reader.series[1:]] == [
        ("messages", 'odd "name"\n\udce9'),
        ("m", "output"),
    ]


def test_a_full_table_counts_what_it_leaves_out(reader, monkeypatch):
    monkeypatch.setattr(module, "WORDS", SCRATCH + 60)
    table = WordTable(reader.descriptor)
    added = [table.add(DURATION, ("messages", str(number))) for number in range(4)]
    assert SCRATCH in added and table.dropped == added.count(SCRATCH)
    assert table.add(REQUESTS, ("x",) * 6) != SCRATCH  # one word still fits
    reader.read()
    assert len(reader.series) == len(added) - table.dropped + 1


def test_what_a_killed_worker_counted_stays(reader):
    """Read while it counts, and after SIGKILL: names and words are whole at any time."""
    command = [sys.executable, "-c", COUNTS, str(reader.descriptor)]
    worker = leash.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, pass_fds=(reader.descriptor,))
    assert worker.stdout.readline() == b"begun\n"
    for _ in range(50):
        check(reader)
    os.kill(worker.pid, signal.SIGKILL)
    worker.wait(10)
    worker.stdout.close()
    seen = check(reader)
    assert seen > 500 and check(reader) == seen


def check(reader):
    words = reader.read()
    for number, series in enumerate(reader.series):
        assert series.labels == ("m" * (number % 300), str(number))
        # the last one may have its name and no value yet
        assert words[series.first] == number + 1 or number in (0, len(reader.series) - 1)
    return len(reader.series)
