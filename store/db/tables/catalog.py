"""Models, prices, groups and channels."""

from peewee import BigIntegerField, CharField, CompositeKey, TextField

from store.db.tables.fields import ID, MARK, NAME, TEXT, WORD, Flag, Json, Limited, LongJson, Row


class Model(Row):
    """A public model name."""

    id = CharField(ID, primary_key=True)
    name = CharField(NAME, unique=True)
    context_tokens = BigIntegerField(null=True)
    max_output_tokens = BigIntegerField(null=True)
    disabled = Flag(default=False)
    created_ms = BigIntegerField()

    class Meta:
        table_name = "models"


class Price(Row):
    """Prices of a model from a time on, which may be in the future. Rows in force or in the past
    are never changed. None means the default. `other_meters`: meters without a column, to nanos.
    `rates`: as `store.values.price_fields.RateList` stores them. `source`: the price list that they
    are from, and its date."""

    model_id = CharField(ID)
    effective_ms = BigIntegerField()
    input = BigIntegerField()
    output = BigIntegerField()
    cache_read = BigIntegerField(null=True)
    cache_write = BigIntegerField(null=True)
    cache_write_1h = BigIntegerField(null=True)
    reasoning = BigIntegerField(null=True)
    call = BigIntegerField(default=0)
    other_meters = Json(null=True)
    rates = LongJson(null=True)
    source = CharField(TEXT, null=True)

    class Meta:
        table_name = "prices"
        primary_key = CompositeKey("model_id", "effective_ms")


class Group(Limited):
    """Rights of the keys of a group, and its price multiplier. `features` None: the default."""

    id = CharField(ID, primary_key=True)
    name = CharField(NAME, unique=True)
    multiplier_ppm = BigIntegerField()
    models = LongJson()
    entries = Json()
    disabled = Flag(default=False)
    translate = Flag(default=True)
    features = Json(null=True)

    class Meta:
        table_name = "groups"


class Channel(Limited):
    """An upstream account. `models` maps public to upstream names.

    `extra_headers`: names to sealed values. `proxy`: a URL whose login is sealed. `proxy_guarded`:
    it was set over HTTP. `options`: the abilities of its models where they differ from the known
    ones. `shared_ids`: ids, or prefixes of ids with a `*`, that all its users may name.
    `cost_factor_ppm`, `cost` (public names of models to meters to nanos): the operator's own cost.
    `body`: edits of its requests. `model_times`: public names of models to time-outs.
    """

    id = CharField(ID, primary_key=True)
    name = CharField(NAME, unique=True)
    vendor = CharField(WORD)
    family = CharField(WORD)
    base_url = TextField()
    groups = LongJson()
    models = LongJson()
    priority = BigIntegerField(default=0)
    weight = BigIntegerField(default=1)
    key_rpm = BigIntegerField(default=0)
    key_tpm = BigIntegerField(default=0)
    key_concurrency = BigIntegerField(default=0)
    enabled = Flag(default=True)
    extra_headers = Json(null=True)
    proxy = TextField(null=True)
    proxy_guarded = Flag(default=False)
    ca_file = TextField(null=True)
    draining = Flag(default=False)
    translate = Flag(default=True)
    options = Json(null=True)
    shared_ids = Json(null=True)
    cost_factor_ppm = BigIntegerField(null=True)
    cost = LongJson(null=True)
    body = LongJson(null=True)
    remove_headers = Json(null=True)
    first_byte_timeout_s = BigIntegerField(null=True)
    idle_timeout_s = BigIntegerField(null=True)
    model_times = LongJson(null=True)
    retry_timeouts = Flag(null=True)

    class Meta:
        table_name = "channels"


class ChannelKey(Row):
    """A sealed upstream key. The fingerprint shows whether a given key is this one."""

    id = CharField(ID, primary_key=True)
    channel_id = CharField(ID)
    position = BigIntegerField()
    cipher = TextField()
    fingerprint = CharField(MARK)

    class Meta:
        table_name = "channel_keys"


ChannelKey.add_index(ChannelKey.channel_id, ChannelKey.position, name="channel_keys_channel")


class SuspendedKey(Row):
    """An upstream key that its vendor refuses. An empty fingerprint stands for a channel without
    keys."""

    channel_id = CharField(ID)
    fingerprint = CharField(MARK)
    since_ms = BigIntegerField()
    until_ms = BigIntegerField()
    times = BigIntegerField()
    reason = CharField(NAME)

    class Meta:
        table_name = "keys_aside"
        primary_key = CompositeKey("channel_id", "fingerprint")
