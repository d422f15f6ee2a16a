"""What pays and what limits, beside wallets: plans, subscriptions, their windows, leases.

Gateways of the version before charge wallets without leases: while one runs beside gateways of this
version, a wallet can be spent twice as far as calls run at the same moment.
"""

from store.db.migrations.ddl import MYSQL, SQLITE, Migration, Table, create

ID = "ID NOT NULL"
NAME = "VARCHAR(128) NOT NULL"
WORD = "VARCHAR(32) NOT NULL"
NUMBER = "BIGINT NOT NULL"
NUMBER_OR_NULL = "BIGINT NULL"
FLAG = "SMALLINT NOT NULL DEFAULT 0"
ACCOUNT = "VARCHAR(64) NOT NULL"

TABLES = (
    Table(
        "plans",
        [
            ("id", ID),
            ("name", NAME),
            ("quota", NUMBER),
            ("window", WORD),
            ("days", NUMBER),
            ("disabled", FLAG),
            ("created_ms", NUMBER),
        ],
        ["id"],
        unique={"plans_name": ["name"]},
    ),
    Table(
        "subscriptions",
        [
            ("id", ID),
            ("user_id", ID),
            ("plan_id", ID),
            ("starts_ms", NUMBER),
            ("expires_ms", NUMBER),
            ("disabled", FLAG),
            ("created_ms", NUMBER),
        ],
        ["id"],
        unique={"subscriptions_user": ["user_id", "plan_id"]},
        indexes={"subscriptions_plan": ["plan_id"]},
    ),
    # What was spent in one window of a subscription or of a key's spend limit.
    Table(
        "quotas",
        [("account", ACCOUNT), ("spent", NUMBER), ("ends_ms", NUMBER_OR_NULL)],
        ["account"],
        indexes={"quotas_ends": ["ends_ms"]},
    ),
    Table(
        "leases",
        [
            ("account", ACCOUNT),
            ("journal_id", ID),
            ("amount", NUMBER),
            ("held", NUMBER),
            ("recall", FLAG),
        ],
        ["account", "journal_id"],
        indexes={"leases_journal": ["journal_id", "recall"]},
    ),
    Table("nodes", [("name", NAME), ("seen_ms", NUMBER)], ["name"]),
)

MIGRATION = Migration(
    name="0004_accounts",
    sqlite=[s for table in TABLES for s in create(SQLITE, table)],
    mysql=[s for table in TABLES for s in create(MYSQL, table)],
)
