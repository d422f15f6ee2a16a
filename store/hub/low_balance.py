"""Below which balance a user wants to be told."""

import peewee

from store.db.database import first_row, in_transaction, insert_rows
from store.db.tables.hub import LowBalance


def threshold(db: peewee.Database, user_id: str) -> int | None:
    """The balance (nanos); None: the user has given none."""
    query = LowBalance.select(LowBalance.below).where(LowBalance.user_id == user_id)
    row = first_row(db, query)
    return None if row is None else int(row[0])


@in_transaction
def set_threshold(db: peewee.Database, user_id: str, below_nanos: int | None) -> None:
    """Tell the user below this balance; None: when it is about to end."""
    if below_nanos is None:
        LowBalance.delete().where(LowBalance.user_id == user_id).execute(db)
        return
    row = {"user_id": user_id, "below": below_nanos}
    insert_rows(db, LowBalance, [row], replace=("below",))
