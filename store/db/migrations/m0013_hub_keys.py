"""In which groups a user may make keys, and the wrong paths that calls with a key have asked for.

Gateways of the version before go on working: they note no wrong path, and a user without groups of
its own has the default ones.
"""

from store.db.migrations.ddl import MYSQL, SQLITE, Migration, Table, add_columns, create

GROUPS = [("groups", "TEXT NULL")]
WRONG_PATHS = Table(
    "wrong_paths",
    columns=(
        ("key_id", "ID NOT NULL"),
        ("method", "VARCHAR(32) NOT NULL"),
        ("path", "VARCHAR(200) NOT NULL"),
        ("calls", "BIGINT NOT NULL"),
        ("first_ms", "BIGINT NOT NULL"),
        ("last_ms", "BIGINT NOT NULL"),
        ("address", "VARCHAR(64) NOT NULL"),
        ("agent", "VARCHAR(255) NOT NULL"),
        ("dismissed_ms", "BIGINT NULL"),
    ),
    primary=("key_id", "method", "path"),
    indexes={"wrong_paths_last_ms": ("last_ms",)},
)

MIGRATION = Migration(
    name="0013_hub_keys",
    sqlite=[*add_columns(SQLITE, "users", GROUPS), *create(SQLITE, WRONG_PATHS)],
    mysql=[*add_columns(MYSQL, "users", GROUPS), *create(MYSQL, WRONG_PATHS)],
)
