"""Two processes move the same money at the same time: each movement happens once, and no balance
falls below zero."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from store.money import codes
from store.money.books import verify
from store.money.wallet import Movement, credit, ledger, show
from tests.store.conftest import PEPPER
from tests.support.stores import balances

ROOT = Path(__file__).resolve().parents[3]

RACER = """
import json, sys
from store.money import codes, wallet
from store.db.database import open_database
from store.values.errors import Refused

url, pepper, user, verb, texts = sys.argv[1:]
db = open_database(url)
verbs = {
    "debit": lambda text: wallet.debit(db, user, wallet.Movement(1, text)),
    "redeem": lambda text: codes.redeem(db, user, text, [pepper], "cli"),
}
wallet.show(db, user)
print("ready", flush=True)
sys.stdin.readline()
done, refused = [], []
for text in json.loads(texts):
    try:
        verbs[verb](text)
        done.append(text)
    except Refused as error:
        refused.append(str(error))
print(json.dumps([done, refused]))
"""


@pytest.fixture
def db(database, users):
    return database


@pytest.fixture
def race(db, database_url):
    """Yield race(verb, texts, users), which returns for each process what it did and why the rest
    was refused."""
    started = []

    def run(verb, texts, users=("alice", "alice")):
        for user in users:
            command = [sys.executable, "-c", RACER, database_url, PEPPER, user, verb]
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
            started.append(
                subprocess.Popen([*command, json.dumps(texts)], cwd=ROOT, text=True, **pipes)
            )
        for racer in started:
            assert racer.stdout.readline() == "ready\n"
        for racer in started:
            racer.stdin.write("go\n")
            racer.stdin.flush()
        answers = [racer.communicate(timeout=120)[0] for racer in started]
        assert [racer.returncode for racer in started] == [0] * len(users)
        return [json.loads(answer) for answer in answers]

    yield run
    for racer in started:
        racer.kill()
        racer.communicate()


def test_debits_of_two_processes_never_take_more_than_there_is(db, race):
    credit(db, "alice", Movement(40, "paid"))
    answers = race("debit", [f"debit {turn}" for turn in range(30)])
    assert sum(len(done) for done, _ in answers) == 40
    assert sum(len(refused) for _, refused in answers) == 2 * 30 - 40
    assert {why for _, refused in answers for why in refused} == {
        "only 0 is free, less than the amount 0.000000001"
    }
    assert show(db, "alice").balance_nanos == 0
    afters = [line.balance_after_nanos for line in ledger(db, "alice") if line.kind == "debit"]
    assert sorted(afters) == list(range(40))
    assert verify(db) == []


def test_a_code_is_used_once_by_two_processes(db, users, race):
    made = codes.create(db, codes.NewCodes(20, 3), PEPPER, "cli")
    [(by_alice, alice_refused), (by_bob, bob_refused)] = race(
        "redeem", [one.code for one in made], ("alice", "bob")
    )
    assert sorted(by_alice + by_bob) == sorted(one.code for one in made)
    assert len(alice_refused) == len(by_bob) and len(bob_refused) == len(by_alice)
    assert all("used before" in why for why in alice_refused + bob_refused)
    expected = {users["alice"]: 3 * len(by_alice), users["bob"]: 3 * len(by_bob)}
    assert balances(db) == expected
    assert verify(db) == []
