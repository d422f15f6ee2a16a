"""Fixtures of all tests: an event loop for each test, and coroutine tests that need no mark."""

import asyncio
import gc
import inspect
import os
from pathlib import Path

import pytest
import uvloop
from tornado.ioloop import IOLoop
from tornado.simple_httpclient import SimpleAsyncHTTPClient

from tests.support.commands import hash_passwords_cheaply
from tests.support.mariadb import mariadb  # noqa: F401  a fixture for all folders

# Before anything imports these modules: they make assertions for other test modules.
pytest.register_assert_rewrite("tests.translation.cases", "tests.translation.clients")

# Tables are fitted to COLUMNS; tests that depend on it set it. readline may have set it behind the
# back of `os.environ`.
os.environ.pop("COLUMNS", None)
os.unsetenv("COLUMNS")

hash_passwords_cheaply()

CLIENTS_AT_ONCE = 200
LARGEST_ANSWER_BYTES = 1 << 30


# Collecting tests creates objects that all live to the end, so garbage collection would find
# nothing.
gc.disable()


def pytest_collection_finish():
    gc.freeze()
    gc.enable()


# With several processes the longest files go first; otherwise one process ends up with them alone.
LONG_FIRST = ("gateway", "sdk", "handlers", "store")


def pytest_collection_modifyitems(config, items):
    if hasattr(config, "workerinput"):
        items.sort(key=_place)
    for item in items:
        if inspect.iscoroutinefunction(getattr(item, "obj", None)):
            if item.get_closest_marker("gen_test") is None:
                item.add_marker("gen_test")
            if "io_loop" not in item.fixturenames:
                item.fixturenames.append("io_loop")


def _place(item):
    folder = item.path.relative_to(Path(__file__).parent).parts[0]
    return LONG_FIRST.index(folder) if folder in LONG_FIRST else len(LONG_FIRST)


@pytest.fixture
def io_loop():
    """Yield a loop; at the end, cancel everything that still runs on it and close it."""
    loop = uvloop.new_event_loop()  # as the worker does
    asyncio.set_event_loop(loop)
    tornado_loop = IOLoop(asyncio_loop=loop, make_current=False)
    yield tornado_loop
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.run_until_complete(loop.shutdown_default_executor())
    asyncio.set_event_loop(None)
    tornado_loop.close(all_fds=True)


@pytest.fixture
def http_client(io_loop):
    """Return an HTTP client that shares nothing with the gateway's own upstream client."""

    async def build():
        return SimpleAsyncHTTPClient(
            force_instance=True,
            max_clients=CLIENTS_AT_ONCE,
            max_body_size=LARGEST_ANSWER_BYTES,
        )

    client = io_loop.run_sync(build)
    yield client
    client.close()
