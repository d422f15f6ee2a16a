"""Every field of the official SDKs' request types has a verdict, so that a new field is not
dropped without a decision."""

import pytest
from anthropic.types import beta, message_create_params
from anthropic.types.beta import message_create_params as beta_create_params
from google.genai import types as google
from openai.types import responses
from openai.types.chat import completion_create_params

from adapters.codecs import CODECS
from tools.docs import conversions

TYPES = {
    "chat_completions": [
        completion_create_params.CompletionCreateParamsNonStreaming,
        completion_create_params.CompletionCreateParamsStreaming,
    ],
    "responses": [
        responses.response_create_params.ResponseCreateParamsNonStreaming,
        responses.response_create_params.ResponseCreateParamsStreaming,
        responses.input_token_count_params.InputTokenCountParams,
        responses.response_compact_params.ResponseCompactParams,
    ],
    "messages": [
        message_create_params.MessageCreateParamsStreaming,
        beta_create_params.MessageCreateParamsStreaming,
        beta.MessageCountTokensParams,
    ],
}
# Options of the SDK itself, which it does not send.
OF_THE_SDK = {
    *("httpOptions", "automaticFunctionCalling", "shouldReturnHttpResponse"),
    "automaticContinuation",
}


@pytest.mark.parametrize("family", TYPES)
def test_every_field_of_the_sdk_has_a_verdict(family):
    known = CODECS[family].client.fields
    sent = {name for one in TYPES[family] for name in one.__required_keys__ | one.__optional_keys__}
    assert len(sent) > 15
    assert sent - set(known) == set()


def test_every_field_of_generate_content_has_a_verdict():
    known = {name.rpartition(".")[2] for name in CODECS["generate_content"].client.fields}
    sent = {
        field.alias or name
        for one in (google.GenerateContentConfig, google.GenerationConfig)
        for name, field in one.model_fields.items()
    }
    assert len(sent) > 30
    assert sent - known == OF_THE_SDK & sent


@pytest.mark.parametrize("family", CODECS)
def test_the_page_lists_every_field(family):
    page = conversions.page()
    section = page.split(f"### Fields of {conversions.TITLES[family]}\n")[1].split("\n#")[0]
    fields = CODECS[family].client.fields
    assert [line.split("`")[1] for line in section.splitlines() if "`" in line] == sorted(fields)
