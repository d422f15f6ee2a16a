"""The first look at the store: whether it can be served, is away, or must be refused.

And the link of the first run, which the first worker prints before it is ready, so that whoever
waits for the gateway has it. When the store was away then, the Hub prints it later.
"""

import os
import select
import sys
from concurrent.futures import ThreadPoolExecutor, wait

import msgspec
import peewee

from commands.process.log_lines import FORMS
from conf.settings import Settings
from conf.store_url import SQLITE
from operations.client_settings import hub_url
from store.db import migrate
from store.db.database import open_database
from store.hub import first_run
from store.values.errors import StoreUnavailable
from store.values.ids import now_ms

SCHEMA_WAIT_S = 5  # for a database that takes connections and does not answer
ORDERS_POLL_S = 0.05


class StoreFound(msgspec.Struct, frozen=True):
    """`refusal`: why this store cannot be served; `away`: why it cannot be had now."""

    refusal: str = ""
    away: str = ""


def check(settings: Settings, *, first: bool) -> StoreFound | None:
    """What a look at the store says, which may take seconds; None: the supervisor ends us. The
    `first` worker of a gateway prints the link of the first run."""
    thread = ThreadPoolExecutor(1, thread_name_prefix="first look")
    looking = thread.submit(_look, settings, first)
    thread.shutdown(wait=False)
    while not looking.done():
        wait([looking], ORDERS_POLL_S)
        if not looking.done() and select.select([0], [], [], 0)[0]:
            return None
    return looking.result()


def announce(db: peewee.Database, settings: Settings) -> None:
    """Print a new link, if one is needed, as a line of the log's form. Raises StoreUnavailable.

    On standard error and not through the log, which takes tokens out, may have a level above and
    may be kept in a file.
    """
    link = first_run.make_link(db) if settings.hub.enabled else None
    if link:
        told = (
            f"no administrator can sign in; first run, for 24 hours: {hub_url(settings.hub)}{link}"
        )
        line = FORMS[settings.log.format](now_ms(), "warning", "sluice.hub", told, {})
        os.write(sys.stderr.fileno(), line.encode() + b"\n")


def _look(settings: Settings, first: bool) -> StoreFound:
    url = settings.store.url
    if missing := _missing_file(url):
        cure = "bring it back, correct store.url, or make it: ./sluice init FOLDER"
        return StoreFound(refusal=f"{missing} (store.url) does not exist; {cure}")
    db = open_database(url, read_timeout_s=SCHEMA_WAIT_S)
    try:
        refusal = migrate.behind(db)
        if first and not refusal:
            announce(db, settings)
        return StoreFound(refusal=refusal)
    except StoreUnavailable as error:
        return StoreFound(away=str(error))
    finally:
        db.close()


def _missing_file(url: str) -> str:
    """The SQLite file that is not in its folder; else empty. Without its folder it is away."""
    file = url.removeprefix(SQLITE)
    if not url.startswith(SQLITE) or not os.path.isdir(os.path.dirname(file)):
        return ""
    # SQLite would create an empty one, perhaps where a disk is to be mounted
    return "" if os.path.exists(file) else file
