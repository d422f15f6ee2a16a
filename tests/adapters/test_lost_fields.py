"""Fields without which the answer would not be what its client expects: no upstream of another
family is asked, and the refusal names the field."""

import json

import pytest

from adapters.codecs import CODECS, TRANSLATORS
from adapters.family.traits import Traits
from adapters.faults import Condition
from adapters.json.jsonio import top_level
from adapters.json.structure import at_once

TURN = {"role": "user", "content": "x"}
ASSISTANT = {"role": "assistant", "content": "{"}
BODIES = {
    "chat_completions": {"model": "m", "messages": [TURN]},
    "responses": {"model": "m", "input": "x"},
    "messages": {"model": "m", "max_tokens": 9, "messages": [TURN]},
    "generate_content": {"contents": [{"role": "user", "parts": [{"text": "x"}]}]},
}
BLOCKING = [{"category": "HARM_CATEGORY_HARASSMENT", "threshold": "BLOCK_LOW_AND_ABOVE"}]
LOST = [
    ("chat_completions", {"moderation": {"policy": {}}}, "moderation"),
    ("responses", {"moderation": {"policy": {}}}, "moderation"),
    ("responses", {"access_programs": {"bio": True}}, "access_programs"),
    ("messages", {"inference_geo": "eu"}, "inference_geo"),
    ("messages", {"billing_policy": {"bill_to": "user_profile"}}, "billing_policy"),
    ("messages", {"compaction": {"type": "auto"}}, "compaction"),
    ("messages", {"thread": {"type": "create"}}, "thread"),
    ("generate_content", {"safetySettings": BLOCKING}, "safetySettings"),
    ("generate_content", {"modelArmorConfig": {"a": "b"}}, "modelArmorConfig"),
    (
        "generate_content",
        {"generationConfig": {"audioTranscriptionConfig": {"a": 1}}},
        "generationConfig.audioTranscriptionConfig",
    ),
]
KEPT = [
    ("messages", {"messages": [TURN, ASSISTANT]}),
    (
        "chat_completions",
        {"logit_bias": {"50256": -100}, "seed": 1, "prediction": {"content": "x"}},
    ),
    ("messages", {"fallbacks": "default", "diagnostics": {"previous_message_id": None}}),
    ("generate_content", {"safetySettings": [{"threshold": "BLOCK_NONE"}]}),
    ("generate_content", {"generationConfig": {"audioTimestamp": False, "temperature": 0}}),
]


def refusals(client, fields):
    """Return the refusal of each upstream of another family."""
    body = json.dumps(BODIES[client] | fields).encode()
    request = at_once(CODECS[client].client.decode_request(top_level(body), False, "m"))
    pairs = [pair for pair in TRANSLATORS if pair[0] == client and pair[1] != client]
    return [TRANSLATORS[pair].refusal(request, Traits()) for pair in pairs]


@pytest.mark.parametrize(("client", "fields", "named"), LOST)
def test_what_would_be_missed_is_refused(client, fields, named):
    found = refusals(client, fields)
    assert len(found) == 3
    for fault in found:
        assert fault is not None
        assert (fault.condition, fault.param) == (Condition.UNSUPPORTED, named)


@pytest.mark.parametrize(("client", "fields"), KEPT)
def test_what_changes_no_answer_is_not(client, fields):
    assert refusals(client, fields) == [None] * 3
