"""Alerts: rules, the objects for which they fire, destinations, and the outbox of messages."""

from peewee import BigIntegerField, CharField, CompositeKey, TextField

from store.db.tables.fields import ID, NAME, TEXT, WORD, Flag, Json, LongJson, Row

OBJECT = 300
"""Characters of the object of a rule, as "channel moonshot" or "key bob/laptop 80 %"."""


class AlertRule(Row):
    """A rule of a user, or of the gateway (an empty owner). `settings` are the numbers and names of
    its kind, `destinations` the ids of destinations. `again_ms`: the time before the same object is
    reported again."""

    id = CharField(ID, primary_key=True)
    owner_id = CharField(ID, index=True)
    kind = CharField(WORD)
    settings = Json()
    destinations = Json()
    again_ms = BigIntegerField()
    disabled = Flag(default=False)
    created_ms = BigIntegerField()
    changed_ms = BigIntegerField()
    changed_by = CharField(NAME)
    fired_ms = BigIntegerField(null=True)

    class Meta:
        table_name = "alert_rules"


class AlertState(Row):
    """An object for which a rule fires or has fired. `window` is that of the last message, for
    rules that send one a window. `sent`: a message was sent for the current firing. `subject`: the
    object in its parts. `user_id`: its owner."""

    rule_id = CharField(ID)
    object = CharField(OBJECT)
    window = CharField(WORD)
    firing = Flag()
    sent = Flag()
    since_ms = BigIntegerField()
    fired_ms = BigIntegerField()
    text = TextField()
    link = CharField(TEXT)
    subject = LongJson()
    user_id = CharField(ID)

    class Meta:
        table_name = "alert_states"
        primary_key = CompositeKey("rule_id", "object")


class AlertDestination(Row):
    """A receiver of messages, of a user or of the gateway (an empty owner). `sealed` is its
    address, `secret` signs its messages; both are sealed. `masked` is the address without its
    secret part."""

    id = CharField(ID, primary_key=True)
    owner_id = CharField(ID, index=True)
    name = CharField(NAME)
    kind = CharField(WORD)
    sealed = TextField()
    secret = TextField(null=True)
    masked = CharField(TEXT)
    created_ms = BigIntegerField()
    last_ok = Flag(null=True)
    last_result = CharField(TEXT, default="")
    last_ms = BigIntegerField(null=True)

    class Meta:
        table_name = "alert_destinations"


class AlertMessage(Row):
    """A message of the outbox, kept after it was sent. An empty `destination_id` means mail to the
    user `user_id`. `receiver` is the name of the destination or user at that time. `state`: firing,
    over or test. `status`: waiting, sent, failed or not_sent. `claim`, `claimed_ms`: the process
    that is sending it."""

    id = CharField(ID, primary_key=True)
    owner_id = CharField(ID)
    rule_id = CharField(ID)
    kind = CharField(WORD)
    state = CharField(WORD)
    since_ms = BigIntegerField()
    made_ms = BigIntegerField(index=True)
    object = LongJson()
    text = TextField()
    link = CharField(TEXT)
    destination_id = CharField(ID)
    user_id = CharField(ID)
    receiver = CharField(NAME)
    status = CharField(WORD)
    tries = BigIntegerField(default=0)
    next_ms = BigIntegerField()
    claim = CharField(ID, default="")
    claimed_ms = BigIntegerField(default=0)
    result = CharField(TEXT, default="")
    took_ms = BigIntegerField(null=True)

    class Meta:
        table_name = "alert_outbox"


AlertMessage.add_index(AlertMessage.status, AlertMessage.next_ms, name="alert_outbox_due")
AlertMessage.add_index(AlertMessage.owner_id, AlertMessage.id, name="alert_outbox_owner")


class AlertSample(Row):
    """Attempts of channels up to a time: by channel and hour, the counted and the failed ones."""

    at_ms = BigIntegerField(primary_key=True)
    sums = LongJson()

    class Meta:
        table_name = "alert_samples"
