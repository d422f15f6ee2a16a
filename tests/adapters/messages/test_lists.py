"""Lists of models in the messages family."""

import json

import pytest

from adapters.family import ModelEntry
from adapters.faults import Condition, Fault
from adapters.messages import FAMILY

MODELS = [ModelEntry(f"m{i:02}", 1795000000 + i, 200_000, None) for i in range(50)]


def page(**query):
    found = json.loads(FAMILY.client.model_list(MODELS, query))
    names = [model["id"] for model in found["data"]]
    assert (found["first_id"], found["last_id"]) == (
        (names[0], names[-1]) if names else (None, None)
    )
    return names, found["has_more"]


def names(first, last):
    return [model.name for model in MODELS[first:last]]


def test_one_model():
    assert json.loads(FAMILY.client.model_entry(MODELS[3])) == {
        "type": "model",
        "id": "m03",
        "display_name": "m03",
        "created_at": "2026-11-18T11:06:43Z",
        "lifecycle": "active",
        "max_input_tokens": 200_000,
        "max_tokens": None,
    }


def test_pages():
    assert page() == (names(0, 20), True)
    assert page(limit="50") == (names(0, 50), False)
    assert page(limit="1000") == (names(0, 50), False)
    assert page(after_id="m19") == (names(20, 40), True)
    assert page(after_id="m39") == (names(40, 50), False)
    assert page(after_id="m49") == ([], False)
    assert page(after_id="gone") == ([], False)
    assert page(before_id="m10", limit="5") == (names(5, 10), True)
    assert page(before_id="m03", limit="5") == (names(0, 3), False)
    assert page(before_id="gone") == ([], False)


def test_going_through_all_pages_as_the_sdk_does():
    seen, more, query = [], True, {"limit": "7"}
    while more:
        found, more = page(**query)
        seen += found
        query["after_id"] = found[-1]
    assert seen == names(0, 50)


@pytest.mark.parametrize("limit", ["0", "1001", "-1", "x", "", "+5", "5_0", "٣", "9" * 50])
def test_a_limit_out_of_range(limit):
    with pytest.raises(Fault) as caught:
        page(limit=limit)
    assert (caught.value.condition, caught.value.param) == (Condition.INVALID_FIELD, "limit")


def test_heartbeats():
    assert FAMILY.client.keep_alive(False).startswith(b":")
    assert FAMILY.client.keep_alive(True) == b'event: ping\ndata: {"type": "ping"}\n\n'
