"""The tables as peewee models: column names and types for the query builder.

No model is bound to a database: give one to every query (`Model.select().bind(db)`,
`Model.insert(...).execute(db)`), since a process may hold several and threads share the classes.
The schema itself is made by migrations/, which tests compare with this file. Ids are ULIDs made
by the application; money is in nano-units, times in milliseconds; lists and maps are JSON text.
"""

import json
from typing import Any

import peewee

from store.channels.status_sums import HISTOGRAMS


class JsonField(peewee.TextField):
    """A JSON value kept as text: the same on both databases, byte for byte."""

    def db_value(self, value: Any) -> Any:
        if value is None:
            return None
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))

    def python_value(self, value: Any) -> Any:
        return None if value is None else json.loads(value)


class Flag(peewee.SmallIntegerField):
    """True or False, stored as 1 or 0."""

    def db_value(self, value: Any) -> Any:
        return None if value is None else int(bool(value))

    def python_value(self, value: Any) -> Any:
        return None if value is None else bool(value)


class Row(peewee.Model):
    """Base of all tables."""


class Version(Row):
    """Counters; `changes` is the number of the newest change_log row."""

    name = peewee.CharField(primary_key=True)
    version = peewee.BigIntegerField()

    class Meta:
        table_name = "versions"


class Change(Row):
    """One administrative change that running gateways must take in."""

    version = peewee.BigIntegerField(primary_key=True)
    kind = peewee.CharField()
    ref = peewee.CharField()
    at_ms = peewee.BigIntegerField()

    class Meta:
        table_name = "change_log"


class User(Row):
    """Owner of keys and of one wallet."""

    id = peewee.CharField(primary_key=True)
    name = peewee.CharField(unique=True)
    role = peewee.CharField()
    password_hash = peewee.CharField(null=True)
    spend_order = peewee.CharField()
    rpm = peewee.BigIntegerField(default=0)
    tpm = peewee.BigIntegerField(default=0)
    concurrency = peewee.BigIntegerField(default=0)
    disabled = Flag(default=False)
    created_ms = peewee.BigIntegerField()

    class Meta:
        table_name = "users"


class Group(Row):
    """What the keys of a group may use, and its price multiplier."""

    id = peewee.CharField(primary_key=True)
    name = peewee.CharField(unique=True)
    multiplier_ppm = peewee.BigIntegerField()
    models = JsonField()
    entries = JsonField()
    rpm = peewee.BigIntegerField(default=0)
    tpm = peewee.BigIntegerField(default=0)
    concurrency = peewee.BigIntegerField(default=0)
    disabled = Flag(default=False)

    class Meta:
        table_name = "groups"


class Model(Row):
    """A public model name."""

    id = peewee.CharField(primary_key=True)
    name = peewee.CharField(unique=True)
    context_tokens = peewee.BigIntegerField(null=True)
    max_output_tokens = peewee.BigIntegerField(null=True)
    disabled = Flag(default=False)
    created_ms = peewee.BigIntegerField()

    class Meta:
        table_name = "models"


class Price(Row):
    """Prices of a model from a moment on; rows are added, never changed. None: the default."""

    model_id = peewee.CharField()
    effective_ms = peewee.BigIntegerField()
    input = peewee.BigIntegerField()
    output = peewee.BigIntegerField()
    cache_read = peewee.BigIntegerField(null=True)
    cache_write = peewee.BigIntegerField(null=True)
    cache_write_1h = peewee.BigIntegerField(null=True)
    reasoning = peewee.BigIntegerField(null=True)
    call = peewee.BigIntegerField(default=0)

    class Meta:
        table_name = "prices"
        primary_key = peewee.CompositeKey("model_id", "effective_ms")


class Channel(Row):
    """One upstream account; `models` maps public to upstream names.

    `extra_headers`: names to sealed values; `proxy`: a URL whose login is sealed.
    """

    id = peewee.CharField(primary_key=True)
    name = peewee.CharField(unique=True)
    vendor = peewee.CharField()
    family = peewee.CharField()
    base_url = peewee.TextField()
    groups = JsonField()
    models = JsonField()
    priority = peewee.BigIntegerField(default=0)
    weight = peewee.BigIntegerField(default=1)
    rpm = peewee.BigIntegerField(default=0)
    tpm = peewee.BigIntegerField(default=0)
    concurrency = peewee.BigIntegerField(default=0)
    key_rpm = peewee.BigIntegerField(default=0)
    key_tpm = peewee.BigIntegerField(default=0)
    key_concurrency = peewee.BigIntegerField(default=0)
    enabled = Flag(default=True)
    extra_headers = JsonField(null=True)
    proxy = peewee.TextField(null=True)
    ca_file = peewee.TextField(null=True)
    draining = Flag(default=False)

    class Meta:
        table_name = "channels"


class ChannelKey(Row):
    """A sealed upstream key; the fingerprint tells whether a given key is this one."""

    id = peewee.CharField(primary_key=True)
    channel_id = peewee.CharField()
    position = peewee.BigIntegerField()
    cipher = peewee.TextField()
    fingerprint = peewee.CharField()

    class Meta:
        table_name = "channel_keys"


class KeyAside(Row):
    """An upstream key that its vendor refuses; an empty fingerprint: a channel without keys."""

    channel_id = peewee.CharField()
    fingerprint = peewee.CharField()
    since_ms = peewee.BigIntegerField()
    until_ms = peewee.BigIntegerField()
    times = peewee.BigIntegerField()
    reason = peewee.CharField()

    class Meta:
        table_name = "keys_aside"
        primary_key = peewee.CompositeKey("channel_id", "fingerprint")


class ApiKey(Row):
    """A key of a user; its secrets are digests in key_secrets."""

    id = peewee.CharField(primary_key=True)
    user_id = peewee.CharField()
    name = peewee.CharField()
    group_id = peewee.CharField()
    prefix = peewee.CharField()
    last_four = peewee.CharField()
    expires_ms = peewee.BigIntegerField(null=True)
    models = JsonField()
    networks = JsonField()
    limit_nanos = peewee.BigIntegerField(null=True)
    limit_window = peewee.CharField()
    rpm = peewee.BigIntegerField(default=0)
    tpm = peewee.BigIntegerField(default=0)
    concurrency = peewee.BigIntegerField(default=0)
    disabled = Flag(default=False)
    revoked_ms = peewee.BigIntegerField(null=True)
    created_ms = peewee.BigIntegerField()

    class Meta:
        table_name = "api_keys"


class KeySecret(Row):
    """A keyed digest by which a key is found; valid_until_ms is set on rotated ones."""

    digest = peewee.BlobField(primary_key=True)
    key_id = peewee.CharField()
    pepper_id = peewee.CharField()
    valid_until_ms = peewee.BigIntegerField(null=True)

    class Meta:
        table_name = "key_secrets"


class Wallet(Row):
    """The balance of a user, the sum of the user's ledger lines."""

    user_id = peewee.CharField(primary_key=True)
    balance = peewee.BigIntegerField()

    class Meta:
        table_name = "wallets"


class Plan(Row):
    """A quota per window (day, week, month) that a subscription gives for so many days."""

    id = peewee.CharField(primary_key=True)
    name = peewee.CharField(unique=True)
    quota = peewee.BigIntegerField()
    window = peewee.CharField()
    days = peewee.BigIntegerField()
    disabled = Flag(default=False)
    created_ms = peewee.BigIntegerField()

    class Meta:
        table_name = "plans"


class Subscription(Row):
    """A user's right to a plan from one moment to another."""

    id = peewee.CharField(primary_key=True)
    user_id = peewee.CharField()
    plan_id = peewee.CharField()
    starts_ms = peewee.BigIntegerField()
    expires_ms = peewee.BigIntegerField()
    disabled = Flag(default=False)
    created_ms = peewee.BigIntegerField()

    class Meta:
        table_name = "subscriptions"


class Quota(Row):
    """What one window of a subscription or of a key's spend limit has spent; ends_ms None: never.

    `account` is `accounts.Account.id`.
    """

    account = peewee.CharField(primary_key=True)
    spent = peewee.BigIntegerField()
    ends_ms = peewee.BigIntegerField(null=True)

    class Meta:
        table_name = "quotas"


class Lease(Row):
    """The part of an account's free money that the process of a journal may spend.

    `held` is what its running calls reserve (up to a second old); `recall`: another process asks
    for what is not held. Changed only under the lock of the account's row.
    """

    account = peewee.CharField()
    journal_id = peewee.CharField()
    amount = peewee.BigIntegerField()
    held = peewee.BigIntegerField()
    recall = Flag(default=False)

    class Meta:
        table_name = "leases"
        primary_key = peewee.CompositeKey("account", "journal_id")


class Node(Row):
    """When a process of a node was last heard of."""

    name = peewee.CharField(primary_key=True)
    seen_ms = peewee.BigIntegerField()

    class Meta:
        table_name = "nodes"


class LedgerLine(Row):
    """One movement of a wallet (signed amount); `charges` lines sum up a UTC day."""

    id = peewee.CharField(primary_key=True)
    user_id = peewee.CharField()
    kind = peewee.CharField()
    amount = peewee.BigIntegerField()
    balance_after = peewee.BigIntegerField()
    reference = peewee.CharField(null=True)
    idempotency_id = peewee.CharField(null=True, unique=True)
    reason = peewee.TextField()
    at_ms = peewee.BigIntegerField()
    day = peewee.IntegerField(null=True)

    class Meta:
        table_name = "ledger"


class RedeemCode(Row):
    """A keyed digest that is worth money once; redeemed_by is a user's id."""

    id = peewee.CharField(primary_key=True)
    digest = peewee.BlobField(unique=True)
    pepper_id = peewee.CharField()
    last_four = peewee.CharField()
    amount = peewee.BigIntegerField()
    expires_ms = peewee.BigIntegerField(null=True)
    created_ms = peewee.BigIntegerField()
    disabled_ms = peewee.BigIntegerField(null=True)
    redeemed_ms = peewee.BigIntegerField(null=True)
    redeemed_by = peewee.CharField(null=True)

    class Meta:
        table_name = "codes"


class UsageRow(Row):
    """One usage record; prices, charges, attempts and reported_usage are JSON text."""

    day = peewee.IntegerField()
    id = peewee.CharField()
    started_ms = peewee.BigIntegerField()
    recorded_ms = peewee.BigIntegerField()
    user_id = peewee.CharField()
    user = peewee.CharField()
    key_id = peewee.CharField()
    key_name = peewee.CharField()
    group = peewee.CharField()
    endpoint = peewee.TextField()
    family = peewee.CharField()
    upstream_family = peewee.CharField(null=True)
    model = peewee.TextField(null=True)
    upstream_model = peewee.TextField(null=True)
    channel = peewee.CharField(null=True)
    stream = Flag(null=True)
    status = peewee.IntegerField(null=True)
    outcome = peewee.CharField()
    error_code = peewee.CharField(null=True)
    error_message = peewee.TextField(null=True)
    input_tokens = peewee.BigIntegerField(default=0)
    output_tokens = peewee.BigIntegerField(default=0)
    cache_read_tokens = peewee.BigIntegerField(default=0)
    cache_write_tokens = peewee.BigIntegerField(default=0)
    cache_write_1h_tokens = peewee.BigIntegerField(default=0)
    reasoning_tokens = peewee.BigIntegerField(default=0)
    usage_source = peewee.CharField()
    prices = peewee.TextField(null=True)
    multiplier_ppm = peewee.BigIntegerField(null=True)
    cost_nanos = peewee.BigIntegerField()
    billed_to = peewee.CharField(null=True)
    charges = peewee.TextField()
    reported_usage = peewee.TextField(null=True)
    ttft_ms = peewee.BigIntegerField(null=True)
    duration_ms = peewee.BigIntegerField(null=True)
    attempts = peewee.TextField()
    client_request_id = peewee.CharField(null=True)
    upstream_request_id = peewee.TextField(null=True)
    client_ip = peewee.CharField(null=True)
    user_agent = peewee.TextField(null=True)
    node = peewee.CharField(null=True)

    class Meta:
        table_name = "usage_records"
        primary_key = peewee.CompositeKey("day", "id")


class UsageSums(Row):
    """What all roll-ups sum up; base of these, no table."""

    calls = peewee.BigIntegerField(default=0)
    input_tokens = peewee.BigIntegerField(default=0)
    output_tokens = peewee.BigIntegerField(default=0)
    cache_read_tokens = peewee.BigIntegerField(default=0)
    cache_write_tokens = peewee.BigIntegerField(default=0)
    cache_write_1h_tokens = peewee.BigIntegerField(default=0)
    reasoning_tokens = peewee.BigIntegerField(default=0)
    cost_nanos = peewee.BigIntegerField(default=0)


class UsageByKey(UsageSums):
    """Sums of one hour, key, model and outcome; no model is an empty text."""

    day = peewee.IntegerField()
    hour = peewee.SmallIntegerField()
    key_id = peewee.CharField()
    user = peewee.CharField()
    model = peewee.CharField()
    outcome = peewee.CharField()

    class Meta:
        table_name = "usage_by_key"
        primary_key = peewee.CompositeKey("day", "hour", "key_id", "user", "model", "outcome")


class UsageByChannel(UsageSums):
    """Sums of one hour, channel, model and outcome; no channel is an empty text."""

    day = peewee.IntegerField()
    hour = peewee.SmallIntegerField()
    channel = peewee.CharField()
    model = peewee.CharField()
    outcome = peewee.CharField()

    class Meta:
        table_name = "usage_by_channel"
        primary_key = peewee.CompositeKey("day", "hour", "channel", "model", "outcome")


class UsageByDay(UsageSums):
    """Sums of one UTC day, channel, model and outcome."""

    day = peewee.IntegerField()
    channel = peewee.CharField()
    model = peewee.CharField()
    outcome = peewee.CharField()

    class Meta:
        table_name = "usage_by_day"
        primary_key = peewee.CompositeKey("day", "channel", "model", "outcome")


class ChannelSums(Row):
    """What became of the attempts of a channel, its probes, or the calls of a group, by model.

    The columns of the two histograms (`status_sums.HISTOGRAMS`) are added below.
    """

    span = peewee.CharField()
    at_s = peewee.BigIntegerField()
    scope = peewee.CharField()
    name = peewee.CharField()
    model = peewee.CharField()
    ok = peewee.BigIntegerField(default=0)
    failed = peewee.BigIntegerField(default=0)
    output_tokens = peewee.BigIntegerField(default=0)
    generation_ms = peewee.BigIntegerField(default=0)
    last_error = peewee.CharField(default="")
    last_ok_ms = peewee.BigIntegerField(default=0)
    last_failed_ms = peewee.BigIntegerField(default=0)

    class Meta:
        table_name = "channel_sums"
        primary_key = peewee.CompositeKey("span", "at_s", "scope", "name", "model")


for _name in HISTOGRAMS:
    ChannelSums._meta.add_field(_name, peewee.BigIntegerField(default=0))


class ChannelBreaker(Row):
    """What the process of a journal has against an upstream key; model empty: for all models."""

    journal_id = peewee.CharField()
    channel_id = peewee.CharField()
    model = peewee.CharField()
    fingerprint = peewee.CharField()
    reason = peewee.CharField()
    since_ms = peewee.BigIntegerField()
    until_ms = peewee.BigIntegerField()

    class Meta:
        table_name = "channel_breakers"
        primary_key = peewee.CompositeKey("journal_id", "channel_id", "model", "fingerprint")


class ChannelProbe(Row):
    """Until when nobody else probes a channel for a model."""

    channel = peewee.CharField()
    model = peewee.CharField()
    next_ms = peewee.BigIntegerField()

    class Meta:
        table_name = "channel_probes"
        primary_key = peewee.CompositeKey("channel", "model")


class JournalRow(Row):
    """How far a process's journal has been applied."""

    id = peewee.CharField(primary_key=True)
    node = peewee.CharField()
    offset = peewee.BigIntegerField()
    opened_ms = peewee.BigIntegerField()
    finished_ms = peewee.BigIntegerField(null=True)

    class Meta:
        table_name = "journals"


class StoredResponse(Row):
    """Which channel and upstream key have made a response that its vendor keeps, for which user.

    `mark` is a digest of its id; `fingerprint` is empty for a channel without keys.
    """

    mark = peewee.BlobField()
    user_id = peewee.CharField()
    channel_id = peewee.CharField()
    fingerprint = peewee.CharField()
    expires_ms = peewee.BigIntegerField()

    class Meta:
        table_name = "stored_responses"
        primary_key = peewee.CompositeKey("mark", "user_id")


class AuditRow(Row):
    """Who changed what; secrets are masked before they get here."""

    id = peewee.CharField(primary_key=True)
    at_ms = peewee.BigIntegerField()
    actor = peewee.CharField()
    action = peewee.CharField()
    kind = peewee.CharField()
    name = peewee.CharField()
    before = JsonField(null=True)
    after = JsonField(null=True)

    class Meta:
        table_name = "audit_log"


ALL: tuple[type[Row], ...] = (
    Version,
    Change,
    User,
    Group,
    Model,
    Price,
    Channel,
    ChannelKey,
    KeyAside,
    ApiKey,
    KeySecret,
    Wallet,
    Plan,
    Subscription,
    Quota,
    Lease,
    Node,
    LedgerLine,
    RedeemCode,
    UsageRow,
    UsageByKey,
    UsageByChannel,
    UsageByDay,
    ChannelSums,
    ChannelBreaker,
    ChannelProbe,
    JournalRow,
    StoredResponse,
    AuditRow,
)
