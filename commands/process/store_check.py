"""The check of the store at a start: usable, unreachable, or refused.

Also the link of the first run. The first worker prints it before it is ready, so that a script that
waits for the gateway has it. If the store was unreachable, the Hub prints it later.
"""

import asyncio
import os
import select
import sys
import threading
from concurrent.futures import ThreadPoolExecutor, wait

import msgspec
import peewee

from commands.process.logs import FORMS
from conf.settings import Settings
from conf.store_url import SQLITE
from operations.client_settings import hub_url
from store.calls.writer import Writer
from store.db import migrate
from store.db.database import open_database
from store.hub import first_run
from store.values.errors import StoreUnavailable
from store.values.ids import now_ms

SCHEMA_WAIT_S = 5  # for a database that accepts connections but does not answer
ORDERS_POLL_S = 0.05
FIRST_LOOK_S = 0.05
FIRST_LOOKS = 100  # calls are accepted after that, in any state of the store


class StoreCheck(msgspec.Struct, frozen=True):
    """The result of a check: the reason not to use the store (`refusal`), or the error if it did
    not answer (`unreachable`)."""

    refusal: str = ""
    unreachable: str = ""


def check(settings: Settings, *, first: bool) -> StoreCheck | None:
    """Check the store, which may take seconds. Return None if the supervisor stops this process
    meanwhile. The `first` worker of a gateway prints the link of the first run."""
    thread = ThreadPoolExecutor(1, thread_name_prefix="first look")
    check_result = thread.submit(_look, settings, first)
    thread.shutdown(wait=False)
    while not check_result.done():
        wait([check_result], ORDERS_POLL_S)
        if not check_result.done() and select.select([0], [], [], 0)[0]:
            return None
    return check_result.result()


def announce(db: peewee.Database, settings: Settings) -> None:
    """Print a new link, if one is needed, in the format of the log. Raises StoreUnavailable.

    It goes to standard error and not through the log, which masks tokens, may have a higher level,
    and may be kept in a file.
    """
    link = first_run.make_link(db) if settings.hub.enabled else None
    if link:
        message = (
            f"no administrator can sign in; first run, for 24 hours: {hub_url(settings.hub)}{link}"
        )
        line = FORMS[settings.log.format](now_ms(), "warning", "sluice.hub", message, {})
        os.write(sys.stderr.fileno(), line.encode() + b"\n")


def _look(settings: Settings, first: bool) -> StoreCheck:
    url = settings.store.url
    if missing := _missing_file(url):
        remedy = "bring it back, correct store.url, or create it: ./sluice init FOLDER"
        return StoreCheck(refusal=f"{missing} (store.url) does not exist; {remedy}")
    db = open_database(url, read_timeout_s=SCHEMA_WAIT_S)
    try:
        refusal = migrate.behind(db)
        if first and not refusal:
            announce(db, settings)
        return StoreCheck(refusal=refusal)
    except StoreUnavailable as error:
        return StoreCheck(unreachable=str(error))
    finally:
        db.close()


def _missing_file(url: str) -> str:
    """Return the name of the SQLite file if it is missing from its folder; else empty."""
    file = url.removeprefix(SQLITE)
    if not url.startswith(SQLITE) or not os.path.isdir(os.path.dirname(file)):
        return ""
    # SQLite would create an empty file, perhaps where a disk should be mounted
    return "" if os.path.exists(file) else file


async def first_contact(writer: Writer, keys_read: threading.Event) -> None:
    """Wait until a worker has read catalog and keys, unless the store is unreachable. Clients that
    connect meanwhile wait in the queue of the socket instead of being refused."""
    for _ in range(FIRST_LOOKS):
        if writer.trouble or (keys_read.is_set() and writer.was_up):
            return
        await asyncio.sleep(FIRST_LOOK_S)
