"""What is composed from a script; how it travels is in test_perform."""

import pytest

from demo.family import ModelRequest, Route
from tests.vendor.chat_completions import ChatCompletions
from tests.vendor.compose import Composer, Ending
from tests.vendor.directives import Script
from tests.vendor.family import Refusal
from tests.vendor.messages import Messages

SSE = b'data: {"a":1}\n\n: note\n\ndata: {"b":"x"}\r\n\r\ndata: [DONE]\n\ndata: tail'


CHAT, MESSAGES = ChatCompletions(), Messages()


def compose(script, samples=None, family=CHAT, stream=True):
    ask = ModelRequest("m", "hi", 5, stream=stream)
    composer = Composer(family, Route("generate", "POST"), ask, script, samples, "req_1")
    return composer.compose()


@pytest.fixture
def samples(tmp_path):
    for family in ("chat_completions", "messages"):
        (tmp_path / family).mkdir()
        (tmp_path / family / "text.sse").write_bytes(SSE)
        (tmp_path / family / "text.json").write_bytes(b'{"plain": true}\n')
        (tmp_path / family / "error_429_quota.json").write_bytes(b'{"error": {}}')
    (tmp_path / "secret.json").write_bytes(b"{}")
    return tmp_path


@pytest.mark.parametrize("family", [CHAT, MESSAGES])
def test_a_sample_is_served_byte_for_byte_and_event_by_event(samples, family):
    answer = compose(Script(sample="text"), samples, family)
    steps = list(answer.steps)
    assert b"".join(steps) == SSE
    assert len(steps) == 5
    assert (answer.status, answer.streaming, answer.length) == (200, True, None)


def test_a_sample_of_a_plain_answer_and_of_an_error(samples):
    answer = compose(Script(sample="text"), samples, stream=False)
    assert list(answer.steps) == [b'{"plain": true}\n']
    answer = compose(Script(sample="error_429_quota"), samples)
    assert (answer.status, list(answer.steps)) == (429, [b'{"error": {}}'])
    assert compose(Script(sample="text.json"), samples).content_type == "application/json"


def test_faults_apply_to_samples(samples):
    steps = list(compose(Script(sample="text", cut=2), samples).steps)
    assert steps[2:] == [Ending.CUT]
    assert b"".join(steps[:2]) == b'data: {"a":1}\n\n: note\n\n'


@pytest.mark.parametrize("name", ["none", "../secret", "/etc/passwd", "Text", ""])
def test_a_sample_that_is_not_there(samples, name):
    with pytest.raises(Refusal):
        compose(Script(sample=name + "x" * (not name) + ".json"), samples)


def test_a_sample_without_a_directory():
    with pytest.raises(Refusal):
        compose(Script(sample="text"))
