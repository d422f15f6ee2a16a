"""Two users who share upstream accounts, and what each can see of the other's stored responses."""

import contextlib

from tests.support.client import Connection, data_of, exchange
from tests.support.dialects import RESPONSES, ask, check_refusal, credentials
from tests.support.documents import CREDIT

PATH = "/v1/responses"
MODEL = "kept"
SECRETS = {"owner": "sk-test-of-the-owner-0123456789", "other": "sk-test-of-another-0123456789ab"}
TRIES = 6  # separate connections: both workers are asked
SLOW = "[[demo ms=30 chunks=2000]]"


def content(channels):
    """Return a document of these channels, whose models cost nothing, so no call waits for the
    store."""
    models = {model for one in channels for model in one["models"]}
    return {
        "model": [{"name": name, "price": {"input": "0", "output": "0"}} for name in models],
        "group": [{"name": "all"}],
        "channel": channels,
        "user": [{"name": name, "balance": CREDIT} for name in SECRETS],
        "key": [
            {"user": name, "name": "main", "group": "all", "secret": secret}
            for name, secret in SECRETS.items()
        ],
    }


def call(gateway, method, path, body=None, user="owner"):
    return exchange(gateway.port, method, path, credentials(RESPONSES, SECRETS[user]), body)


@contextlib.contextmanager
def begun(gateway, user="owner"):
    """Yield the id of a streamed answer that has just started and goes on."""
    with Connection(gateway.port) as connection:
        body = ask(RESPONSES, MODEL, SLOW, stream=True)
        connection.request("POST", PATH, credentials(RESPONSES, SECRETS[user]), body)
        connection.read_head()
        yield data_of(connection.read_chunk())["response"]["id"]


def requests_for(name):
    """Return every kind of request that names a stored response."""
    continued = {"model": MODEL, "input": "And?", "previous_response_id": name}
    return [
        ("GET", f"{PATH}/{name}", None),
        ("GET", f"{PATH}/{name}/input_items", None),
        ("POST", PATH, continued),
        ("POST", PATH, {**continued, "stream": True}),
        ("POST", f"{PATH}/input_tokens", continued),
        ("POST", f"{PATH}/compact", continued),
        ("POST", f"{PATH}/{name}/cancel", None),
        ("DELETE", f"{PATH}/{name}", None),
    ]


def check_hidden(gateway, vendor, name, user="other", times=2):
    """Check that all requests of the other user for it are refused here, like those for an unknown
    id."""
    vendor.reset()
    for method, path, body in requests_for(name):
        for _ in range(times):
            check_refusal(call(gateway, method, path, body, user), RESPONSES, "E35")
    assert [one for one in vendor.log() if SLOW not in one["body"]] == []


def check_shown(gateway, name, user="owner"):
    """Check that its user can read and continue it, whichever worker is asked."""
    for _ in range(TRIES):
        assert call(gateway, "GET", f"{PATH}/{name}", user=user).status == 200
        body = {"model": MODEL, "input": "And?", "previous_response_id": name}
        assert call(gateway, "POST", PATH, body, user).status == 200


def check_reaches(gateway, vendor, name, user="owner"):
    """Check that its user's request reaches the vendor, although the answer may still be in
    progress."""
    for _ in range(TRIES):
        vendor.reset()
        call(gateway, "GET", f"{PATH}/{name}", user=user)
        assert f"{PATH}/{name}" in [one["path"] for one in vendor.log()]
