"""Rotation of secrets while a gateway runs: no call fails at any step, even if the rotation is
killed."""

import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time

import pytest

from conf import secrets
from conf.configuration import SECRETS_VARIABLE
from store.values.cipher import Cipher
from tests.gateway.conftest import MS_RDONLY
from tests.support import commands, leash
from tests.support.client import exchange, wait_until
from tests.support.dialects import CHAT, PATHS, SECRET, ask, credentials
from tests.support.documents import channel, document
from tests.support.gateway import ROOT

CHANNELS = 160  # enough that a rotation can be killed halfway


def content(url, count=8):
    keys = ["sk-upstream-1", "sk-upstream-2"]
    channels = [
        channel(
            f"c{number}", CHAT, url, {"water" if number > 3 else "tea": "demo-small"}, keys=keys
        )
        for number in range(count)
    ]
    return document(("tea", "water"), channels)


@pytest.fixture
def gateway(launch_own, vendor):
    return start(launch_own, content(vendor.url))


def start(launch_own, made):
    return launch_own(made, {"server.workers": 2}, follow=False, shared=False)


class Calls:
    """Calls one after the other with the old key, until `close`."""

    def __init__(self, gateway):
        self.gateway, self.statuses, self._going = gateway, [], True
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        while self._going:
            self.statuses.append(call(self.gateway, SECRET))
            time.sleep(0.05)

    def close(self):
        self._going = False
        self._thread.join(20)
        assert len(self.statuses) > 5
        assert set(self.statuses) == {200}, self.statuses


def call(gateway, secret):
    headers = credentials(CHAT, secret)
    return exchange(gateway.port, "POST", PATHS[CHAT], headers, ask(CHAT, "tea")).status


def status(gateway, kind):
    rows = json.loads(gateway.run("secrets", "status", "--json"))
    return next(row for row in rows if row["kind"] == kind)


def begun(gateway, process):
    """Return True once the first key of a channel has been sealed anew."""
    assert process.poll() is None, process.stderr.read()
    newest, *older = secrets.read(gateway.folder / "secrets.toml").cipher_keys
    if not older:
        return False
    with contextlib.closing(sqlite3.connect(gateway.folder / "sluice.db")) as db:
        first = 'SELECT "cipher" FROM "channel_keys" ORDER BY "channel_id" LIMIT 1'
        [token] = db.execute(first).fetchone()
    return Cipher([newest]).by_newest(token)


def test_a_killed_rotation_of_the_cipher_key_goes_on(launch_own, vendor):
    gateway = start(launch_own, content(vendor.url, CHANNELS))
    calls = Calls(gateway)
    argv = [sys.executable, str(ROOT / "app.py"), "secrets", "rotate", "cipher"]
    process = leash.Popen(
        [*argv, "--config", str(gateway.config)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    try:
        wait_until(lambda: begun(gateway, process), 60, 0.002)
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        process.stderr.close()
    middle = status(gateway, "cipher")
    assert middle["by_newest"] and middle["by_older"] and not middle["lost"]
    gateway.run("secrets", "remove-old", code=1)
    calls.close()
    gateway.kill()
    gateway.start()
    assert call(gateway, SECRET) == 200
    calls = Calls(gateway)
    done = json.loads(gateway.run("secrets", "rotate", "cipher", "--json"))
    assert done["resealed"] == middle["by_older"] and done["by_older"] == 0
    gateway.run("secrets", "remove-old")
    assert call(gateway, SECRET) == 200
    calls.close()
    gateway.stop()
    gateway.start()
    assert call(gateway, SECRET) == 200
    assert "is left out" not in gateway.log()


@pytest.fixture
def read_only_secrets(small_disk, remount):
    """Return (path on a disk that becomes read-only, function that installs a file there)."""
    mounted = small_disk / "secrets.toml"

    def bring(file):
        remount(0)
        mounted.write_bytes(file.read_bytes())
        remount(MS_RDONLY)

    return mounted, bring


def test_secrets_on_a_read_only_mount(launch_own, vendor, read_only_secrets, monkeypatch, tmp_path):
    """The recipe of docs/operations.md: a copy is changed, and installed at its source three
    times."""
    mounted, bring = read_only_secrets
    monkeypatch.setenv(SECRETS_VARIABLE, str(mounted))
    gateway = start(launch_own, content(vendor.url))
    bring(mounted)
    before = mounted.read_bytes()
    said = refused(gateway, "rotate", "cipher")
    assert "Read-only file system" in said and SECRETS_VARIABLE in said
    assert status(gateway, "cipher")["upcoming"] is False and mounted.read_bytes() == before

    copy = tmp_path / "secrets.toml"
    copy.write_bytes(before)
    copy.chmod(0o600)
    monkeypatch.setenv(SECRETS_VARIABLE, str(copy))
    name = (gateway.folder / "journal/node").read_text().strip()
    calls = Calls(gateway)
    assert f"{name}; copy {copy}" in refused(gateway, "rotate", "cipher")
    for step in ("rotate", "remove-old", ""):
        bring(copy)
        mark = secrets.load(copy).mark
        gateway.process.send_signal(signal.SIGHUP)
        wait_until(lambda mark=mark: marks(gateway) == {mark}, 30)
        if step:
            gateway.run("secrets", step, "cipher", "--nodes-reloaded")
    calls.close()
    assert len(secrets.read(mounted).cipher_keys) == 1 and mounted.read_bytes() != before


def refused(gateway, *args):
    """Run a command of `secrets` that must fail; return its message."""
    done = commands.run(["secrets", *args, "--config", str(gateway.config)])
    assert done.returncode == 1, done.stderr
    return done.stderr


def marks(gateway):
    """Return the marks of the secrets in those workers that take calls."""
    _, _, body = gateway.call("GET", "/status", port=gateway.ops_port)
    return {one.get("secrets") for one in json.loads(body)["workers"] if not one["leaving"]}
