"""Users written straight into the store."""

from store.db.database import execute, transaction
from store.values.ids import new_ulid


def add_user(db, name, *, wallet=True):
    user_id = new_ulid()

    def work():
        insert = (
            'INSERT INTO "users" ("id", "name", "role", "spend_order", "created_ms")'
            " VALUES (?, ?, 'member', 'plan_first', 0)"
        )
        execute(db, insert, (user_id, name))
        if wallet:
            execute(db, 'INSERT INTO "wallets" ("user_id", "balance") VALUES (?, 0)', (user_id,))

    transaction(db, work)
    return user_id
