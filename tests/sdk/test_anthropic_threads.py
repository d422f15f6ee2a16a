"""Threads of messages with the official SDK's tool runner, which requests one by itself: they are
stored where the channel supports them, otherwise the whole conversation is sent again."""

import contextlib
import json

import anthropic
import httpx2
import pytest
from anthropic import beta_tool

from tests.sdk.world import TIMEOUT_S, TLS, Wire

QUESTION = "Call get_weather for the harbour of"


@beta_tool
def get_weather(harbour: str) -> str:
    """The weather of a harbour.

    Args:
        harbour: Its name.
    """
    return f"Fog and 7 degrees, they say of {harbour}."


@pytest.fixture
def client_of(world):
    """Return a function that makes clients of a key, each with its wire."""
    with contextlib.ExitStack() as stack:

        def make(key):
            wire = Wire()
            http = stack.enter_context(httpx2.Client(transport=wire, verify=TLS))
            made = anthropic.Anthropic(
                api_key=world.keys[key],
                base_url=world.base_url,
                timeout=TIMEOUT_S,
                http_client=http,
            )
            return stack.enter_context(made), wire

        yield make


def run(client, name, *, stream=False):
    """Run a tool runner that calls the tool once; return its last answer."""
    runner = client.beta.messages.tool_runner(
        model="tea",
        max_tokens=300,
        tools=[get_weather],
        messages=[{"role": "user", "content": f"{QUESTION} {name}"}],
        stream=stream,
    )
    answers = [one.get_final_message() if stream else one for one in runner]
    assert [one.stop_reason for one in answers] == ["tool_use", "end_turn"]
    return answers[-1]


def asked(world, name, since):
    """Return the bodies that reached the vendor."""
    bodies = [json.loads(entry["body"]) for entry in world.upstream.log()[since:]]
    first = next(n for n, body in enumerate(bodies) if name in json.dumps(body))
    return bodies[first:]


@pytest.mark.parametrize("stream", [False, True])
def test_a_thread_goes_on_at_the_channel_that_keeps_it(world, client_of, stream):
    client, wire = client_of("main")
    name, since = f"Bergen-{stream}", len(world.upstream.log())
    run(client, name, stream=stream)
    assert [status for status, _ in wire.answers] == [200, 200]
    first, second = asked(world, name, since)
    assert first["thread"] == {"type": "create"}
    assert second["thread"]["type"] == "continue"
    assert len(second["messages"]) == 1 and "tools" not in second  # the vendor has the rest
    assert "Fog and 7 degrees" in json.dumps(second["messages"])


@pytest.mark.parametrize("stream", [False, True])
def test_where_no_channel_keeps_threads_the_whole_conversation_is_sent(world, client_of, stream):
    client, wire = client_of("abroad")
    name, since = f"Oslo-{stream}", len(world.upstream.log())
    run(client, name, stream=stream)
    assert [status for status, _ in wire.answers] == [400, 200, 200]
    first, second = asked(world, name, since)
    assert "thread" not in first and "thread" not in second
    assert [one["role"] for one in second["messages"]] == ["user", "assistant", "tool"]
    assert name in second["messages"][0]["content"]
    assert "Fog and 7 degrees" in json.dumps(second["messages"][-1])


def test_what_the_client_is_told(client_of):
    client, _ = client_of("abroad")
    ask = {"model": "tea", "max_tokens": 9, "messages": [{"role": "user", "content": "Hello."}]}
    with pytest.raises(anthropic.BadRequestError) as unsupported:
        client.beta.messages.create(**ask, thread={"type": "create"})
    assert isinstance(unsupported.value.details.error_code, str)
    assert unsupported.value.body["error"]["details"] == {
        "error_code": "thread_unsupported_request",
        "unsupported": ["model"],
    }
    client, _ = client_of("main")
    with pytest.raises(anthropic.NotFoundError) as unknown:
        client.beta.messages.create(
            **ask, thread={"type": "continue", "previous_message_id": "msg_of_nobody"}
        )
    assert unknown.value.body["error"]["details"] == {"error_code": "thread_not_found"}


def test_a_conversation_survives_a_vendor_that_has_lost_its_thread(world, client_of):
    """The vendor's own error reaches the SDK, which sends the whole conversation."""
    client, wire = client_of("main")
    thread = client.beta.messages.thread(
        model="tea", max_tokens=300, unsupported_request_behavior="continue_unthreaded"
    )
    thread.send({"role": "user", "content": "The first of Turku."})
    for number in range(120):  # more than the vendor stores
        ask = {"role": "user", "content": f"Another {number}."}
        client.beta.messages.create(
            model="tea", max_tokens=9, messages=[ask], thread={"type": "create"}
        )
    del wire.answers[:]
    since = len(world.upstream.log())
    thread.send({"role": "user", "content": "And the second of Turku?"})
    assert [status for status, _ in wire.answers] == [404, 200]
    lost, replayed = asked(world, "second of Turku", since)
    assert lost["thread"]["type"] == "continue" and replayed["thread"] == {"type": "create"}
    assert "The first of Turku." in json.dumps(replayed["messages"])
