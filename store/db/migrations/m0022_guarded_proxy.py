"""Channels know whether their proxy was set over HTTP, whose address is then held to
`upstream.allow_private`.

Gateways of the version before go on working: to them a proxy may be anywhere, as it was.
"""

from store.db.migrations.ddl import MYSQL, SQLITE, Migration, add_columns

COLUMNS = [("proxy_guarded", "SMALLINT NOT NULL DEFAULT 0")]

MIGRATION = Migration(
    name="0022_guarded_proxy",
    sqlite=add_columns(SQLITE, "channels", COLUMNS),
    mysql=add_columns(MYSQL, "channels", COLUMNS),
)
