"""A call of a doubled path: no usage record, but its key's owner can see it."""

import json
import time

import pytest

from store.catalog import wrong_paths
from store.db.database import discard, open_database
from tests.support.dialects import SECRET
from tests.support.documents import channel, document

DOUBLED = "/v1/messages/v1/messages"
VISIBLE_S = 5
HEADERS = {"x-api-key": SECRET, "User-Agent": "anthropic-python 2.11.0"}


@pytest.fixture(scope="module")
def gateway(launch, vendor):
    channels = [channel("main", "messages", vendor.url, {"m": "demo-small"})]
    return launch(document(["m"], channels), shared=False)


def noticed(gateway, wanted):
    """What the owner sees, as soon as there are so many calls."""
    [key] = json.loads(gateway.run("key", "list", "--json"))
    db = open_database(f"sqlite:///{gateway.folder}/sluice.db")
    try:
        deadline = time.monotonic() + VISIBLE_S
        while True:
            found = wrong_paths.of_keys(db, [key["id"]], 0)
            if sum(one.calls for one in found) >= wanted or time.monotonic() > deadline:
                return found
            time.sleep(0.05)
    finally:
        discard(db)


def test_its_owner_sees_it_within_seconds(gateway):
    for _ in range(3):
        assert gateway.call("POST", DOUBLED, {"model": "m"}, HEADERS)[0] == 404
    assert gateway.call("POST", DOUBLED, {}, {"x-api-key": "sk-of-nobody-0123456789"})[0] == 404
    [one] = noticed(gateway, 3)
    assert (one.method, one.path, one.calls) == ("POST", DOUBLED, 3)
    assert (one.address, one.agent) == ("127.0.0.1", "anthropic-python 2.11.0")
    assert gateway.usage() == []
