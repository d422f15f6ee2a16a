"""The worker's first look at the store: whether it can be served, is away, or must be refused."""

import os
import select
from concurrent.futures import ThreadPoolExecutor, wait

import msgspec

from conf.store_url import SQLITE
from store.db import migrate
from store.db.database import open_database
from store.values.errors import StoreUnavailable

SCHEMA_WAIT_S = 5  # for a database that takes connections and does not answer
ORDERS_POLL_S = 0.05


class StoreFound(msgspec.Struct, frozen=True):
    """`refusal`: why this store cannot be served; `away`: why it cannot be had now."""

    refusal: str = ""
    away: str = ""


def check(url: str) -> StoreFound | None:
    """What a look at the store says, which may take seconds; None: the supervisor ends us."""
    thread = ThreadPoolExecutor(1, thread_name_prefix="first look")
    looking = thread.submit(_look, url)
    thread.shutdown(wait=False)
    while not looking.done():
        wait([looking], ORDERS_POLL_S)
        if not looking.done() and select.select([0], [], [], 0)[0]:
            return None
    return looking.result()


def _look(url: str) -> StoreFound:
    if missing := _missing_file(url):
        cure = "bring it back, correct store.url, or make it: ./sluice init FOLDER"
        return StoreFound(refusal=f"{missing} (store.url) does not exist; {cure}")
    db = open_database(url, read_timeout_s=SCHEMA_WAIT_S)
    try:
        return StoreFound(refusal=migrate.behind(db))
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
