"""A Redis server from Debian's package on a port of its own, for tests."""

import os
import signal
import subprocess
import time

import redis

from tests.support import leash
from tests.support.ports import HOST, free_port
from tests.support.programs import program

START_S = 10


class RedisServer:
    """A context manager: an empty server, started and ended. `stop` kills it, `start` starts an
    empty one on the same port, `freeze` and `thaw` keep its connections. `configuration`: a file;
    `password`: the one that this file sets."""

    def __init__(self, configuration=None, password=None):
        self.port, self._process = free_port(), None
        self._configuration, self._password = configuration, password

    @property
    def url(self):
        return f"redis://{HOST}:{self.port}/3"

    @property
    def pid(self):
        return self._process.pid

    @property
    def client(self):
        return redis.Redis(HOST, self.port, 3, self._password, decode_responses=True)

    def start(self):
        file = [str(self._configuration)] if self._configuration else ["--save", ""]
        args = [program("redis-server", "valkey-server"), *file, "--port", str(self.port)]
        args += ["--bind", HOST, "--dir", "/tmp"]
        self._process = leash.Popen(args, stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            try:
                self.client.ping()
                return
            except redis.RedisError:
                time.sleep(0.02)
        raise AssertionError("redis-server does not start")

    def stop(self):
        self._process.kill()
        self._process.wait()

    def freeze(self):
        os.kill(self._process.pid, signal.SIGSTOP)

    def thaw(self):
        os.kill(self._process.pid, signal.SIGCONT)

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *exc):
        self.thaw()
        self.stop()
