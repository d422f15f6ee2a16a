"""The rest of the chat completions family: lists, heartbeats."""

import json
import pathlib

from adapters.chat_completions import FAMILY
from adapters.family import ModelEntry

WIRE = pathlib.Path(__file__).parents[2] / "wire" / "chat_completions"


def test_the_list_of_models_is_that_of_the_sample():
    models = [ModelEntry(name, 1795000000, None, None) for name in ("demo-large", "demo-small")]
    sample = json.loads((WIRE / "models.json").read_bytes())
    assert json.loads(FAMILY.client.model_list(models, {"limit": "1"})) == sample
    assert json.loads(FAMILY.client.model_entry(models[0])) == sample["data"][0]
    assert json.loads(FAMILY.client.model_list([], {})) == {"object": "list", "data": []}


def test_heartbeats_are_comments():
    assert FAMILY.client.keep_alive(True) == FAMILY.client.keep_alive(False) == b": keep-alive\n\n"
