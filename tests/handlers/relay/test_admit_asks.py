"""Calls that request more than text and functions."""

import json
from dataclasses import replace

import pytest

from adapters.registry import FAMILIES
from conf.settings import MoneySettings, Settings
from handlers.relay.running import LARGE_BYTES
from tests.handlers.relay.calls import KEY
from tests.handlers.relay.rig import Calling, channel_at
from tests.handlers.relay.upstream.scripts import JSON

CHAT, RESPONSES, MESSAGES, GENERATE = FAMILIES
BODY = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]}
FUNCTION = {"name": "tea", "input_schema": {"type": "object"}}
ADVISOR = {"type": "advisor_20260301", "name": "advisor", "model": "wise"}
SEARCH = {"type": "web_search_20250305", "name": "web_search"}


class Stored:
    """A store that records the answers which vendors keep."""

    def __init__(self):
        self.channels = []

    def note(self, user_id, place):
        self.channels.append(place.channel_id)


@pytest.fixture
def stored():
    return Stored()


@pytest.fixture
def relay(client, stored):
    relay = Calling(client, stored)
    relay.models.append("wise")
    return relay


def call(relay, fields, channel, job="generate", **head):
    family = FAMILIES[MESSAGES]
    operation = family.client.operations[job]
    return relay.call(BODY | fields, (channel,), family=family, operation=operation, **head)


async def a_message(peer, head, body):
    """Answer as an upstream of messages, or of counts."""
    usage = {"input_tokens": 5, "output_tokens": 2}
    content = [{"type": "text", "text": "Tea."}]
    answer = {"id": "m", "type": "message", "role": "assistant", "content": content}
    more = {"model": "up", "stop_reason": "end_turn", "usage": usage, "input_tokens": 5}
    await peer.answer(json.dumps(answer | more).encode(), headers=JSON)


@pytest.mark.parametrize("job", ["generate", "count"])
async def test_other_models_go_out_under_the_channels_names(relay, serve, job):
    upstream = await serve(a_message)
    models = {"m": "up", "wise": "up-wise"}
    channel = channel_at(upstream, family=MESSAGES, models=models)
    fields = {"tools": [FUNCTION, ADVISOR], "fallbacks": [{"model": "wise"}, {"model": "m"}]}
    _, record = await call(relay, fields, channel, job)
    assert record.outcome == "ok"
    [(_, sent)] = upstream.requests
    sent = json.loads(sent)
    assert (sent["model"], sent["tools"][1]["model"]) == ("up", "up-wise")
    assert [fallback["model"] for fallback in sent["fallbacks"]] == ["up-wise", "up"]


async def test_a_model_that_the_channel_does_not_have_keeps_its_name(relay, serve):
    upstream = await serve(a_message)
    _, record = await call(relay, {"tools": [ADVISOR]}, channel_at(upstream, family=MESSAGES))
    assert record.outcome == "ok"
    assert json.loads(upstream.requests[0][1])["tools"][0]["model"] == "wise"


@pytest.mark.parametrize(
    ("fields", "models", "path"),
    [
        ({"tools": [FUNCTION, ADVISOR | {"model": "nobody"}]}, None, "tools.1.model"),
        ({"tools": [ADVISOR]}, {"m"}, "tools.0.model"),
        ({"fallbacks": [{"model": "m"}, {"model": "wise"}]}, {"m"}, "fallbacks.1.model"),
        ({"fallbacks": [{"model": "up"}]}, None, "fallbacks.0.model"),
    ],
)
@pytest.mark.parametrize("job", ["generate", "count"])
async def test_a_model_that_the_key_may_not_use(relay, serve, fields, models, path, job):
    upstream = await serve(a_message)
    key = replace(KEY, models=None if models is None else frozenset(models))
    channel = channel_at(upstream, family=MESSAGES)
    [(_, status, _, body)], record = await call(relay, fields, channel, job, key=key)
    assert (status, record.error_code) == (404, "model_not_found")
    assert json.loads(body)["error"]["message"].startswith(f"{path}: ")
    assert upstream.requests == []


def without(relay, *features):
    relay.group = replace(relay.group, features=relay.group.features - {*features})


INLINE = {
    RESPONSES: lambda tool: {
        "input": [{"type": "additional_tools", "tools": [{"type": "function", "name": "x"}, tool]}],
    },
    MESSAGES: lambda tool: {
        "max_tokens": 9,
        "messages": [{"role": "user", "content": [
            {"type": "tool_addition", "tool": {"type": "tool_definition", "definition": tool}},
        ]}],
    },
}  # fmt: skip
PLACES = {RESPONSES: "input[0].tools[1]", MESSAGES: "tool.definition"}


@pytest.mark.parametrize(
    ("family", "tool", "models", "features", "code"),
    [
        *((family, {"type": kind}, None, ["web_search"], "feature_not_allowed")
          for family in INLINE for kind in ("web_search", "web_search_2026")),
        *((family, {"type": 7}, None, ["any_other_tool"], "feature_not_allowed")
          for family in INLINE),
        (MESSAGES, ADVISOR, {"m"}, [], "unsupported_parameter"),
        *((family, {"type": "web_search"}, models, [], None)
          for family in INLINE for models in (None, {"m"})),
        *((family, {"type": "mcp"}, None, ["web_search"], None) for family in INLINE),
        *((family, {"type": "shell"}, None, ["code_execution"], None) for family in INLINE),
        (MESSAGES, ADVISOR, None, [], None),
    ],
)  # fmt: skip
@pytest.mark.parametrize("large", [False, True])
async def test_tools_that_a_conversation_adds(
    relay, serve, family, tool, models, features, code, large
):
    without(relay, *features)
    upstream = await serve(a_response if family == RESPONSES else a_message)
    spoken = FAMILIES[family]
    body = {"model": "m"} | INLINE[family](tool)
    if large:
        body["metadata"] = {"filling": "x" * LARGE_BYTES}
    key = replace(KEY, models=None if models is None else frozenset(models))
    sent, record = await relay.call(
        body, (channel_at(upstream, family=family),), key=key,
        family=spoken, operation=spoken.client.operations["generate"],
    )  # fmt: skip
    assert record.error_code == code
    assert len(upstream.requests) == (code is None)
    assert code is None or PLACES[family].encode() in sent[0][3]


async def a_completion(peer, head, body):
    choices = [{"index": 0, "message": {"content": "Tea."}, "finish_reason": "stop"}]
    answer = {"id": "c", "model": "up", "choices": choices}
    await peer.answer(json.dumps(answer).encode(), headers=JSON)


FETCH = {"type": "web_fetch_20250910", "name": "web_fetch"}


@pytest.mark.parametrize("search", [True, False])
@pytest.mark.parametrize(
    ("tools", "dropped"),
    [([FUNCTION, SEARCH], "tools[1]"), ([FETCH, SEARCH, FUNCTION], "tools[0], tools[1]")],
)
async def test_what_a_group_may_not_use_is_left_out_of_a_translated_call(
    relay, serve, search, tools, dropped
):
    without(relay, "web_search", "web_fetch")
    upstream = await serve(a_completion)
    losses = dict.fromkeys(FAMILIES, 1)
    channel = channel_at(upstream, family=CHAT, losses=losses, options={"search": search})
    [(_, _, headers, _)], record = await call(relay, {"tools": tools}, channel)
    assert (record.outcome, dict(headers)["x-sluice-dropped"]) == ("ok", dropped)
    sent = json.loads(upstream.requests[0][1])
    assert [tool["function"]["name"] for tool in sent["tools"]] == ["tea"]
    assert "web_search_options" not in sent


@pytest.mark.parametrize("choice", ["auto", "any"])
async def test_nothing_but_tools_that_are_left_out(relay, serve, choice):
    without(relay, "web_search")
    upstream = await serve(a_completion)
    channel = channel_at(upstream, family=CHAT, losses=dict.fromkeys(FAMILIES, 1))
    fields = {"tools": [SEARCH], "tool_choice": {"type": choice}}
    _, record = await call(relay, fields, channel)
    if choice == "any":
        assert record.error_code == "feature_not_allowed" and not upstream.requests
    else:
        sent = json.loads(upstream.requests[0][1])
        assert record.outcome == "ok" and not sent.keys() & {"tools", "tool_choice"}


async def a_response(peer, head, body):
    output = b'[{"type":"message","content":[{"type":"output_text","text":"Tea."}]}]'
    answer = b'{"id":"resp_1","output":%b,"status":"completed"}' % output
    await peer.answer(answer, headers=JSON)


@pytest.mark.parametrize("allowed", [True, False])
async def test_without_the_feature_the_vendor_is_told_not_to_store(relay, serve, stored, allowed):
    if not allowed:
        without(relay, "stored")
    upstream = await serve(a_response)
    channel = channel_at(upstream, family=RESPONSES)
    family = FAMILIES[RESPONSES]
    operation = family.client.operations["generate"]
    body = {"model": "m", "input": "Hi"}
    _, record = await relay.call(body, (channel,), family=family, operation=operation)
    assert record.outcome == "ok"
    assert json.loads(upstream.requests[0][1]).get("store") is (None if allowed else False)
    assert stored.channels == ["id-main"] * allowed


@pytest.mark.parametrize(("policy", "fields", "refused"), [
    ("refuse_dearer", {"speed": "fast"}, True),
    ("refuse", {"speed": "fast"}, True),
    ("serve", {"speed": "fast"}, False),
    ("refuse_dearer", {"tools": [SEARCH]}, False),
    ("refuse", {"tools": [SEARCH]}, True),
    ("serve", {"tools": [SEARCH]}, False),
])  # fmt: skip
async def test_what_has_no_price_reaches_no_vendor(client, serve, policy, fields, refused):
    upstream = await serve(a_message)
    relay = Calling(client, settings=Settings(money=MoneySettings(unpriced=policy)))
    _, record = await call(relay, fields, channel_at(upstream, family=MESSAGES))
    expected = (403, "feature_unpriced", "refused") if refused else (200, None, "ok")
    assert (record.status, record.error_code, record.outcome) == expected
    assert bool(upstream.requests) is not refused
