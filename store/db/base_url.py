"""{base_url} as administrators set it in the Hub: the address at which clients reach the relay.

`server.public_url` of the file takes precedence. Without both, the listening address is used.
"""

import peewee

from store.db import audit, changes
from store.db.database import first_row, in_transaction
from store.db.tables.hub import HubValue
from store.values import texts
from store.values.errors import Refused

NAME = "base_url"


def stored_base_url(db: peewee.Database) -> str:
    """Return the address that was set, or an empty text."""
    row = first_row(db, HubValue.select(HubValue.value).where(HubValue.name == NAME))
    return str(row[0]) if row else ""


@in_transaction
def set_base_url(db: peewee.Database, url: str, actor: str) -> str:
    """Set the address, or remove it if `url` is empty. Return it as stored. Raises Refused."""
    try:
        url = texts.base_url(url) if url else ""
    except ValueError as error:
        raise Refused([f"the base URL {error}"], [NAME]) from None
    changes.lock(db)
    before = stored_base_url(db)
    if before == url:
        return url
    HubValue.delete().where(HubValue.name == NAME).execute(db)
    if url:
        HubValue.insert({"name": NAME, "value": url}).execute(db)
    audit.write(db, audit.Act(actor, "set", "hub", NAME, {NAME: before}, {NAME: url}))
    changes.bump(db, changes.CATALOG, [NAME])
    return url
