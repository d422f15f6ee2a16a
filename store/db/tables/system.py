"""The store's own data: counters, changes, nodes, the audit log, its upkeep."""

from peewee import BigIntegerField, CharField, TextField

from store.db.tables.fields import ID, MARK, NAME, TEXT, WORD, Json, LongJson, Row


class Version(Row):
    """A counter. `changes` is the number of the newest change_log row. `locks` counts the
    transactions that locked the row (ADR 0042)."""

    name = CharField(WORD, primary_key=True)
    version = BigIntegerField()
    locks = BigIntegerField(default=0)

    class Meta:
        table_name = "versions"


class ChangeRow(Row):
    """An administrative change that running gateways must apply."""

    version = BigIntegerField(primary_key=True)
    kind = CharField(WORD)
    ref = CharField(NAME)
    at_ms = BigIntegerField()

    class Meta:
        table_name = "change_log"


class Node(Row):
    """A node, and when a process of it was last seen."""

    name = CharField(NAME, primary_key=True)
    seen_ms = BigIntegerField()

    class Meta:
        table_name = "nodes"


class WritingHostRow(Row):
    """The host of a cluster that all processes write to, empty if none was chosen yet. `epoch`
    counts its moves (ADR 0045)."""

    name = CharField(WORD, primary_key=True)
    host = CharField(TEXT)
    epoch = BigIntegerField()

    class Meta:
        table_name = "writing_host"


class Mark(Row):
    """A committed transaction: its ULID, and the time by its process's clock. Kept for a day, so
    that a process that lost the connection in COMMIT can learn the outcome. Below 0: the outcome
    was queried first, and the transaction can never be committed (ADR 0046)."""

    id = CharField(ID, primary_key=True)
    at_ms = BigIntegerField()

    class Meta:
        table_name = "marks"


Mark.add_index(Mark.at_ms, name="marks_at")


class AuditRow(Row):
    """A change: its actor, its object, and the client address if it came from the Hub. Secrets are
    masked before they get here."""

    id = CharField(ID, primary_key=True)
    at_ms = BigIntegerField()
    actor = CharField(NAME)
    action = CharField(WORD)
    kind = CharField(WORD)
    name = CharField(300)
    before = LongJson(null=True)
    after = LongJson(null=True)
    address = CharField(MARK, null=True)

    class Meta:
        table_name = "audit_log"


AuditRow.add_index(AuditRow.kind, AuditRow.name, AuditRow.at_ms, name="audit_log_object")


class UpkeepRow(Row):
    """A job of the store. The row "upkeep" has the process that is running it, until when, and the
    result of the last run. For jobs that an operator starts (backup, books verify): the time of the
    last success."""

    name = CharField(WORD, primary_key=True)
    owner = CharField(ID)
    node = CharField(NAME)
    until_ms = BigIntegerField()
    begun_ms = BigIntegerField(null=True)
    ended_ms = BigIntegerField(null=True)
    next_ms = BigIntegerField()
    removed = Json(null=True)
    trouble = TextField(null=True)

    class Meta:
        table_name = "upkeep"
