"""Notifications to systemd: once that the gateway is ready, regularly that its loop turns."""

import os
import socket

import pytest

from commands.process.notifier import MAX_STATUS_CHARS, Notifier


@pytest.fixture
def manager(tmp_path):
    """Return a socket like systemd's; heard() returns the received messages."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(tmp_path / "notify"))
        listener.setblocking(False)
        yield listener


def heard(listener):
    lines = []
    while True:
        try:
            lines.append(listener.recv(4096).decode())
        except BlockingIOError:
            return lines


def made(listener, **environ):
    return Notifier({"NOTIFY_SOCKET": listener.getsockname(), **environ})


def test_it_is_ready_once_and_says_why_not_before(manager):
    notifier = made(manager)
    for now, why in enumerate(("no worker\nis ready" + "x" * 1000,) * 2):
        notifier.tend(float(now), why)
    [line] = heard(manager)
    assert line.startswith("STATUS=starting: no worker") and "\n" not in line
    assert len(line) == len("STATUS=") + MAX_STATUS_CHARS
    notifier.tend(2.0, None)
    notifier.tend(3.0, "the store is away")
    assert heard(manager) == ["STATUS=serving", "READY=1"]


def test_it_beats_twice_as_often_as_it_must(manager):
    notifier = made(manager, WATCHDOG_USEC="30000000", WATCHDOG_PID=str(os.getpid()))
    for now in range(31):
        notifier.tend(float(now), None)
    assert heard(manager).count("WATCHDOG=1") == 3


@pytest.mark.parametrize(
    "more", [{}, {"WATCHDOG_USEC": "x"}, {"WATCHDOG_USEC": "1", "WATCHDOG_PID": "1"}]
)
def test_it_does_not_beat_for_nobody(manager, more):
    notifier = made(manager, **more)
    for now in range(100):
        notifier.tend(float(now), None)
    assert "WATCHDOG=1" not in heard(manager)


def test_a_drain_is_told_and_readiness_is_not_told_after_it(manager):
    notifier = made(manager)
    notifier.stopping()
    notifier.tend(1.0, None)
    assert heard(manager) == ["STOPPING=1", "STATUS=draining: running calls finish"]


def test_names_that_are_no_files(tmp_path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(f"\0sluice-{os.getpid()}")
        listener.setblocking(False)
        Notifier({"NOTIFY_SOCKET": f"@sluice-{os.getpid()}"}).tend(0.0, None)
        assert heard(listener) == ["STATUS=serving", "READY=1"]


def test_nobody_there_does_no_harm(tmp_path):
    for environ in ({}, {"NOTIFY_SOCKET": str(tmp_path / "gone")}):
        notifier = Notifier(environ)
        notifier.tend(0.0, None)
        notifier.stopping()
        assert environ == {}, "children would speak for their parent"
