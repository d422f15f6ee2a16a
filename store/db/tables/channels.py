"""The state of channels: sums of their calls, open circuits, claims of probes."""

from peewee import BigIntegerField, CharField, CompositeKey

from store.db.tables.fields import ID, MARK, MODEL, NAME, WORD, Row

BOUNDS_MS = (
    *(50, 100, 200, 400, 600, 800, 1200, 1600, 2400, 3200, 4800, 6400, 9600, 12800),
    *(25600, 51200, 102400, 204800, 409600),
)
"""Upper bounds of the buckets of a histogram. One more bucket holds everything beyond them."""

_BUCKETS = (*(f"le_{bound_ms}" for bound_ms in BOUNDS_MS), "more")
FIRST_BYTE = tuple(f"first_byte_{bucket}" for bucket in _BUCKETS)
TOTAL = tuple(f"total_{bucket}" for bucket in _BUCKETS)


class ChannelSums(Row):
    """Results of the attempts of a channel, its probes, or the calls of a group, by model. The
    columns of the histograms FIRST_BYTE and TOTAL are added below."""

    span = CharField(WORD)
    at_s = BigIntegerField()
    scope = CharField(WORD)
    name = CharField(NAME)
    model = CharField(MODEL)
    ok = BigIntegerField(default=0)
    failed = BigIntegerField(default=0)
    output_tokens = BigIntegerField(default=0)
    generation_ms = BigIntegerField(default=0)
    last_error = CharField(MARK, default="")
    last_ok_ms = BigIntegerField(default=0)
    last_failed_ms = BigIntegerField(default=0)

    class Meta:
        table_name = "channel_sums"
        primary_key = CompositeKey("span", "at_s", "scope", "name", "model")


for _name in FIRST_BYTE + TOTAL:
    ChannelSums._meta.add_field(_name, BigIntegerField(default=0))


class ChannelBreaker(Row):
    """An open circuit for an upstream key, in the process of a journal. An empty model means all
    models."""

    journal_id = CharField(ID)
    channel_id = CharField(ID)
    model = CharField(MODEL)
    fingerprint = CharField(MARK)
    reason = CharField(WORD)
    since_ms = BigIntegerField()
    until_ms = BigIntegerField()

    class Meta:
        table_name = "channel_breakers"
        primary_key = CompositeKey("journal_id", "channel_id", "model", "fingerprint")


class ChannelProbe(Row):
    """The time until which no other process probes a channel for a model."""

    channel = CharField(NAME)
    model = CharField(MODEL)
    next_ms = BigIntegerField()

    class Meta:
        table_name = "channel_probes"
        primary_key = CompositeKey("channel", "model")
