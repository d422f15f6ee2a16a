"""A key that is disabled and goes on calling: others are served and paid as ever, and the records
of its refusals are bounded.
"""

import json
import re
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal

import pytest

from tests.support.client import exchange, wait_until
from tests.support.dialects import ALL, ask, check_refusal, credentials, path_of
from tests.support.documents import PRICE, channel
from tests.support.wallets import check_charged, check_free, joined, owners, secret_of

MODEL = "demo-small"
CREDIT = "10"
REFUSED, CALLERS = 700, 4
PER_MINUTE = 600  # what the settings say when nobody changes them
PAID = 40
STANDS_FOR = re.compile(r"stands for (\d+) refused calls")


@pytest.fixture(scope="module")
def gateway(launch, vendor):
    """One user with two keys; the one called "looping" is disabled."""
    made = {
        "model": [{"name": MODEL, "price": PRICE}],
        "group": [{"name": "all"}],
        "channel": [channel(family, family, vendor.url, {MODEL: MODEL}) for family in ALL],
    }
    looping = {"user": "owner", "name": "looping", "group": "all", "secret": secret_of("looping")}
    made = joined(made, owners(["owner"], CREDIT), {"key": [looping]})
    made = launch(made, follow=False, shared=False)
    ids = {entry["name"]: entry["id"] for entry in json.loads(made.run("key", "list", "--json"))}
    made.run("key", "disable", ids["looping"])
    probe = {"Connection": "close", **credentials(secret=secret_of("looping"))}

    def disabled():
        # A model list makes no record.
        return exchange(made.port, "GET", "/v1/models", probe).status == 401

    assert wait_until(disabled)
    return made


def call(port, number, who):
    """The answer to a call of this user's key, of the families in turn."""
    family = ALL[number % len(ALL)]
    headers = credentials(family, secret_of(who))
    return exchange(port, "POST", path_of(family, MODEL), headers, ask(family, MODEL))


def loop(port, caller):
    """A client that does not understand."""
    for number in range(caller, REFUSED, CALLERS):
        check_refusal(call(port, number, "looping"), ALL[number % len(ALL)], "E04")


def pay(port, number):
    """A good call beside; its id."""
    answer = call(port, number, "owner")
    assert answer.status == 200, answer.body
    return answer.call_id


def test_a_disabled_key_in_a_loop_disturbs_nobody_and_fills_no_disk(gateway, wallets):
    with ThreadPoolExecutor(CALLERS) as loopers, ThreadPoolExecutor(4) as payers:
        looping = [loopers.submit(loop, gateway.port, caller) for caller in range(CALLERS)]
        paying = [payers.submit(pay, gateway.port, number) for number in range(PAID)]
        paid = {one.result() for one in paying}
        for one in looping:
            one.result()
    assert len(paid) == PAID
    # What was only counted is written when its minute is over, or when the process ends.
    assert gateway.stop() == 0
    records = gateway.usage()
    check_paid([record for record in records if record["key_name"] == "main"], paid, wallets)
    check_refused([record for record in records if record["key_name"] == "looping"])
    gateway.run("usage", "verify")
    gateway.run("books", "verify")


def check_paid(records, ids, wallets):
    """Each paid call has a record of its own, and the wallet has paid for nothing else."""
    assert {record["id"] for record in records} == ids and len(records) == len(ids)
    assert all(record["outcome"] == "ok" and check_charged(record) > 0 for record in records)
    wallets.check("owner", CREDIT, records)
    assert Decimal(wallets.balance("owner")) < Decimal(CREDIT)


def check_refused(records):
    """All refusals are told of, in so many records as are allowed in a minute and one more."""
    minutes = {record["started_at"][:16] for record in records}  # the loop may see one turn
    shared = [record for record in records if STANDS_FOR.search(record["error_message"])]
    single = [record for record in records if record not in shared]
    assert len(single) <= PER_MINUTE * len(minutes) and len(shared) <= len(minutes)
    counted = [int(STANDS_FOR.search(record["error_message"])[1]) for record in shared]
    assert len(single) + sum(counted) == REFUSED
    if len(minutes) == 1:
        assert (len(single), counted) == (PER_MINUTE, [REFUSED - PER_MINUTE])
        assert shared == [max(records, key=lambda record: record["id"])]
    for record in records:
        assert (record["outcome"], record["error_code"]) == ("refused", "api_key_disabled")
        check_free(record)
