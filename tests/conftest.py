"""Fixtures of all tests: an event loop of the test's own, and coroutine tests without a mark."""

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

# Before anything imports them: these assert for the tests of other modules.
pytest.register_assert_rewrite("tests.translation.cases", "tests.translation.clients")

# Tables are fitted to it; tests that want that set it. readline may have set it behind `environ`.
os.environ.pop("COLUMNS", None)
os.unsetenv("COLUMNS")

hash_passwords_cheaply()

CLIENTS_AT_ONCE = 200
LARGEST_ANSWER_BYTES = 1 << 30


# To collect makes objects that all stay: to look among them for garbage finds nothing.
gc.disable()


def pytest_collection_finish():
    gc.freeze()
    gc.enable()


# Side by side with others the longest files go first: else one process is left with them.
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
    """A loop that is closed with everything still running on it cancelled."""
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
    """A client that shares nothing with the gateway's own upstream client."""

    async def build():
        return SimpleAsyncHTTPClient(
            force_instance=True,
            max_clients=CLIENTS_AT_ONCE,
            max_body_size=LARGEST_ANSWER_BYTES,
        )

    client = io_loop.run_sync(build)
    yield client
    client.close()
