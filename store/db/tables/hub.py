"""Sessions of browsers, tokens of scripts, notices."""

from peewee import BigIntegerField, CharField, TextField

from store.db.tables.fields import ID, MARK, NAME, TEXT, WORD, Digest, Json, Row


class Session(Row):
    """A sign-in of a browser, by the digest of its cookie."""

    digest = Digest(primary_key=True)
    id = CharField(ID, unique=True)
    user_id = CharField(ID, index=True)
    created_ms = BigIntegerField()
    seen_ms = BigIntegerField()
    address = CharField(MARK)
    agent = CharField(TEXT)

    class Meta:
        table_name = "hub_sessions"


class ApiToken(Row):
    """A token of the JSON API, by the digest of its secret."""

    id = CharField(ID, primary_key=True)
    digest = Digest(unique=True)
    user_id = CharField(ID, index=True)
    name = CharField(NAME)
    scopes = Json()
    last_four = CharField(ID)
    created_ms = BigIntegerField()
    used_ms = BigIntegerField(null=True)
    revoked_ms = BigIntegerField(null=True)

    class Meta:
        table_name = "api_tokens"


class Notice(Row):
    """What administrators tell everybody who signs in, from one moment to another."""

    id = CharField(ID, primary_key=True)
    text = TextField()
    level = CharField(WORD)
    since_ms = BigIntegerField()
    until_ms = BigIntegerField(null=True)
    created_ms = BigIntegerField()
    created_by = CharField(NAME)

    class Meta:
        table_name = "hub_notices"
