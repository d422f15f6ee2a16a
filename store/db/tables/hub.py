"""Sessions of browsers, tokens of scripts, notices, other ways to sign in, values for all nodes."""

from peewee import BigIntegerField, CharField, TextField

from store.db.tables.fields import ID, MARK, NAME, TEXT, WORD, Digest, Json, LongText, Row


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
    """A message of administrators to everybody who signs in, between two times."""

    id = CharField(ID, primary_key=True)
    text = TextField()
    level = CharField(WORD)
    since_ms = BigIntegerField()
    until_ms = BigIntegerField(null=True)
    created_ms = BigIntegerField()
    created_by = CharField(NAME)

    class Meta:
        table_name = "hub_notices"


class HubValue(Row):
    """A value that administrators set in the Hub, by its name."""

    name = CharField(WORD, primary_key=True)
    value = TextField()

    class Meta:
        table_name = "hub_values"


class FirstRunLink(Row):
    """A link of the first run, by the digest of its token."""

    digest = Digest(primary_key=True)
    created_ms = BigIntegerField()

    class Meta:
        table_name = "first_run_links"


class Invite(Row):
    """A link that opens once, by the digest of its token: for a new user with a role, groups and a
    balance, or, with `user_id`, for a new password of a user."""

    id = CharField(ID, primary_key=True)
    digest = Digest(unique=True)
    user_id = CharField(ID, null=True)
    role = CharField(WORD)
    groups = Json()
    balance = BigIntegerField(default=0)
    created_ms = BigIntegerField()
    created_by = CharField(NAME)
    until_ms = BigIntegerField()
    used_ms = BigIntegerField(null=True)
    used_by = CharField(NAME, null=True)
    withdrawn_ms = BigIntegerField(null=True)

    class Meta:
        table_name = "hub_invites"


class OneTimeCodes(Row):
    """A user's authenticator: its sealed secret and the digests of unused recovery codes.
    `last_step`: the last period whose code was used. Codes are not required until it is
    confirmed."""

    user_id = CharField(ID, primary_key=True)
    sealed = TextField()
    last_step = BigIntegerField()
    confirmed_ms = BigIntegerField(null=True)
    recovery = Json()

    class Meta:
        table_name = "one_time_codes"


class OpenIdLink(Row):
    """A user of an OpenID provider who is one of our users, by the digest of issuer and subject."""

    digest = Digest(primary_key=True)
    id = CharField(ID, unique=True)
    user_id = CharField(ID, index=True)
    issuer = CharField(TEXT)
    subject = CharField(TEXT)
    created_ms = BigIntegerField()
    used_ms = BigIntegerField(null=True)

    class Meta:
        table_name = "openid_links"


class LowBalance(Row):
    """The balance (nanos) below which a user is notified."""

    user_id = CharField(ID, primary_key=True)
    below = BigIntegerField()

    class Meta:
        table_name = "low_balances"


class ChannelDraft(Row):
    """A new channel that is not saved yet, sealed. It belongs to a session or a token."""

    owner_id = CharField(ID, primary_key=True)
    sealed = LongText()
    changed_ms = BigIntegerField()

    class Meta:
        table_name = "channel_drafts"
