"""Limits of sign-in tries and their log lines: by network, by name, and separately by code."""

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pyotp
import pytest

from handlers.hub.access import sign_in
from handlers.hub.web import throttle
from handlers.hub.web.throttle import SignInLog, Throttle, host_of, network_of
from store.admin.objects import Sealing
from store.db.audit import entries
from store.hub import one_time as codes
from store.hub import people
from store.values.cipher import Cipher
from tests.handlers.hub.browser import PASSWORDS, Browser

PROXY = {"trusted_proxies": ("127.0.0.0/8",)}
SECRET = "JBSWY3DPEHPK3PXPJBSWY3DPEHPK3PXP"
PATIENCE_S = 20


@pytest.fixture
def hub(serve):
    return serve(server=PROXY)


@pytest.fixture
def asks_for_codes(db):
    """Make alice need a one-time code."""
    cipher, me = Sealing(Cipher(["cipher key of the tests"]), []).cipher, user_id(db)
    codes.begin(db, cipher, me, SECRET)
    codes.confirm(db, me, "alice", 1)


def user_id(db):
    return people.check(db, "alice", PASSWORDS["alice"]).id


def signs_in(hub, name, password, address):
    return Browser(hub.port).sign_in(name, password, **{"X-Forwarded-For": address}).status


def at_the_code(hub):
    """Return a browser at the step of the code, after a correct password."""
    browser = Browser(hub.port)
    assert browser.sign_in("alice", PASSWORDS["alice"]).place == "/sign-in/code"
    browser.get("/sign-in/code")
    return browser


def sends_code(browser, code=None):
    return browser.send("/sign-in/code", [("code", code or pyotp.TOTP(SECRET).now())])


# ---- networks ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("address", "network", "host"),
    [
        ("192.0.2.77", "192.0.2.0/24", "192.0.2.77"),
        ("2001:db8:1:2:3::4", "2001:db8:1:2::/64", "2001:db8:1:2::/64"),
        ("::ffff:192.0.2.77", "192.0.2.0/24", "192.0.2.77"),
        ("", "", ""),
        ("unix:", "unix:", "unix:"),
    ],
)
def test_addresses_count_by_network(address, network, host):
    assert (network_of(address), host_of(address)) == (network, host)


@pytest.mark.parametrize(
    ("first", "same", "another"),
    [
        ("192.0.2.1", "192.0.2.200", "192.0.3.1"),
        ("2001:db8::1", "2001:db8::ffff:1", "2001:db8:0:1::1"),
    ],
)
def test_wrong_passwords_of_a_network_count_together(hub, monkeypatch, first, same, another):
    monkeypatch.setattr(throttle, "NETWORK_TRIES", 2)
    assert [signs_in(hub, f"user-{n}", "x", first) for n in range(2)] == [401, 401]
    assert signs_in(hub, "alice", PASSWORDS["alice"], same) == 429
    assert signs_in(hub, "alice", PASSWORDS["alice"], another) == 303


def test_hashes_of_one_network_leave_places_for_others(hub, monkeypatch):
    check, held, began = people.check, threading.Event(), threading.Semaphore(0)

    def slow(db, name, password):
        if name == "slow":
            began.release()
            held.wait(PATIENCE_S)
        return check(db, name, password)

    monkeypatch.setattr(sign_in.people, "check", slow)
    with ThreadPoolExecutor(12) as pool:
        tries = [pool.submit(signs_in, hub, "slow", "x", f"192.0.2.{n}") for n in range(12)]
        try:
            assert began.acquire(timeout=PATIENCE_S)
            assert signs_in(hub, "alice", PASSWORDS["alice"], "198.51.100.1") == 303
        finally:
            held.set()
    # One is hashed and eight wait; the name may be tried ten times.
    assert Counter(work.result() for work in tries) == {401: 9, 429: 3}


# ---- one-time codes ------------------------------------------------------------------------------


def test_wrong_passwords_and_wrong_codes_count_apart(hub, asks_for_codes, monkeypatch):
    monkeypatch.setattr(throttle, "NAME_TRIES", 2)
    waiting = at_the_code(hub)
    for name in ("alice", "code of alice"):
        assert [signs_in(hub, name, "x", "192.0.2.1") for _ in range(3)] == [401, 401, 429]
    assert sends_code(waiting).status == 303


def test_wrong_codes_are_counted_before_they_are_judged(hub, asks_for_codes, monkeypatch):
    monkeypatch.setattr(throttle, "NAME_TRIES", 3)
    waiting = at_the_code(hub)
    with ThreadPoolExecutor(12) as pool:
        tries = list(pool.map(lambda _: sends_code(waiting, "1").status, range(12)))
    assert Counter(tries) == {401: 3, 429: 9}
    locked = sends_code(waiting)
    assert locked.status == 429 and int(locked.headers["Retry-After"]) > 0


def test_a_store_that_is_away_is_no_wrong_code(hub, asks_for_codes, monkeypatch):
    monkeypatch.setattr(throttle, "NAME_TRIES", 2)
    waiting = at_the_code(hub)
    with monkeypatch.context() as patched:
        patched.setattr(sign_in.one_time, "find", lambda *given: 1 / 0)
        assert [sends_code(waiting).status for _ in range(3)] == [500] * 3
    assert sends_code(waiting).status == 303


def test_a_changed_password_ends_the_step_that_waits_for_a_code(hub, asks_for_codes, db):
    waiting = at_the_code(hub)
    people.set_password(db, "alice", "another correct horse", "boss")
    answer = sends_code(waiting)
    assert answer.place == "/sign-in" and "sluice_session" not in waiting.cookies


# ---- log lines and audit lines -------------------------------------------------------------------


def audited(db, action):
    """Return lines of the audit log."""
    rows = [row for row in entries(db, 50) if row["action"] == action]
    return [(row["actor"], row["kind"], row["name"], row["after"]) for row in rows]


def test_the_audit_log_tells_who_came_in_and_went(hub, db):
    alice = Browser(hub.port).signed_in("alice")
    assert audited(db, "sign_in") == [("alice", "user", "alice", {"by": "password"})]
    hub.signed_in("alice")
    alice.send("/account/sessions", [("id", "others")])
    alice.get("/account")
    alice.send("/sign-out", [])
    (_, _, _, first), (_, _, _, second) = audited(db, "end_session")
    assert second == {"sessions": 1, "tokens": 0} and len(first["session"]) == 26
    assert entries(db, 1)[0]["address"] == "127.0.0.1"
    hub.signed_in("alice")
    hub.signed_in("boss").api("DELETE", "/api/admin/users/alice/sessions")
    assert audited(db, "end_session")[0] == ("boss", "user", "alice", {"sessions": 1, "tokens": 0})


def test_a_lock_is_one_line_of_the_audit_log(hub, db, monkeypatch):
    monkeypatch.setattr(throttle, "NAME_TRIES", 2)
    monkeypatch.setattr(throttle, "NETWORK_TRIES", 3)
    for name in ("alice", "alice", "alice", "boss", "boss"):
        signs_in(hub, name, "x", "192.0.2.1")
    assert audited(db, "lock_out") == [
        ("nobody", "sign-in", "boss", {"locked": ["network"], "seconds": 600}),
        ("nobody", "sign-in", "alice", {"locked": ["name"], "seconds": 600}),
    ]


@pytest.mark.parametrize(
    ("path", "kind", "name"),
    [
        ("/api/usage/export?format=csv&model=m", "usage", "csv"),
        ("/api/admin/audit/export?format=ndjson&model=m", "audit", "ndjson"),
        ("/wallet/ledger.csv?model=m", "ledger", "csv"),
    ],
)
def test_the_audit_log_tells_of_exports(hub, db, path, kind, name):
    assert hub.signed_in("boss").get(path).status == 200
    assert audited(db, "export") == [("boss", kind, name, {"filters": {"model": "m"}})]


def test_results_are_counted(hub, db, asks_for_codes, monkeypatch):
    results = []
    sends_code(at_the_code(hub))
    assert audited(db, "sign_in")[0][3] == {"by": "password, one_time_code"}
    hub.site.sign_ins = SignInLog(results.append)
    monkeypatch.setattr(throttle, "NAME_TRIES", 2)
    signs_in(hub, "boss", PASSWORDS["boss"], "192.0.2.1")
    for _ in range(3):
        signs_in(hub, "nobody", "x", "192.0.2.1")
    sends_code(at_the_code(hub), "1")
    assert results == ["ok", "wrong", "wrong", "locked", "wrong_code"]


def test_a_network_has_ten_lines_a_minute_then_a_count(caplog):
    results = SignInLog()
    for second in range(25):
        results.ended("wrong", "192.0.2.0/24", second)
    results.ended("wrong", "198.51.100.0/24", 26)
    results.sweep(59)
    assert len(caplog.messages) == throttle.NETWORK_LINES_MAX + 1
    results.sweep(60)
    assert caplog.messages[-1] == "15 more sign-ins from 192.0.2.0/24 failed within 60 s"
    caplog.clear()
    for number in range(10_000):  # many networks together have a limit too
        results.ended("wrong", f"2001:db8:0:{number:x}::/64", 61)
    results.sweep(121)
    assert 0 < len(caplog.messages) <= throttle.LINES_MAX + throttle.COUNT_LINES_MAX + 1


def test_a_right_code_to_redeem_forgives_no_wrong_one():
    tries = Throttle(forgives=False)
    for second in range(throttle.NAME_TRIES):
        tries.failed("alice", "192.0.2.1", second)
        tries.failed("alice", "192.0.2.1", second + 0.5)
        tries.succeeded("alice", "192.0.2.1", second + 0.5)
    assert tries.wait_s("alice", "198.51.100.1", throttle.NAME_TRIES)
