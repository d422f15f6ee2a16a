"""Credentials of any shape are taken out of a line; other text stays as it is."""

import json

import pytest

from commands.process.logs import redact

SECRETS = {
    "a key": "sk-slc-7hQm2ZbT4yWc9KxRfP8vN3sJ6dLg5aEu",
    "a token": "slt-7hQm2ZbT4yWc9KxRfP8vN3sJ",
    "openai": "sk-proj-AbCdEf0123456789_-AbCdEf",
    "anthropic": "sk-ant-api03-AbCdEf0123456789",
    "google": "AIzaSyA0123456789abcdefghijklmnopqrstu",
    "groq": "gsk_AbCdEf0123456789",
    "xai": "xai-AbCdEf0123456789",
    "hugging face": "hf_AbCdEf0123456789",
    "jwt": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl",
    "aws": "AKIAIOSFODNN7EXAMPLE",
    "no known shape": "hunter2-of-the-database",
}
AROUND = [
    "Authorization: Bearer {}",
    "authorization=bearer {}",
    '{{"authorization": "Bearer {}"}}',
    "{{'x-api-key': '{}'}}",
    "{{b'x-goog-api-key': b'{}'}}",
    '"x-api-key": "{}"',
    "X-Api-Key: {}",
    "x-api-key={}",
    "GET /v1beta/models?alt=sse&key={}&x=1",
    "mysql://root:{}@db.internal:3306/sluice",
    "http://{}@proxy:3128",
    "password='{}'",
    "Cookie: sluice_session={}",
    "token={} and more",
]


@pytest.mark.parametrize("around", AROUND)
@pytest.mark.parametrize("secret", SECRETS.values(), ids=SECRETS)
def test_in_its_place(secret, around):
    text = around.format(secret)
    cleaned = redact(text)
    assert secret not in cleaned and "***" in cleaned
    assert secret.rpartition("-")[2] not in cleaned
    if text.startswith('{"'):
        json.loads(cleaned)


@pytest.mark.parametrize("secret", [v for k, v in SECRETS.items() if k != "no known shape"])
@pytest.mark.parametrize("around", ["{}", "key {} refused", "a\n{}\nb", '"{}"', "({})", "m={},"])
def test_by_its_shape(secret, around):
    cleaned = redact(around.format(secret))
    assert cleaned == around.format("***")


@pytest.mark.parametrize(
    "text",
    [
        "circuit opened for 5 s: channel=openai-main model=gpt-4.1 upstream_key=1 cause=timing_out",
        "worker died slot=1 worker=4711 signal=SIGKILL next_in_s=0.5",
        "the store is unavailable: db.internal:3306/sluice: Connection refused (111)",
        "journal 01M86YB556B177VXMX4CM7QDN3: a batch cannot be booked as it is",
        "https://api.openai.com/v1/chat/completions",
        "input_tokens=12 output_tokens=30 tokens=42 max_tokens: 5",
        "reload: setting takes effect after a restart setting=server.port",
        "user=alice key_id=01M86YB3M58HP4PA2XTG33X5GG mask-of-a-task desk-job",
    ],
)
def test_other_text_stays(text):
    assert redact(text) == text


def test_the_user_of_an_address_goes_with_its_password():
    assert redact("x mysql://root:pw@db:3306/s y") == "x mysql://***@db:3306/s y"
    assert redact("Basic dXNlcjpwYXNz") == "Basic ***"
