"""Calls under load: callers that call without a pause, what they saw, and what must hold
afterwards.

Each call carries a name of its own in its prompt and in X-Client-Request-Id. It matches the
vendor's log, the records and what the client saw.
"""

import contextlib
import itertools
import json
import re
import threading
import time
from collections import Counter
from dataclasses import dataclass
from decimal import Decimal

from store.db.database import discard, execute, open_database, snapshot_read
from tests.support import dialects
from tests.support.client import Answer, Closed, Connection, events, wait_until
from tests.support.documents import CREDIT, channel, document
from tests.support.gateway import Gateway

NAME = re.compile(r"call-[a-z0-9]+-\d+")
MODEL = "demo-small"
LOST = "gateway_lost"
JOIN_S = 60
CATCH_UP_STEP_S = 0.2
# What callers send in turn: short and long, plain and streamed, and calls that take some time.
GOOD_PROMPTS = (
    ("[[demo ms=5]]", True),
    ("[[demo]]", False),
    ("[[demo ms=40 chunks=30]]", True),
    ("[[demo first_ms=120]]", False),
    ("[[demo first_ms=60 ms=1 chunks=60]]", True),
)
PROMPTS = (*GOOD_PROMPTS, ("[[demo status=500]]", False), ("[[demo ms=2 cut=4]]", True))


@dataclass(frozen=True, slots=True)
class Seen:
    """A call as its caller saw it; `answer` is None if no response head came."""

    name: str
    family: str
    began_s: float
    answer: Answer | None
    ended_well: bool

    @property
    def whole(self):
        return self.answer is not None and self.answer.whole

    @property
    def served(self):
        return self.whole and self.answer.status == 200 and self.ended_well


@dataclass(frozen=True)
class Manner:
    """The callers' behaviour: how many, what they send, and how long each rests after a call."""

    callers: int = 20
    prompts: tuple = PROMPTS
    rest_s: float = 0.02
    patience_s: float = 10


def gateway_before(vendor, folder, settings=None, more=None):
    """Return a gateway, not started, with one model that a vendor serves in every family.

    `more`: users and keys in addition to the owner, as in a document.
    """
    gateway = Gateway(folder, {"log.level": "info", **(settings or {})})
    applied = document([MODEL], channels_of(vendor))
    for kind, objects in (more or {}).items():
        applied[kind] += objects
    gateway.apply(applied)
    return gateway


def channels_of(vendor):
    """Return a channel for each family."""
    return [
        channel(f"only-{family}", family, vendor.url, {MODEL: MODEL}) for family in dialects.ALL
    ]


class Load:
    """Callers that call until they are stopped, and what they saw of each call."""

    def __init__(self, port, tag, manner):
        self.seen = []
        self._port = port
        self._tag = tag
        self._manner = manner
        self._stop = threading.Event()
        self._numbers = itertools.count()
        self._threads = [
            threading.Thread(target=self._call_on, daemon=True) for _ in range(manner.callers)
        ]
        for thread in self._threads:
            thread.start()

    def _call_on(self):
        while not self._stop.is_set():
            self._call(next(self._numbers))
            self._stop.wait(self._manner.rest_s)

    def _call(self, number):
        name, began = f"call-{self._tag}-{number}", time.monotonic()
        family = dialects.ALL[number % len(dialects.ALL)]
        script, stream = self._manner.prompts[number % len(self._manner.prompts)]
        answer = None
        try:
            with Connection(self._port, patience_s=self._manner.patience_s) as connection:
                send(connection, family, name, script, stream)
                answer = connection.read_head()
                connection.read_body(answer)
        except (OSError, Closed, IndexError, ValueError):
            time.sleep(0.01)  # the gateway is dead; the test will end this soon
        ended_well = answer is not None and answer.whole and (not stream or ended(answer))
        self.seen.append(Seen(name, family, began, answer, ended_well))

    def wait_for(self, calls):
        """Wait until this many calls have ended."""
        assert wait_until(lambda: len(self.seen) >= calls, JOIN_S), f"{len(self.seen)} calls"

    def stop(self):
        self._stop.set()
        for thread in self._threads:
            thread.join(JOIN_S)
            assert not thread.is_alive(), "a caller hangs"

    def not_served(self):
        """Return the calls so far that did not end well."""
        return [seen for seen in list(self.seen) if not seen.served]


def send(connection, family, name, script="[[demo]]", stream=False, secret=dialects.SECRET):
    """Send one named call on a connection of its own."""
    body = dialects.ask(family, MODEL, f"{script} {name}", stream)
    if family == dialects.CHAT and stream:
        body["stream_options"] = {"include_usage": True}
    headers = {
        **dialects.credentials(family, secret),
        "X-Client-Request-Id": name,
        "Connection": "close",
    }
    connection.request("POST", dialects.path_of(family, MODEL, stream), headers, body)


def ended(answer):
    """Return True if a stream ended properly."""
    last = events(answer.body)[-1:]
    return bool(last) and dialects.is_terminal(last[0]) and not dialects.is_error(last[0])


def names_in(log_path):
    """Return the names of the calls that reached the vendor."""
    return {NAME.search(line)[0] for line in log_path.read_text().splitlines() if NAME.search(line)}


def first_answer_s(gateway):
    """Return the seconds from the start of the processes to the first answer to a call."""
    began = time.monotonic()
    gateway.start()
    body = dialects.ask(dialects.CHAT, MODEL, "hello")
    status, _, _ = gateway.call(
        "POST", dialects.path_of(dialects.CHAT, MODEL), body, dialects.credentials()
    )
    assert status == 200
    return time.monotonic() - began


def check_refused_in_all_dialects(port, number, secret=dialects.SECRET, patience_s=20):
    """Check that calls of each family, all at once, are refused with this row of the protocol."""
    with contextlib.ExitStack() as stack:
        connections = [
            stack.enter_context(Connection(port, patience_s=patience_s)) for _ in dialects.ALL
        ]
        for family, connection in zip(dialects.ALL, connections, strict=True):
            send(connection, family, "refused", secret=secret)
        for family, connection in zip(dialects.ALL, connections, strict=True):
            dialects.check_refusal(connection.read(), family, number)


def catch_up_s(url, names, within_s):
    """Return the seconds until these calls are in the store."""
    began, db = time.monotonic(), open_database(url)
    query = 'SELECT "client_request_id" FROM "usage_records"'
    missing = set(names)
    while missing and time.monotonic() < began + within_s:
        time.sleep(CATCH_UP_STEP_S)
        missing -= {name for (name,) in snapshot_read(db, lambda: execute(db, query).fetchall())}
    discard(db)
    assert not missing, f"{len(missing)} calls have no record after {within_s} s"
    return time.monotonic() - began


def check_books(gateway, seen_by_vendor, loads, within_s=20):
    """Check every promise about records and money, after everything has been booked; return the
    records."""
    # Refusals for lack of capacity (E38) may share a record; all others have one each.
    calls = [seen for load in loads for seen in load.seen if seen.whole]
    whole = {seen.name: seen for seen in calls if seen.answer.status != 503}

    def all_recorded():
        records = gateway.usage()
        names = {record["client_request_id"] for record in records}
        return records if seen_by_vendor | set(whole) <= names else None

    records = wait_until(all_recorded, within_s, step_s=0.3) or gateway.usage()
    count = Counter(record["client_request_id"] for record in records)
    assert seen_by_vendor - set(count) == set(), "calls that the vendor saw have no record"
    doubles = {name: n for name, n in count.items() if n > 1 and NAME.fullmatch(name or "")}
    assert doubles == {}
    assert len({record["id"] for record in records}) == len(records)
    by_name = {record["client_request_id"]: record for record in records}
    for name, seen in whole.items():
        record = by_name.get(name)
        assert record is not None, f"{name} was answered with {seen.answer.status}, has no record"
        assert record["status"] == seen.answer.status, record
        assert (record["outcome"] == "ok") is seen.served, record
    for record in records:
        check_record(record)
    gateway.run("usage", "verify")
    gateway.run("books", "verify")

    # The test's last call, a check that the gateway serves again, may be booked between the two
    # readings.
    assert left_by(records) == balance(gateway) or wait_until(
        lambda: left_by(gateway.usage()) == balance(gateway), 10, step_s=0.3
    )
    return records


def left_by(records):
    """Return what the owner must still have, according to the records."""
    costs = (Decimal(record["cost"]) for record in records if record["user"] == "owner")
    return Decimal(CREDIT) - sum(costs)


def check_record(record):
    """Check what holds for any record by itself."""
    sum_of_charges = sum(Decimal(charge["amount"]) for charge in record["charges"])
    assert sum_of_charges == Decimal(record["cost"]) >= 0, record
    assert record["duration_ms"] is None or record["duration_ms"] >= 0, record
    assert record["ttft_ms"] is None or record["ttft_ms"] >= 0, record
    if record["outcome"] == LOST:
        assert record["error_code"] == LOST and record["node"], record


def balance(gateway, user="owner"):
    """Return a user's balance as `wallet show` prints it."""
    shown = json.loads(gateway.run("wallet", "show", "--user", user, "--json"))
    return Decimal(shown["balance"])
