"""A Redis server of Debian's package on a port of its own, for tests."""

import os
import signal
import subprocess
import time

import redis

from tests.support.ports import HOST, free_port
from tests.support.programs import program

START_S = 10


class RedisServer:
    """A context: an empty server, started and ended; `stop` kills it, `start` starts an empty one
    on the same port, `freeze` and `thaw` keep its connections."""

    def __init__(self):
        self.port, self._process = free_port(), None

    @property
    def url(self):
        return f"redis://{HOST}:{self.port}/3"

    @property
    def client(self):
        return redis.Redis(HOST, self.port, 3, decode_responses=True)

    def start(self):
        args = [program("redis-server", "valkey-server"), "--port", str(self.port)]
        args += ["--bind", HOST, "--save", "", "--dir", "/tmp"]
        self._process = subprocess.Popen(args, stdout=subprocess.DEVNULL)
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
