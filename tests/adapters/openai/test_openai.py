"""Errors, lists of models and heartbeats of chat completions and of responses."""

import json
import pathlib

import pytest

from adapters.family import ModelEntry
from adapters.faults import Condition, Fault, wrong_type
from adapters.registry import FAMILIES

WIRE = pathlib.Path(__file__).parents[2] / "wire" / "chat_completions"
of_both = pytest.mark.parametrize(
    "client", [FAMILIES[name].client for name in ("chat_completions", "responses")]
)


def encode(client, fault):
    return client.encode_fault(fault, "01ABC")


@of_both
def test_a_body_to_the_letter(client):
    assert encode(client, wrong_type("messages[0].content", "expected a string")).body == (
        b'{"error":{"message":"Wrong type for \'messages[0].content\': expected a string.",'
        b'"type":"invalid_request_error","param":"messages[0].content","code":"invalid_type"}}'
    )


@of_both
def test_an_unknown_id_is_named(client):
    fault = Fault(Condition.ID_NOT_FOUND, param="previous_response_id", detail="resp_x")
    message = json.loads(encode(client, fault).body)["error"]["message"]
    assert message == "The id 'resp_x' is not known here."


@of_both
def test_the_list_of_models_is_that_of_the_sample(client):
    models = [ModelEntry(name, 1795000000, None, None) for name in ("demo-large", "demo-small")]
    sample = json.loads((WIRE / "models.json").read_bytes())
    assert json.loads(client.model_list(models, {"limit": "1"})) == sample
    assert json.loads(client.model_entry(models[0])) == sample["data"][0]
    assert json.loads(client.model_list([], {})) == {"object": "list", "data": []}


@of_both
def test_heartbeats_are_comments_with_one_line_end(client):
    assert client.keep_alive(True, None) == client.keep_alive(False, None) == b": keep-alive\n"


def test_a_heartbeat_of_responses_with_a_number_is_an_event():
    chat, responses = (FAMILIES[name].client for name in ("chat_completions", "responses"))
    data = b'{"type":"keepalive","sequence_number":7}'
    assert responses.keep_alive(True, 7) == b"event: keepalive\ndata: %b\n\n" % data
    assert responses.keep_alive(False, 7) == chat.keep_alive(True, 7) == b": keep-alive\n"
