"""Usage records, roll-ups, journals, stored responses, wrong paths."""

from typing import Any

import peewee
from peewee import BigIntegerField, CharField, CompositeKey, IntegerField, TextField

from store.db.tables import fields
from store.db.tables.channels import FIRST_BYTE
from store.db.tables.fields import ID, MARK, MODEL, NAME, TEXT, WORD, Digest, Flag, Row
from store.values.usage import MORE_TOKENS, TOKEN_COUNTS

WRONG_PATH = 200


class UsageRow(Row):
    """A usage record. `prices`, `charges`, `attempts`, `reported_usage` and `receipt` are JSON
    text. The token counts of a usage, and MORE_TOKENS, are added below."""

    day = IntegerField()
    id = CharField(ID)
    started_ms = BigIntegerField()
    recorded_ms = BigIntegerField()
    user_id = CharField(ID)
    user = CharField(NAME)
    key_id = CharField(ID)
    key_name = CharField(NAME)
    group = CharField(NAME)
    endpoint = TextField()
    family = CharField(WORD)
    upstream_family = CharField(WORD, null=True)
    model = TextField(null=True)
    upstream_model = TextField(null=True)
    channel = CharField(NAME, null=True)
    stream = Flag(null=True)
    status = IntegerField(null=True)
    outcome = CharField(WORD)
    error_code = CharField(MARK, null=True)
    error_message = TextField(null=True)
    usage_source = CharField(WORD)
    prices = TextField(null=True)
    multiplier_ppm = BigIntegerField(null=True)
    cost_nanos = BigIntegerField()
    billed_to = CharField(TEXT, null=True)
    charges = TextField()
    reported_usage = fields.LongText(null=True)
    ttft_ms = BigIntegerField(null=True)
    duration_ms = BigIntegerField(null=True)
    attempts = fields.LongText()
    client_request_id = CharField(TEXT, null=True)
    upstream_request_id = TextField(null=True)
    client_ip = CharField(MARK, null=True)
    user_agent = TextField(null=True)
    node = CharField(NAME, null=True)
    trace_id = CharField(WORD, null=True)
    receipt = fields.LongText(null=True)
    upstream_nanos = BigIntegerField(null=True)

    class Meta:
        table_name = "usage_records"
        primary_key = CompositeKey("day", "id")


UsageRow.add_index(UsageRow.recorded_ms, UsageRow.id, name="usage_recorded")
UsageRow.add_index(
    *(UsageRow.user, UsageRow.day, UsageRow.id, UsageRow.outcome, UsageRow.key_id),
    name="usage_caller",
)
UsageRow.add_index(
    fields.SparseIndex(UsageRow, [UsageRow.client_request_id], name="usage_client_id")
)
_UPSTREAM_ID = fields.Beginning(UsageRow.upstream_request_id, MARK)
UsageRow.add_index(fields.SparseIndex(UsageRow, [_UPSTREAM_ID], name="usage_upstream_id"))


class UsageSums(Row):
    """Base of the roll-ups, with the sums that all of them have. Not a table itself. The token
    counts of a usage are added to each below, and, except for one, FIRST_BYTE, a histogram of the
    first bytes of streams. `upstream_nanos`: the operator's cost of the calls for which it is
    known. `upstream_known_nanos`: what those calls were charged."""

    day = IntegerField()
    calls = BigIntegerField(default=0)
    cost_nanos = BigIntegerField(default=0)
    upstream_nanos = BigIntegerField(default=0)
    upstream_known_nanos = BigIntegerField(default=0)


class CalledSums(UsageSums):
    """Base of the roll-ups by what was called and how it ended. Not a table itself."""

    model = CharField(MODEL)
    outcome = CharField(WORD)
    endpoint = CharField(NAME, default="")
    error_code = CharField(MARK, default="")


class UsageByKey(CalledSums):
    """Sums of one hour, key, user, model, outcome, endpoint, error code and group. Missing values
    are empty texts."""

    hour = peewee.SmallIntegerField()
    key_id = CharField(ID)
    user = CharField(NAME)
    group = CharField(NAME, default="")

    class Meta:
        table_name = "usage_by_key"
        primary_key = CompositeKey(
            *("day", "hour", "key_id", "user", "model", "outcome", "endpoint", "error_code"),
            "group",
        )


UsageByKey.add_index(UsageByKey.key_id, UsageByKey.day, name="usage_by_key_key")
UsageByKey.add_index(UsageByKey.user, UsageByKey.day, name="usage_by_key_user")


class UsageByChannel(CalledSums):
    """Sums of one hour, channel, model, outcome, endpoint and error code. Missing values are empty
    texts."""

    hour = peewee.SmallIntegerField()
    channel = CharField(NAME)

    class Meta:
        table_name = "usage_by_channel"
        primary_key = CompositeKey(
            "day", "hour", "channel", "model", "outcome", "endpoint", "error_code"
        )


class UsageByDay(CalledSums):
    """Sums of one UTC day, channel, model, outcome, endpoint and error code."""

    channel = CharField(NAME)

    class Meta:
        table_name = "usage_by_day"
        primary_key = CompositeKey("day", "channel", "model", "outcome", "endpoint", "error_code")


class UsageByUser(UsageSums):
    """Sums of one UTC day, user, key, group and outcome."""

    user = CharField(NAME)
    key_id = CharField(ID)
    group = CharField(NAME, default="")
    outcome = CharField(WORD)

    class Meta:
        table_name = "usage_by_user"
        primary_key = CompositeKey("day", "user", "key_id", "group", "outcome")


UsageByUser.add_index(UsageByUser.user, UsageByUser.day, name="usage_by_user_user")


OUTCOME_COUNTS = ("ok", "refused", "client_gone")
"""The outcomes whose calls a row of UsageByCaller counts."""


class UsageByCaller(UsageSums):
    """Sums of one UTC day, user, key and group, with OUTCOME_COUNTS and without FIRST_BYTE: a third
    of the rows of the table by outcome, and each half as long."""

    user = CharField(NAME)
    key_id = CharField(ID)
    group = CharField(NAME, default="")

    class Meta:
        table_name = "usage_by_caller"
        primary_key = CompositeKey("day", "user", "key_id", "group")


UsageByCaller.add_index(UsageByCaller.user, UsageByCaller.day, name="usage_by_caller_user")


class UsageByGroup(CalledSums):
    """Sums of one UTC day, group, model, outcome, endpoint and error code."""

    group = CharField(NAME, default="")

    class Meta:
        table_name = "usage_by_group"
        primary_key = CompositeKey("day", "group", "model", "outcome", "endpoint", "error_code")


class UsageByRate(Row):
    """Sums of one UTC day, model and rate (its conditions as text, empty for the plain rate). Rows
    with an empty `meter` sum up the calls; the others the uses of a meter that had no price."""

    day = IntegerField()
    model = CharField(MODEL)
    rate = CharField(TEXT)
    meter = CharField(NAME, default="")
    calls = BigIntegerField(default=0)
    uses = BigIntegerField(default=0)
    cost_nanos = BigIntegerField(default=0)

    class Meta:
        table_name = "usage_by_rate"
        primary_key = CompositeKey("day", "model", "rate", "meter")


ROLLUPS: tuple[Any, ...] = (
    *(UsageByKey, UsageByChannel, UsageByDay, UsageByUser, UsageByGroup, UsageByCaller),
)
for _rollup in (rollup for rollup in ROLLUPS if rollup is not UsageByCaller):
    for _name in FIRST_BYTE:
        _rollup._meta.add_field(_name, IntegerField(default=0))
for _table in (UsageRow, *ROLLUPS):
    for _name in TOKEN_COUNTS:
        _table._meta.add_field(_name, BigIntegerField(default=0))
for _name in OUTCOME_COUNTS:
    UsageByCaller._meta.add_field(_name, BigIntegerField(default=0))
for _name in MORE_TOKENS:
    UsageRow._meta.add_field(_name, BigIntegerField(default=0))


class JournalRow(Row):
    """The offset up to which a process's journal is applied, and the state that the process
    reports. None: it has not reported. If `finished_ms` is set, the process has ended properly."""

    id = CharField(ID, primary_key=True)
    node = CharField(NAME)
    offset = BigIntegerField()
    opened_ms = BigIntegerField()
    finished_ms = BigIntegerField(null=True)
    seen_ms = BigIntegerField(null=True)
    version = CharField(MARK, null=True)
    lead_ms = BigIntegerField(null=True)
    backlog_bytes = BigIntegerField(null=True)
    not_ready = CharField(NAME, null=True)

    class Meta:
        table_name = "journals"


class StoredResponse(Row):
    """Channel and upstream key of a response that its vendor stores, and the response's user.
    `mark` is a digest of its id. `fingerprint` is empty for a channel without keys."""

    mark = Digest()
    user_id = CharField(ID)
    channel_id = CharField(ID)
    fingerprint = CharField(MARK)
    expires_ms = BigIntegerField()

    class Meta:
        table_name = "stored_responses"
        primary_key = CompositeKey("mark", "user_id")


StoredResponse.add_index(StoredResponse.expires_ms, name="stored_responses_expires")


class WrongPath(Row):
    """A path that calls with a known key requested and that is not an endpoint."""

    key_id = CharField(ID)
    method = CharField(WORD)
    path = CharField(WRONG_PATH)
    calls = BigIntegerField()
    first_ms = BigIntegerField()
    last_ms = BigIntegerField(index=True)
    address = CharField(MARK)
    agent = CharField(TEXT)
    dismissed_ms = BigIntegerField(null=True)

    class Meta:
        table_name = "wrong_paths"
        primary_key = CompositeKey("key_id", "method", "path")
