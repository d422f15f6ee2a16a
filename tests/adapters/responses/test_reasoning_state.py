"""Encrypted reasoning as one text, and its removal from bodies of other makers."""

import json

import pytest

from adapters.codecs import CODECS as CODECS_BY_FAMILY
from adapters.family.opaque import Origin, wrap
from adapters.ir.answer import Choice, Closed, Delta, Opened
from adapters.ir.parts import Reasoning
from adapters.json.jsonio import dumps, top_level
from adapters.json.structure import at_once
from adapters.responses.reasoning_state import seal, unseal, without_reasoning
from tests.adapters.responses.calls import CONTEXT, USAGE, frames, written

CODECS = CODECS_BY_FAMILY["responses"]


def test_round_trip():
    item = {"type": "reasoning", "id": "rs_1", "encrypted_content": "é/+="}
    assert unseal(seal(item), "") == {**item, "summary": []}
    assert seal(item).isascii()
    del item["id"]
    summary = [{"type": "summary_text", "text": "Hm."}]
    assert unseal(seal(item), "Hm.") == {**item, "summary": summary}


def test_nothing_encrypted():
    assert seal({}) == seal({"encrypted_content": 1}) == seal({"encrypted_content": ""}) == ""
    assert unseal("", "x") is None


WRAPPED = wrap("state", Origin("messages", "mark", b"secret", "user"))


def body(*items, model="m", **fields):
    return dumps({"model": model, "input": list(items), **fields})


def without(sent, model="m"):
    return CODECS.client.without_foreign(top_level(sent), model)


def thought(sealed):
    return {"type": "reasoning", "summary": [], "encrypted_content": sealed}


USER = {"role": "user", "content": f"What is {WRAPPED}?"}


def test_only_foreign_thoughts_go():
    kept = [USER, thought("gw1.demo.b3Bh=="), {**thought(WRAPPED), "type": "other"}, thought(1)]
    sent = body(kept[0], thought(WRAPPED), *kept[1:], store=False)
    assert json.loads(without(sent)) == json.loads(body(*kept, store=False))


def test_thoughts_of_translated_answers_go_also_without_state():
    answered = at_once(CODECS.client.encode_answer((Choice((Reasoning("Hm."),)),), USAGE, CONTEXT))
    (ours,) = json.loads(answered)["output"]
    (streamed,) = frames(written([Opened(0, "reasoning"), Delta(0, "Hm."), Closed(0)]))[-1][
        "response"
    ]["output"]
    assert streamed == ours
    refers = {"type": "item_reference", "id": ours["id"]}
    other = {"type": "item_reference", "id": "msg_gw1.x"}
    sent = body(USER, ours, refers, other, {**ours, "id": "rs_1"})
    assert json.loads(without(sent))["input"] == [USER, other, {**ours, "id": "rs_1"}]
    assert CODECS.client.foreign_mark in sent


@pytest.mark.parametrize("sent", [body(USER), b'{"model":"m", "input" : "gw1."}', b'{"model":"m"}'])
def test_any_other_body_is_the_same(sent):
    assert without(sent) == sent


def test_the_model_has_the_upstreams_name():
    assert json.loads(without(body(USER, thought(WRAPPED)), "up")) == {
        "model": "up",
        "input": [USER],
    }


def test_a_second_try_has_no_reasoning_at_all():
    sent = body(USER, thought("of the vendor"), thought(WRAPPED), {"type": "x", "of": "reasoning"})
    left = without_reasoning(top_level(sent), "up")
    assert json.loads(left)["input"] == [USER, {"type": "x", "of": "reasoning"}]
    assert json.loads(left)["model"] == "m"
    for sent in (body(USER), b'{"model":"m","input":"x"}'):
        assert without_reasoning(top_level(sent), "up") == sent
