"""Lists of models in the generate-content family."""

import json

import pytest

from adapters.family import ModelEntry
from adapters.faults import Condition, Fault
from adapters.generate_content import FAMILY

MODELS = [ModelEntry(f"v/m{i:04}:8b", 1795000000 + i, 200_000, None) for i in range(1200)]


def page(**query):
    found = json.loads(FAMILY.client.model_list(MODELS, query))
    return [model["name"] for model in found["models"]], found.get("nextPageToken", "")


def names(first, last):
    return [f"models/{model.name}" for model in MODELS[first:last]]


def test_one_model():
    assert json.loads(FAMILY.client.model_entry(MODELS[3])) == {
        "name": "models/v/m0003:8b",
        "displayName": "v/m0003:8b",
        "inputTokenLimit": 200_000,
        "supportedGenerationMethods": ["generateContent", "countTokens"],
    }
    known = json.loads(FAMILY.client.model_entry(ModelEntry("m", 1, None, 32_000)))
    assert "inputTokenLimit" not in known and known["outputTokenLimit"] == 32_000


def test_pages():
    assert page() == (names(0, 50), MODELS[49].name)
    assert page(pageSize="0") == page(pageSize="") == page(pageToken="") == page()
    assert page(pageSize="999999999") == (names(0, 1000), MODELS[999].name)
    assert page(pageToken=MODELS[999].name, pageSize="1000") == (names(1000, 1200), "")
    assert page(pageToken=MODELS[1199].name) == ([], "")
    assert json.loads(FAMILY.client.model_list([], {})) == {"models": []}


def test_going_through_all_pages_as_the_sdk_does():
    seen, token = page(pageSize="7")
    while token:
        found, token = page(pageSize="7", pageToken=token)
        seen += found
    assert seen == names(0, 1200)


@pytest.mark.parametrize("size", ["-1", "x", "+5", "5_0", "٣", "9" * 10, "1.5"])
def test_a_page_size_that_is_no_number(size):
    with pytest.raises(Fault) as caught:
        page(pageSize=size)
    assert (caught.value.condition, caught.value.param) == (Condition.INVALID_FIELD, "pageSize")


def test_a_token_that_is_gone():
    with pytest.raises(Fault) as caught:
        page(pageToken="gone")
    assert (caught.value.condition, caught.value.param) == (Condition.INVALID_FIELD, "pageToken")
