"""Users, keys, groups, models, channels, money and usage records: the first schema."""

from store.db.migrations.ddl import MYSQL, SQLITE, Migration, Table, create

ID = "ID NOT NULL"
NAME = "VARCHAR(128) NOT NULL"
NAME_OR_NULL = "VARCHAR(128) NULL"
WORD = "VARCHAR(32) NOT NULL"
WORD_OR_NULL = "VARCHAR(32) NULL"
NUMBER = "BIGINT NOT NULL"
COUNT = "BIGINT NOT NULL DEFAULT 0"
NUMBER_OR_NULL = "BIGINT NULL"
DAY = "INT NOT NULL"
FLAG = "SMALLINT NOT NULL DEFAULT 0"
TEXT = "TEXT NOT NULL"
TEXT_OR_NULL = "TEXT NULL"
LONG = "LONGTEXT NOT NULL"
LONG_OR_NULL = "LONGTEXT NULL"
LIMITS = [("rpm", COUNT), ("tpm", COUNT), ("concurrency", COUNT)]

TABLES = (
    Table("versions", [("name", WORD), ("version", NUMBER)], ["name"]),
    Table(
        "change_log",
        [("version", NUMBER), ("kind", WORD), ("ref", NAME), ("at_ms", NUMBER)],
        ["version"],
    ),
    Table(
        "users",
        [
            ("id", ID),
            ("name", NAME),
            ("role", WORD),
            ("password_hash", "VARCHAR(255) NULL"),
            ("spend_order", WORD),
            ("disabled", FLAG),
            ("created_ms", NUMBER),
        ],
        ["id"],
        unique={"users_name": ["name"]},
    ),
    Table(
        "groups",
        [
            ("id", ID),
            ("name", NAME),
            ("multiplier_ppm", NUMBER),
            ("models", LONG),
            ("entries", TEXT),
            *LIMITS,
            ("disabled", FLAG),
        ],
        ["id"],
        unique={"groups_name": ["name"]},
    ),
    Table(
        "models",
        [
            ("id", ID),
            ("name", NAME),
            ("context_tokens", NUMBER_OR_NULL),
            ("max_output_tokens", NUMBER_OR_NULL),
            ("disabled", FLAG),
            ("created_ms", NUMBER),
        ],
        ["id"],
        unique={"models_name": ["name"]},
    ),
    Table(
        "prices",
        [
            ("model_id", ID),
            ("effective_ms", NUMBER),
            ("input", NUMBER),
            ("output", NUMBER),
            # NULL: not given, the default of interface "price" holds.
            ("cache_read", NUMBER_OR_NULL),
            ("cache_write", NUMBER_OR_NULL),
            ("cache_write_1h", NUMBER_OR_NULL),
            ("reasoning", NUMBER_OR_NULL),
            ("call", COUNT),
        ],
        ["model_id", "effective_ms"],
    ),
    Table(
        "channels",
        [
            ("id", ID),
            ("name", NAME),
            ("vendor", WORD),
            ("family", WORD),
            ("base_url", TEXT),
            ("groups", LONG),
            ("models", LONG),
            ("priority", COUNT),
            ("weight", "BIGINT NOT NULL DEFAULT 1"),
            *LIMITS,
            ("enabled", "SMALLINT NOT NULL DEFAULT 1"),
        ],
        ["id"],
        unique={"channels_name": ["name"]},
    ),
    Table(
        "channel_keys",
        [
            ("id", ID),
            ("channel_id", ID),
            ("position", NUMBER),
            ("cipher", TEXT),
            ("fingerprint", "VARCHAR(64) NOT NULL"),
        ],
        ["id"],
        indexes={"channel_keys_channel": ["channel_id", "position"]},
    ),
    Table(
        "api_keys",
        [
            ("id", ID),
            ("user_id", ID),
            ("name", NAME),
            ("group_id", ID),
            ("prefix", WORD),
            ("last_four", WORD),
            ("expires_ms", NUMBER_OR_NULL),
            ("models", LONG),
            ("networks", LONG),
            ("limit_nanos", NUMBER_OR_NULL),
            ("limit_window", WORD),
            *LIMITS,
            ("disabled", FLAG),
            ("revoked_ms", NUMBER_OR_NULL),
            ("created_ms", NUMBER),
        ],
        ["id"],
        unique={"api_keys_name": ["user_id", "name"]},
        indexes={"api_keys_group": ["group_id"]},
    ),
    Table(
        "key_secrets",
        [
            ("digest", "DIGEST NOT NULL"),
            ("key_id", ID),
            ("pepper_id", WORD),
            ("valid_until_ms", NUMBER_OR_NULL),
        ],
        ["digest"],
        indexes={"key_secrets_key": ["key_id"]},
    ),
    Table("wallets", [("user_id", ID), ("balance", NUMBER)], ["user_id"]),
    Table(
        "ledger",
        [
            ("id", ID),
            ("user_id", ID),
            ("kind", WORD),
            ("amount", NUMBER),
            ("balance_after", NUMBER),
            ("reference", "VARCHAR(255) NULL"),
            ("idempotency_id", "VARCHAR(255) NULL"),
            ("reason", TEXT),
            ("at_ms", NUMBER),
            ("day", "INT NULL"),
        ],
        ["id"],
        unique={"ledger_idempotency": ["idempotency_id"]},
        indexes={"ledger_user": ["user_id", "id"]},
    ),
    Table(
        "usage_records",
        [
            ("day", DAY),
            ("id", ID),
            ("started_ms", NUMBER),
            ("recorded_ms", NUMBER),
            ("user_id", ID),
            ("user", NAME),
            ("key_id", ID),
            ("key_name", NAME),
            ("group", NAME),
            ("endpoint", TEXT),
            ("family", WORD),
            ("upstream_family", WORD_OR_NULL),
            ("model", TEXT_OR_NULL),
            ("upstream_model", TEXT_OR_NULL),
            ("channel", NAME_OR_NULL),
            ("stream", "SMALLINT NULL"),
            ("status", "INT NULL"),
            ("outcome", WORD),
            ("error_code", "VARCHAR(64) NULL"),
            ("error_message", TEXT_OR_NULL),
            ("input_tokens", COUNT),
            ("output_tokens", COUNT),
            ("cache_read_tokens", COUNT),
            ("cache_write_tokens", COUNT),
            ("cache_write_1h_tokens", COUNT),
            ("reasoning_tokens", COUNT),
            ("usage_source", WORD),
            ("prices", TEXT_OR_NULL),
            ("multiplier_ppm", NUMBER_OR_NULL),
            ("cost_nanos", NUMBER),
            ("billed_to", "VARCHAR(255) NULL"),
            ("charges", TEXT),
            ("reported_usage", LONG_OR_NULL),
            ("ttft_ms", NUMBER_OR_NULL),
            ("duration_ms", NUMBER_OR_NULL),
            ("attempts", LONG),
            ("client_request_id", "VARCHAR(255) NULL"),
            ("upstream_request_id", TEXT_OR_NULL),
            ("client_ip", "VARCHAR(64) NULL"),
            ("user_agent", TEXT_OR_NULL),
            ("node", NAME_OR_NULL),
        ],
        ["day", "id"],
        indexes={
            "usage_recorded": ["recorded_ms", "id"],
            "usage_user": ["user", "day", "id"],
            "usage_key": ["key_id", "day", "id"],
        },
        partition='PARTITION BY RANGE ("day") (PARTITION "pmax" VALUES LESS THAN MAXVALUE)',
    ),
    Table(
        "journals",
        [
            ("id", ID),
            ("node", NAME),
            ("offset", NUMBER),
            ("opened_ms", NUMBER),
            ("finished_ms", NUMBER_OR_NULL),
        ],
        ["id"],
    ),
    Table(
        "audit_log",
        [
            ("id", ID),
            ("at_ms", NUMBER),
            ("actor", NAME),
            ("action", WORD),
            ("kind", WORD),
            ("name", "VARCHAR(300) NOT NULL"),
            ("before", LONG_OR_NULL),
            ("after", LONG_OR_NULL),
        ],
        ["id"],
    ),
)

# The one counter of the change log; its row must exist before anything is changed.
FIRST_VERSION = 'INTO "versions" ("name", "version") VALUES (\'changes\', 0)'

MIGRATION = Migration(
    name="0001_core",
    sqlite=[s for table in TABLES for s in create(SQLITE, table)]
    + [f"INSERT OR IGNORE {FIRST_VERSION}"],
    mysql=[s for table in TABLES for s in create(MYSQL, table)]
    + [f"INSERT IGNORE {FIRST_VERSION}"],
)
