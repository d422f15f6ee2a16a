"""Users and their API keys."""

from peewee import BigIntegerField, CharField

from store.db.tables.fields import ID, NAME, TEXT, WORD, Digest, Flag, Json, Limited, LongJson, Row


class User(Limited):
    """The owner of keys and of one wallet. `groups` None: the default group."""

    id = CharField(ID, primary_key=True)
    name = CharField(NAME, unique=True)
    role = CharField(WORD)
    password_hash = CharField(TEXT, null=True)
    spend_order = CharField(WORD)
    disabled = Flag(default=False)
    created_ms = BigIntegerField()
    groups = Json(null=True)
    limit_nanos = BigIntegerField(null=True)
    limit_window = CharField(WORD, default="never")
    mail = CharField(TEXT, null=True)

    class Meta:
        table_name = "users"


class ApiKey(Limited):
    """A key of a user. Its secrets are digests in key_secrets."""

    id = CharField(ID, primary_key=True)
    user_id = CharField(ID)
    name = CharField(NAME)
    group_id = CharField(ID)
    prefix = CharField(WORD)
    last_four = CharField(WORD)
    expires_ms = BigIntegerField(null=True)
    models = LongJson()
    networks = LongJson()
    limit_nanos = BigIntegerField(null=True)
    limit_window = CharField(WORD)
    disabled = Flag(default=False)
    revoked_ms = BigIntegerField(null=True)
    created_ms = BigIntegerField()

    class Meta:
        table_name = "api_keys"


ApiKey.add_index(ApiKey.user_id, ApiKey.name, unique=True, name="api_keys_name")
ApiKey.add_index(ApiKey.group_id, name="api_keys_group")


class KeySecret(Row):
    """A keyed digest by which a key is found. `valid_until_ms` is set on rotated secrets."""

    digest = Digest(primary_key=True)
    key_id = CharField(ID)
    pepper_id = CharField(WORD)
    valid_until_ms = BigIntegerField(null=True)

    class Meta:
        table_name = "key_secrets"


KeySecret.add_index(KeySecret.key_id, name="key_secrets_key")
