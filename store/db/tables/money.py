"""Wallets, plans, leases and spending, the ledger, redeem codes."""

from peewee import BigIntegerField, CharField, CompositeKey, IntegerField, TextField

from store.db.tables.fields import ID, MARK, NAME, TEXT, WORD, Digest, Flag, Row


class Wallet(Row):
    """The balance of a user, the sum of the user's ledger lines. `locks` counts the transactions
    that lent: they lock the row by changing it (ADR 0042)."""

    user_id = CharField(ID, primary_key=True)
    balance = BigIntegerField()
    locks = BigIntegerField(default=0)

    class Meta:
        table_name = "wallets"


class Plan(Row):
    """A quota per window (day, week, month) that a subscription grants for `days` days."""

    id = CharField(ID, primary_key=True)
    name = CharField(NAME, unique=True)
    quota = BigIntegerField()
    window = CharField(WORD)
    days = BigIntegerField()
    disabled = Flag(default=False)
    created_ms = BigIntegerField()

    class Meta:
        table_name = "plans"


class Subscription(Row):
    """A user's right to a plan between two times."""

    id = CharField(ID, primary_key=True)
    user_id = CharField(ID)
    plan_id = CharField(ID)
    starts_ms = BigIntegerField()
    expires_ms = BigIntegerField()
    disabled = Flag(default=False)
    created_ms = BigIntegerField()

    class Meta:
        table_name = "subscriptions"


Subscription.add_index(
    Subscription.user_id, Subscription.plan_id, unique=True, name="subscriptions_user"
)
Subscription.add_index(Subscription.plan_id, name="subscriptions_plan")


class Quota(Row):
    """The spending in one window of a subscription or a spend limit. `ends_ms` None: never.
    `account` is `accounts.Account.id`; `locks` is as in Wallet."""

    account = CharField(MARK, primary_key=True)
    spent = BigIntegerField()
    ends_ms = BigIntegerField(null=True)
    locks = BigIntegerField(default=0)

    class Meta:
        table_name = "quotas"


Quota.add_index(Quota.ends_ms, name="quotas_ends")


class Lease(Row):
    """The part of an account's free money that the process of a journal may spend.

    `held` is the sum that its running calls reserve (up to a second old). `recall`: another process
    asks for the part that is not held. Changed only under the lock of the account's row.
    """

    account = CharField(MARK)
    journal_id = CharField(ID)
    amount = BigIntegerField()
    held = BigIntegerField()
    recall = Flag(default=False)

    class Meta:
        table_name = "leases"
        primary_key = CompositeKey("account", "journal_id")


Lease.add_index(Lease.journal_id, Lease.recall, name="leases_journal")


class LedgerLine(Row):
    """A movement of a wallet (signed amount). Lines of the kind `charges` sum up a UTC day."""

    id = CharField(ID, primary_key=True)
    user_id = CharField(ID)
    kind = CharField(WORD)
    amount = BigIntegerField()
    balance_after = BigIntegerField()
    reference = CharField(TEXT, null=True)
    idempotency_id = CharField(TEXT, null=True)
    reason = TextField()
    at_ms = BigIntegerField()
    day = IntegerField(null=True)

    class Meta:
        table_name = "ledger"


LedgerLine.add_index(LedgerLine.idempotency_id, unique=True, name="ledger_idempotency")
LedgerLine.add_index(LedgerLine.user_id, LedgerLine.id, name="ledger_user")


class RedeemCode(Row):
    """A redeem code by its keyed digest. `redeemed_by` is a user's id."""

    id = CharField(ID, primary_key=True)
    digest = Digest(unique=True)
    pepper_id = CharField(WORD)
    last_four = CharField(WORD)
    amount = BigIntegerField()
    expires_ms = BigIntegerField(null=True)
    created_ms = BigIntegerField()
    disabled_ms = BigIntegerField(null=True)
    redeemed_ms = BigIntegerField(null=True)
    redeemed_by = CharField(ID, null=True)

    class Meta:
        table_name = "codes"
