"""The whole installation of docs/cluster.md, broken in one way after another while calls run.

FAULTS is the table: a scenario for each fault. The functions `check_…` below check what must hold
after each of them. The results become the page's tables, in `.faults.md` and `.sizing.md`; `make
cluster-page` inserts them.
"""

import itertools
import json
import math
import os
import re
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.support import commands
from tests.support.gateway import HOST, ROOT
from tests.support.installation import RPM, SLOTS, TPM, Installation
from tests.support.proxy import Breakable

TABLE = ROOT / ".faults.md"
HEAD = """\
| what broke | calls with cover | others | what it cost | how long |
|---|---|---|---|---|
"""
SIZING = ROOT / ".sizing.md"
MEASURED_S = 30
TICKS_S = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
WARM_UP_S = 15  # the buckets are used up
AFTER_S = 14  # after a fault
DOWN_S = 15  # downtime of what is killed
FROZEN_S = 60
CLOCK_S = 300
WITHIN_S = 10  # how long callers may be refused
MACHINE_S = 1  # allowance for a busy machine
NODES = WORKERS = 2
JITTER = 2  # calls that were counted before their clients recorded them
TOKENS_OF_A_CALL = 200
LIMITED = "rate_limit_exceeded"
POOR = "insufficient_quota"


@dataclass
class Course:
    """The times of a scenario's fault: when callers without a lease may be refused (until WITHIN_S
    after the second time), and when a gateway was killed."""

    refused: list[tuple[float, float]] = field(default_factory=list)
    killed_s: float = math.inf

    def broken(self):
        """Note that something breaks now; by default it recovers within WITHIN_S."""
        self.refused.append((time.monotonic(), time.monotonic()))

    def covers(self, at_s):
        """Return True if a call of this time may be refused; it may have started before the
        fault."""
        return any(
            began - WITHIN_S < at_s < whole + WITHIN_S + MACHINE_S for began, whole in self.refused
        )

    def whole(self):
        """Note that what broke last recovers only now."""
        self.refused[-1] = (self.refused[-1][0], time.monotonic())


# ---- scenarios -----------------------------------------------------------------------------------


def kill_the_writing_host(site, course):
    node = site.writer()
    course.broken()
    node.kill()
    time.sleep(DOWN_S)
    node.start()


def lose_the_majority(site, course):
    writer, (other, last) = site.writer(), site.others()
    course.broken()
    writer.kill()
    other.kill()
    last.wait_for_members(1)
    time.sleep(DOWN_S)  # until an operator notices
    last.bootstrap()
    course.whole()
    time.sleep(WITHIN_S)
    for node in (writer, other):
        node.start()


def freeze_the_writing_host(site, course):
    node = site.writer()
    course.broken()
    node.freeze()
    time.sleep(FROZEN_S)
    node.thaw()
    node.wait_synced()


def restart_all_hosts(site, course):
    for node in site.galera.nodes:
        if node is site.writer():
            course.broken()
        node.stop()
        node.start()
        time.sleep(2)


def write_to_two_hosts(site, course):
    """Make the second gateway write to another host, by its store.url."""
    second, other = site.gateways[1], site.others()[0]
    site.restart(second, "--set", f"store.url={url_at(other.port)}")
    course.broken()
    time.sleep(20)
    site.restart(second)
    course.whole()


def kill_redis(site, course):
    site.redis.stop()
    # Longer than a minute, so that Redis and the gateways count different minutes.
    time.sleep(FROZEN_S)
    site.redis.start()


def freeze_redis(site, course):
    site.redis.freeze()
    time.sleep(DOWN_S)
    site.redis.thaw()


def empty_redis(site, course):
    site.redis.stop()
    site.redis.start()


def kill_a_gateway(site, course):
    course.broken()
    course.killed_s = time.monotonic()
    site.gateways[1].kill()
    time.sleep(DOWN_S)
    site.gateways[1].start()


def cut_a_gateway_off(site, course):
    """Cut a gateway off from the database for a minute: its network drops everything."""
    second = site.gateways[1]
    with Breakable(site.writer().port) as network:
        site.restart(second, "--set", f"store.url={url_at(network.port)}")
        time.sleep(WARM_UP_S)
        site.wait_for_cover()
        course.broken()
        network.cut()
        time.sleep(FROZEN_S)
        network.mend()
        course.whole()
        time.sleep(WITHIN_S)
        site.restart(second)


def set_the_clock_of_a_gateway(site, course):
    second = site.gateways[1]
    site.clock.set_by(CLOCK_S)
    site.restart(second, **site.clock.light_environment)
    for seconds in (CLOCK_S, -CLOCK_S, 0):
        site.clock.set_by(seconds)
        time.sleep(DOWN_S)
    assert "this node's clock is 300 s ahead" in second.log()
    site.restart(second)


def write_to_a_host_whose_clock_is_wrong(site, course):
    writer, node = site.writer(), site.others()[0]
    node.stop()
    site.clock.set_by(CLOCK_S)
    node.environment = site.clock.environment
    node.start()
    assert abs(node.time_s() - time.time() - CLOCK_S) < CLOCK_S / 10
    for host in (node, writer):
        course.broken()
        site.write_to(host)
        time.sleep(DOWN_S)
    node.stop()
    node.environment = {}
    node.start()


def url_at(port):
    return f"mysql://sluice:PASSWORD@{HOST}:{port}/sluice"


@dataclass(frozen=True)
class Fault:
    """A row of the page's table."""

    words: str
    scenario: Callable


FAULTS = [
    Fault("`kill -9` of the writing host", kill_the_writing_host),
    Fault("two hosts killed; a human bootstraps the third", lose_the_majority),
    Fault("the writing host frozen for 60 s", freeze_the_writing_host),
    Fault("all three hosts restarted in turn", restart_all_hosts),
    Fault("two hosts written to, on purpose", write_to_two_hosts),
    Fault("Redis killed, back empty after 60 s", kill_redis),
    Fault("Redis frozen for 15 s", freeze_redis),
    Fault("Redis back empty at once", empty_redis),
    Fault("`kill -9` of a gateway", kill_a_gateway),
    Fault("a gateway cut off from the database for 60 s", cut_a_gateway_off),
    Fault("a gateway's clock off by 5 minutes", set_the_clock_of_a_gateway),
    Fault("the writing host's clock off by 5 minutes", write_to_a_host_whose_clock_is_wrong),
]


# ---- checks --------------------------------------------------------------------------------------


def failures(exchanges):
    """Return the calls that failed, except by a limit or an empty wallet."""
    return [e for e in exchanges if e.fault and not (LIMITED in e.fault or POOR in e.fault)]


def check_callers(seen, course):
    """Check that no call covered by leases and memory fails, and others only for a short time.
    Calls of a killed gateway are cut. Return these, the refused ones, and how long after the last
    fault."""
    cut, refused = [], []
    for who, outcome in seen.items():
        for exchange in failures(outcome.exchanges):
            if exchange.began_s <= course.killed_s + 0.5 and exchange.ended_s >= course.killed_s:
                cut.append(exchange)
            else:
                assert who == "poor" and exchange.status == 503, (who, exchange)
                refused.append(exchange)
    assert course.refused or not refused, refused[:3]
    if not refused:
        return cut, refused, 0.0
    late = [e for e in refused if not course.covers(e.began_s)]
    assert not late, late[:3]
    return cut, refused, max(e.ended_s for e in refused) - course.refused[-1][0]


def check_records(site, tag, seen):
    """Check the records: none lost, none double, no drift, no wallet below 0."""
    records, took_s = site.settle(tag)
    doubles = {name: rows for name, rows in records.items() if len(rows) > 1}
    assert not doubles, doubles
    for outcome in seen.values():
        for exchange in outcome.exchanges:
            if exchange.status == 200 and not exchange.fault:
                [(call_id, state, *_)] = records[exchange.name]
                assert (call_id, state) == (exchange.call_id, "ok"), exchange
    site.gateways[0].run("books", "verify")
    site.gateways[0].run("usage", "verify")
    assert site.lowest_balance() >= 0
    return records, took_s


def excess(counted, per_minute):
    """Return the largest excess over the refill that a limit admitted in any period; for a full
    bucket this is its size. `counted`: (time, amount), in the order of time."""
    most = level = last_s = 0.0
    for at_s, amount in counted:
        level = max(0.0, level - (at_s - last_s) * per_minute / 60) + amount
        most, last_s = max(most, level), at_s
    return most


def most_in_a_minute(counted):
    times = [at_s for at_s, _ in counted]
    return max((sum(begin <= at < begin + 60 for at in times) for begin in times), default=0)


def most_at_once(streams):
    """Return the largest number of admitted streams at a time, up to just before their last
    event."""
    changes = [(e.head_s, 1) for e in streams] + [(e.ended_s - 0.3, -1) for e in streams]
    changes.sort()
    return max(itertools.accumulate(change for _, change in changes), default=0)


def check_limits(seen, records, broke_s):
    """Check that at most twice a limit passes in a minute. test_exact_limits.py checks the exact
    limit."""
    passed = {
        who: sorted((e for e in seen[who].exchanges if e.status == 200), key=lambda e: e.head_s)
        for who in ("rated", "metered", "narrow")
    }
    requests = [(e.head_s, 1) for e in passed["rated"]]
    tokens = [(e.head_s, records[e.name][0][-1]) for e in passed["metered"]]
    slots = most_at_once(passed["narrow"])
    minute = most_in_a_minute([one for one in requests if one[0] >= broke_s])
    figures = f"requests {excess(requests, RPM):.0f} of {RPM} (a minute: {minute}),"
    figures += f" tokens {excess(tokens, TPM):.0f} of {TPM}, slots {slots} of {SLOTS}"
    print(figures)
    assert minute <= 2 * RPM + NODES + JITTER, figures
    assert slots <= 2 * SLOTS, figures
    assert excess(tokens, TPM) <= 2 * TPM + TOKENS_OF_A_CALL, figures
    return minute, slots


def stall(records):
    """Return the longest time without bookings, by the database's clock, as words."""
    times = sorted({row[5] for rows in records.values() for row in rows})
    longest_s = max(later - earlier for earlier, later in itertools.pairwise(times)) / 1000
    if longest_s > CLOCK_S / 2:
        return "not measured: the database's clock jumped"
    return f"nothing booked for {longest_s:.1f} s"


@pytest.fixture(scope="module")
def site(galera_session, tmp_path_factory):
    galera_session.restore()
    TABLE.write_text(HEAD)
    made = Installation(tmp_path_factory.mktemp("site"), galera_session)
    yield made
    made.close()


def cpu_s(pids):
    """Return the CPU time that processes have used."""
    fields = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in pids]
    return sum(int(one[11]) + int(one[12]) for one in fields) / TICKS_S


def memory_mb(pid):
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE_BYTES / 1e6


def test_what_the_load_takes(site):
    """Without faults, before the other tests."""
    site.galera.restore()
    parts = {
        "the writing host": [site.writer().process.pid],
        "each of the other hosts": [node.process.pid for node in site.others()],
        "Redis": [site.redis.pid],
        "each of the workers": [pid for one in site.gateways for pid in one.worker_pids()],
    }
    with site.load("size"):
        time.sleep(WARM_UP_S)
        before = {name: cpu_s(pids) for name, pids in parts.items()}
        time.sleep(MEASURED_S)
        used = {name: cpu_s(pids) - before[name] for name, pids in parts.items()}
        sizes = {name: [memory_mb(pid) for pid in pids] for name, pids in parts.items()}
    records, _ = site.settle("size")
    times = [rows[0][5] / 1000 for rows in records.values()]
    each_s = len(times) / (max(times) - min(times))
    head = f"30 calls/s, and 50 streams with 200 events/s, for {each_s:.0f} records/s"
    table = f"| {head} | CPU | memory |\n|---|---|---|\n"
    for name, pids in parts.items():
        cores = used[name] / len(pids) / MEASURED_S
        table += f"| {name} | {cores:.1%} of a core | {max(sizes[name]):.0f} MB |\n"
    print(table)
    SIZING.write_text(table)
    assert all(used.values()) and len(parts["each of the workers"]) == NODES * WORKERS


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.scenario.__name__)
def test_fault(site, fault):
    tag, course = fault.scenario.__name__.replace("_", ""), Course()
    site.galera.restore()
    with site.load(tag) as seen:
        time.sleep(WARM_UP_S)
        site.wait_for_cover()
        broke_s = time.monotonic()
        fault.scenario(site, course)
        time.sleep(AFTER_S)
    report(seen)
    records, took_s = check_records(site, tag, seen)
    cut, refused, span_s = check_callers(seen, course)
    minute, slots = check_limits(seen, records, broke_s)
    covered = [e for who, one in seen.items() if who != "poor" for e in one.exchanges]
    slowest_s = max(e.head_s - e.began_s for e in covered if not e.fault)
    poor = len(seen["poor"].exchanges)
    row = (
        f"| {fault.words} | 0 of {len(covered):,} failed, slowest {slowest_s:.1f} s"
        f" | {len(refused)} of {poor} got 503"
        + (f", the last {span_s:.0f} s later" if refused else "")
        + f" | {f'{len(cut)} calls cut; ' if cut else ''}in a minute {minute} of {RPM} requests,"
        f" at once {slots} of {SLOTS} streams"
        f" | {stall(records)} |\n"
    )
    print(row, f"booked {took_s:.1f} s after the end; load average {os.getloadavg()[0]:.1f}")
    with TABLE.open("a") as table:
        table.write(row)
    lines = [line for gateway in site.gateways for line in gateway.log().splitlines()]
    assert not [line for line in lines if "Traceback" in line]


def test_the_commands_of_the_page(site):
    site.galera.restore()
    page = (ROOT / "docs/cluster.md").read_text()
    assert all(f"| {fault.words} |" in page for fault in FAULTS)
    lines = re.findall(r"^    \./sluice (.*)$", page, re.MULTILINE)
    assert len(lines) > 3
    for line in lines:
        words = line.replace("db1.example:3306", site.galera.nodes[0].place).split()
        if words != ["doctor"]:  # `doctor` also checks this machine
            site.gateways[0].run(*words)
    done = commands.run(["doctor", "--json", "--config", str(site.gateways[0].config)])
    states = {one["check"]: one["state"] for one in json.loads(done.stdout)["findings"]}
    assert states["limits"] == "ok", done.stdout


def report(seen):
    for who, outcome in seen.items():
        count = Counter(
            (e.status, LIMITED in e.fault, POOR in e.fault, bool(e.fault))
            for e in outcome.exchanges
        )
        slowest = max((e.head_s - e.began_s for e in outcome.exchanges), default=0)
        print(f"{who}: {dict(count)}, slowest {slowest:.1f} s")
        for exchange in failures(outcome.exchanges)[:3]:
            print("   ", exchange)
