"""`usage`: tail, export, stats, verify, prune, rebuild-rollups, and unknown names in filters."""

import csv
import io
import json
import os
import select
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path

import pytest

from adapters.faults import CODES
from commands.nouns import usage as usage_command
from commands.nouns.usage_filters import ERROR_CODES
from handlers.relay import records
from store.calls.journal_lines import LOST_OUTCOME
from store.db.audit import entries
from store.values.ids import now_ms, ulid
from store.values.usage_record import FIELDS
from tests.commands.conftest import record
from tests.support import terminal

ROOT = Path(__file__).resolve().parents[3]
WAIT_S = 15
DAY_MS = 86_400_000


def export(installation, *args):
    return [json.loads(line) for line in installation.ok("usage", "export", *args).splitlines()]


def ids(records):
    return [one["id"] if isinstance(one, dict) else one.id for one in records]


@pytest.fixture
def calls(installation):
    """Write six records of different kinds."""
    made = [
        record(1),
        record(2, user="bob", user_id="user-2"),
        record(3, status=429, outcome="refused", error_code="insufficient_quota"),
        record(4, endpoint="/v1/messages", model="claude", client_request_id="mine-4"),
        record(5, channel="other", key_id="key-2", upstream_nanos=3),
        record(6, stream=True, error_message="=1+1", group="gold"),
    ]
    installation.apply({"group": [{"name": "gold"}]})
    installation.write_records(*made)
    return made


@pytest.mark.parametrize(
    ("options", "which"),
    [
        ((), [0, 1, 2, 3, 4, 5]),
        (("--user", "bob"), [1]),
        (("--status", "429", "--outcome", "refused"), [2]),
        (("--model", "claude"), [3]),
        (("--endpoint", "/v1/messages"), [3]),
        (("--client-request-id", "mine-4"), [3]),
        (("--channel", "other"), [4]),
        (("--group", "gold"), [5]),
        (("--error-code", "insufficient_quota"), [2]),
        (("--error-code", "client_gone"), []),
        (("--model", "nobody-has-it"), []),
        (("--endpoint", "/v1/nothing"), []),
        (("--until", "2026-11-18T11:06:43Z"), [0, 1]),
        (("--since", "2026-11-18T11:06:45Z"), [4, 5]),
        (("--key-id", "key-2"), [4]),
        (("--key-id", "key-2", "--user", "bob"), []),
        (("--request-id", "no-such-call"), []),
    ],
)
def test_filters_choose_records(installation, calls, options, which):
    expected = [calls[index].id for index in which]
    assert ids(export(installation, *options)) == expected
    assert ids(installation.json("usage", "tail", "--since", "2026-11-18", *options)) == expected


def test_the_forms_of_an_export_and_of_a_tail(installation, calls):
    [found] = export(installation, "--request-id", calls[2].id)
    assert list(found) == list(FIELDS) and found["cost"] == "0.000000006"
    rows = list(csv.DictReader(io.StringIO(installation.ok("usage", "export", "--format=csv"))))
    assert list(rows[0]) == list(FIELDS) and [row["id"] for row in rows] == ids(calls)
    assert installation.ok("usage", "export", "--format=csv", "--model=none").count("\n") == 1
    assert ids(installation.json("usage", "export")) == ids(calls)
    for verb in ("export", "tail"):
        assert installation.json("usage", verb, "--model", "none") == []
    assert ids(installation.json("usage", "tail", "--limit", "2")) == ids(calls[-2:])
    head, *lines = installation.ok("usage", "tail", "--limit", "3").splitlines()
    assert head.split()[:2] == ["recorded_at", "id"]
    assert [line.split()[1] for line in lines] == ids(calls[-3:])


def test_tail_does_not_let_records_steer_the_terminal(installation):
    installation.write_records(record(1, error_code="x", error_message="\x1b[2Jgone\nnew line"))
    text = installation.ok("usage", "tail")
    assert "\x1b" not in text and text.count("\n") == 2 and "[2Jgone" in text


def started(installation, *args, **env):
    """Start a command in a process of its own."""
    argv = [sys.executable, "app.py", *args, "--config", str(installation.config)]
    # GNU readline puts COLUMNS into the environment of the test's process, so this one has its
    # own.
    env = {**os.environ, **env}
    return subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env)


def test_an_export_is_whole_in_utf_8_under_any_locale_and_ends_quietly(installation):
    installation.write_records(record(0, model="模型-é"), *(record(n) for n in range(1, 3000)))
    process = started(installation, "usage", "export", PYTHONIOENCODING="ascii")
    assert process.stdout is not None and process.stderr is not None
    assert json.loads(process.stdout.readline().decode("utf-8"))["model"] == "模型-é"
    process.stdout.close()  # this reader has read enough
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait(WAIT_S) in (0, 1)


def test_verify_recomputes_every_cost(installation, calls):
    place = str(installation.folder / "sluice.db")
    assert installation.ok("usage", "verify") == f"every cost in {place} is correct\n"
    assert installation.json("usage", "verify") == {"ok": True, "store": place, "faults": []}
    with installation.store() as db:
        wrong = f'UPDATE "usage_records" SET "cost_nanos" = 1 WHERE "id" = \'{calls[1].id}\''
        db.execute_sql(wrong)
    ended = installation.run("usage", "verify", "--since", "2026-11-18")
    assert ended.code == 1 and ended.out.startswith(calls[1].id)
    answer = json.loads(installation.run("usage", "verify", "--json").out)
    assert answer["ok"] is False and ids(answer["faults"]) == [calls[1].id]
    assert installation.run("usage", "verify", "--since", "2026-11-19").code == 0


def test_stats_sum_up_calls(installation, calls):
    rows = installation.json("usage", "stats", "--by", "day,model")
    assert [(row["day"], row["model"], row["calls"]) for row in rows] == [
        ("2026-11-18", "claude", 1),
        ("2026-11-18", "gpt-4.1", 5),
    ]
    assert installation.json("usage", "stats") == rows
    head, line = installation.ok("usage", "stats", "--by=user", "--user=bob").splitlines()
    columns = ["user", "calls", "ok", "refused", "client_gone", "failed", "tokens", "cost"]
    assert head.split() == columns
    assert line.split() == ["bob", "1", "1", "0", "0", "0", "1000/500", "0.000000006"]
    by_key = installation.json("usage", "stats", "--by", "key")
    assert by_key == installation.json("usage", "stats", "--by", "key-id") and by_key[0]["key_id"]
    assert installation.json("usage", "stats", "--until", "2026-11-18") == []
    text = installation.ok("usage", "stats", "--format=csv")
    texts = [{n: "" if v is None else str(v) for n, v in row.items()} for row in rows]
    assert list(csv.DictReader(io.StringIO(text))) == texts
    head, line = installation.ok("usage", "stats", "--by=channel", "--channel=other").splitlines()
    assert head.split()[-4:] == ["cost", "upstream_cost", "cost_known", "margin"]
    assert line.split()[-4:] == ["0.000000006", "0.000000003", "0.000000006", "0.5000"]
    installation.misused("usage", "stats", "--format", "pdf")


def test_stats_end_with_totals_of_all_such_calls(installation, calls):
    _, *lines, total = installation.ok("usage", "stats", "--by=user,model").splitlines()
    assert total.split()[:3] == ["total", "-", "6"]
    costs = [Decimal(line.split()[8]) for line in lines]
    assert len(costs) == 3 and sum(costs) == Decimal(total.split()[8])
    _, first, total = installation.ok("usage", "stats", "--by=user", "--top=1").splitlines()
    assert (first.split()[1], total.split()[:2]) == ("5", ["total", "6"])
    empty = installation.ok("usage", "stats", "--by=user", "--until=2026-11-18")
    assert empty.count("\n") == 1


def test_stats_show_what_cost_most_first(installation, calls):
    installation.write_records(record(7, user="carl", output_tokens=900_000))
    options = ("usage", "stats", "--by", "user", "--sort", "cost")
    rows = installation.json(*options)
    assert [row["user"] for row in rows] == ["carl", "alice", "bob"]
    assert installation.json(*options, "--top", "2") == rows[:2]
    assert "cost" in installation.misused("usage", "stats", "--sort", "price")
    installation.misused("usage", "stats", "--top", "0")


def test_stats_by_something_else_is_wrong_usage(installation):
    for by in ("day,colour", "", "day,day", "key-id,key_id"):
        assert "key_id" in installation.misused("usage", "stats", "--by", by)


def test_wrong_sums_are_named_and_made_anew(installation, calls):
    with installation.store() as db:
        db.execute_sql('UPDATE "usage_by_key" SET "calls" = 77 WHERE "user" = \'bob\'')
    ended = installation.run("usage", "verify")
    assert ended.code == 1 and "usage_by_key of 20261118" in ended.out and "calls 77" in ended.out
    answer = json.loads(installation.run("usage", "verify", "--json").out)
    assert [fault["id"] for fault in answer["faults"]] == [None]
    assert installation.json("usage", "rebuild-rollups") == {"days": 1}
    assert "is correct\n" in installation.ok("usage", "verify")


def test_prune_removes_old_days_and_keeps_their_sums(installation):
    for age in ((), ("--older-than", "soon"), ("--older-than", "-1d")):
        installation.misused("usage", "prune", *age)
    today_ms = now_ms()
    old = [record(n, id=ulid(today_ms - 100 * DAY_MS, bytes([n] * 10))) for n in range(3)]
    young = record(9, id=ulid(today_ms - 20 * DAY_MS, bytes(10)))
    installation.write_records(*old, young)
    prune = ("usage", "prune", "--older-than", "90d")
    shown = installation.json(*prune, "--dry-run")
    text = installation.ok(*prune, "--dry-run")
    assert text == f"would remove 3 records of days before {shown['before']}\n"
    assert len(export(installation)) == 4
    answer = installation.json(*prune)
    assert (answer["partitions"], answer["records"]) == (0, 3)
    assert ids(export(installation)) == [young.id]
    assert sum(row["calls"] for row in installation.json("usage", "stats", "--by=day")) == 4
    assert "is correct\n" in installation.ok("usage", "verify")
    assert installation.ok(*prune).startswith("removed days before")
    with installation.store() as db:
        acts = [(entry["action"], entry["kind"]) for entry in entries(db, 9)]
        assert acts == [("prune", "usage")] * 2


@pytest.mark.parametrize(
    ("typed", "flags", "left"), [("n\n", [], 1), ("y\n", [], 0), ("", ["--yes"], 0)]
)
def test_prune_asks_on_a_terminal(installation, typed, flags, left):
    old = record(1, id=ulid(now_ms() - 100 * DAY_MS, bytes(10)))
    installation.write_records(old)
    args = ["usage", "prune", "--older-than", "90d", *flags, "--config", str(installation.config)]
    code, shown = terminal.run(args, typed)
    assert code == left and len(export(installation)) == left
    assert ("Remove 1 records" in shown) == (not flags)
    assert ("nothing removed" in shown) == bool(left)


@contextmanager
def following(installation, *options):
    """Start `usage tail -f` in a process of its own; its output is read line by line."""
    process = started(installation, "usage", "tail", "-f", *options)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def lines_of(process, count):
    """Return the next `count` lines, which must come in time."""
    found = b""
    end = time.monotonic() + WAIT_S
    while found.count(b"\n") < count:
        assert select.select([process.stdout], [], [], max(0, end - time.monotonic()))[0], found
        piece = os.read(process.stdout.fileno(), 65536)
        assert piece, process.stderr.read()
        found += piece
    lines = found.decode().splitlines()
    assert len(lines) == count
    return lines


def test_following_shows_what_was_there_then_what_comes_each_once(installation, calls):
    with following(installation, "--json", "--limit", "2") as process:
        assert ids(map(json.loads, lines_of(process, 2))) == ids(calls[-2:])
        # a long stream: started before all the others, recorded last
        installation.write_records(record(0), recorded_ms=now_ms())
        assert ids(map(json.loads, lines_of(process, 1))) == [record(0).id]
        # one that becomes visible a little after newer ones
        installation.write_records(record(8), recorded_ms=now_ms() - 3000)
        assert ids(map(json.loads, lines_of(process, 1))) == [record(8).id]
        time.sleep(1.2)  # two more polls show nothing twice
        assert not select.select([process.stdout], [], [], 0)[0]
        process.send_signal(signal.SIGINT)
        assert process.wait(WAIT_S) == 0
        assert process.stderr.read() == b""


def test_following_in_an_empty_store_with_a_filter(installation):
    installation.apply({"user": [{"name": "bob"}]})
    with following(installation, "--user", "bob") as process:
        assert lines_of(process, 1)[0].split()[:2] == ["recorded_at", "id"]
        installation.write_records(record(1), record(2, user="bob"), recorded_ms=now_ms())
        assert lines_of(process, 1)[0].split()[1] == record(2).id


def test_the_columns_of_the_text_form_stand_under_their_names():
    names = usage_command.TEXT_COLUMNS
    head = usage_command._text_line({name: name for name in names}, names)
    line = usage_command._text_line(dict.fromkeys(names, "long " * 20), names)
    starts = [head.index(f" {name}") for name in list(names)[1:]]
    assert all(line[start : start + 2] == " l" for start in starts)
    assert line.count("…") == len(names) - 1


UNKNOWN = [
    ("--user", "alicia", 'there is no user "alicia"; did you mean "alice"?'),
    ("--user", "x", 'there is no user "x"\n'),
    ("--group", "defualt", 'there is no group "defualt"; did you mean "default"?'),
    ("--channel", "mian", 'there is no channel "mian"; did you mean "main"?'),
    ("--key-id", "alice/labtop", 'there is no key "alice/labtop"; did you mean "alice/laptop"'),
    ("--outcome", "x", "there are: ok, refused"),
    ("--error-code", "insuficient_quota", 'did you mean "insufficient_quota"?'),
]
KNOWN = ["--user=alice", "--group=default", "--channel=main", "--key-id=alice/laptop"]
KNOWN += ["--outcome=drained", "--error-code=gateway_lost"]


def test_what_a_filter_names_must_exist(filled):
    for option, value, problem in UNKNOWN:
        assert problem in filled.refused("usage", "tail", option, value)
    span = ("--since", "2026-11-02", "--until", "2026-11-01")
    assert "--since must be before --until" in filled.misused("usage", "export", *span)
    for option in KNOWN:  # these exist, but have no calls
        assert filled.json("usage", "stats", option, "--since=1h") == []


def test_keys_by_name_or_id_and_what_was_removed_are_found(filled):
    [key] = filled.json("key", "list")
    own = record(2, key_id=key["id"])
    gone = record(1, user="gone", key_id="old-key", channel="away")
    filled.write_records(own, gone)
    for name in ("alice/laptop", key["id"]):
        assert ids(filled.json("usage", "tail", "--key-id", name)) == [own.id]
    for option in ("--user=gone", "--key-id=old-key", "--channel=away"):
        assert ids(filled.json("usage", "tail", option)) == [gone.id]


def test_what_no_index_knows_is_looked_for_in_the_last_days(filled):
    filled.write_records(record(1, status=500, error_code="internal_error"))
    text = filled.run("usage", "tail", "--status=500", "--until", "2026-12-24").err
    assert "started since 2026-12-17T00:00:00.000Z; for older ones: --since" in text
    assert filled.run("usage", "tail", "--status=500", "--since", "2026-11-18").err == ""
    for option in ("--user=alice", "--model=gpt-4.1", "--outcome=ok", "--request-id=x",
                   "--error-code=internal_error", "--endpoint=/v1/messages", "--group=default",
                   "--client-request-id=x"):  # fmt: skip
        assert filled.run("usage", "tail", option).err == ""


def test_every_code_that_a_record_may_have_is_known():
    assert {*CODES.values(), *records._WORDS, LOST_OUTCOME} == set(ERROR_CODES)
