"""What pages say of keys, without a store."""

import pytest

from handlers.hub.keys import client_of


@pytest.mark.parametrize(
    ("agent", "client"),
    [
        ("claude-cli/2.1.197 (external, cli)", "claude-cli 2.1.197"),
        ("OpenAI/Python 3.54.0", "OpenAI Python 3.54.0"),
        ("google-genai-sdk/3.4.0 gl-python/3.11", "google-genai-sdk 3.4.0"),
        ("curl/8.14.1", "curl 8.14.1"),
        ("sluice-hub-test", "sluice-hub-test"),
        ("A client of nobody", "A"),
        ("x" * 500, "x" * 60),
        ("", ""),
        (None, ""),
    ],
)
def test_the_client_of_a_call(agent, client):
    assert client_of(agent) == client
