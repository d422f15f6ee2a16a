"""The demo vendor as an operator starts it, tested with the official SDKs and byte by byte."""

import functools
import json
import signal
import subprocess
import sys

import anthropic
import httpx2
import openai
import pytest
from google import genai
from google.genai import types

from tests.support.upstream import ROOT

PROMPT = "Is tea ready?"
TOOL = {"type": "object", "properties": {"port": {"type": "string"}}}


class DemoProcess:
    def __init__(self, *options):
        command = [sys.executable, "-m", "commands.process.demo", "--port=0", "--watch-stdin"]
        self.process = subprocess.Popen(
            [*command, *options],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.url = self.process.stdout.readline().strip()

    def close(self):
        self.process.stdin.close()
        assert self.process.wait(5) == 0
        assert self.process.stderr.read() == ""
        self.process.stdout.close()
        self.process.stderr.close()


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    return tmp_path_factory.mktemp("demo") / "log"


@pytest.fixture(scope="module")
def url(log):
    demo = DemoProcess(f"--log={log}")
    yield demo.url
    demo.close()


def post(url, path, body):
    return httpx2.post(url + path, json={"model": "m", **body}).json()


@pytest.fixture(scope="module")
def openai_client(url):
    with openai.OpenAI(api_key="demo", base_url=f"{url}/v1", max_retries=0) as client:
        yield client


def test_chat_completions(openai_client):
    messages = [{"role": "user", "content": PROMPT}]
    plain = openai_client.chat.completions.create(model="m", messages=messages)
    with openai_client.chat.completions.stream(
        model="m", messages=messages, stream_options={"include_usage": True}
    ) as stream:
        stream.until_done()
        streamed = stream.get_final_completion()
    for answer in (plain, streamed):
        assert PROMPT in answer.choices[0].message.content
        assert answer.choices[0].finish_reason == "stop"
    assert plain.usage == streamed.usage
    assert [model.id for model in openai_client.models.list()] == ["demo-large", "demo-small"]


def test_responses(openai_client):
    plain = openai_client.responses.create(model="m", input=PROMPT)
    with openai_client.responses.stream(model="m", input=PROMPT) as stream:
        stream.until_done()
        streamed = stream.get_final_response()
    assert PROMPT in plain.output_text == streamed.output_text
    assert (plain.status, plain.usage) == ("completed", streamed.usage)
    count = openai_client.responses.input_tokens.count(model="m", input=PROMPT)
    assert count.input_tokens == plain.usage.input_tokens


def test_messages(url):
    sent = {"model": "m", "max_tokens": 500, "messages": [{"role": "user", "content": PROMPT}]}
    with anthropic.Anthropic(api_key="demo", base_url=url, max_retries=0) as client:
        plain = client.messages.create(**sent)
        with client.messages.stream(**sent) as stream:
            streamed = stream.get_final_message()
        count = client.messages.count_tokens(model="m", messages=sent["messages"])
        assert [model.id for model in client.models.list()] == ["demo-large", "demo-small"]
    assert PROMPT in plain.content[0].text == streamed.content[0].text
    assert (plain.stop_reason, streamed.stop_reason) == ("end_turn", "end_turn")
    assert count.input_tokens == plain.usage.input_tokens == streamed.usage.input_tokens


def test_generate_content(url):
    with genai.Client(api_key="demo", http_options=types.HttpOptions(base_url=url)) as client:
        plain = client.models.generate_content(model="m", contents=PROMPT)
        chunks = list(client.models.generate_content_stream(model="m", contents=PROMPT))
        count = client.models.count_tokens(model="m", contents=PROMPT)
        models = [model.name for model in client.models.list()]
    assert PROMPT in plain.text == "".join(chunk.text or "" for chunk in chunks)
    assert chunks[-1].usage_metadata == plain.usage_metadata
    assert count.total_tokens == plain.usage_metadata.prompt_token_count
    assert models == ["models/demo-large", "models/demo-small"]


def test_a_stream_without_sse_is_a_json_array(url):
    path = "/v1beta/models/m:streamGenerateContent"
    chunks = post(url, path, {"contents": [{"parts": [{"text": PROMPT}]}]})
    texts = [chunk["candidates"][0]["content"]["parts"][0]["text"] for chunk in chunks]
    assert PROMPT in "".join(texts) and len(texts) > 3


SAYING = "Ask get_tide."
USER = {"messages": [{"role": "user", "content": SAYING}]}
FUNCTION = {"name": "get_tide", "parameters": TOOL}


@pytest.mark.parametrize(
    ("path", "body", "place"),
    [
        (
            "/v1/chat/completions",
            {**USER, "tools": [{"type": "function", "function": FUNCTION}]},
            ("choices", 0, "message", "tool_calls", 0, "function", "arguments"),
        ),
        (
            "/v1/responses",
            {"input": SAYING, "tools": [{"type": "function", **FUNCTION}]},
            ("output", 0, "arguments"),
        ),
        (
            "/v1/messages",
            {**USER, "tools": [{"name": "get_tide", "input_schema": TOOL}]},
            ("content", 0, "input"),
        ),
        (
            "/v1beta/models/m:generateContent",
            {
                "contents": [{"parts": [{"text": SAYING}]}],
                "tools": [{"function_declarations": [FUNCTION]}],
            },
            ("candidates", 0, "content", "parts", 0, "functionCall", "args"),
        ),
    ],
)
def test_a_tool_that_the_prompt_names_is_called(url, path, body, place):
    arguments = functools.reduce(lambda value, key: value[key], place, post(url, path, body))
    arguments = json.loads(arguments) if isinstance(arguments, str) else arguments
    assert arguments == {"port": "demo"}


@pytest.mark.parametrize(
    ("path", "content", "status"),
    [
        ("/v1/nothing", b"{}", 404),
        ("/v1/chat/completions", b"{", 400),
        ("/v1/responses", b"[]", 400),
        ("/v1/messages", b'{"messages":[{"role":"user","content":"x"}],"max_tokens":"9"}', 400),
        ("/v1beta/models/m:generateContent", b'{"contents":[{"parts":[{"text":5}]}]}', 400),
    ],
)
def test_what_makes_no_sense_is_refused(url, path, content, status):
    answer = httpx2.post(url + path, content=content)
    assert (answer.status_code, "error" in answer.json()) == (status, True)
    if status != 404:
        assert httpx2.put(url + path, content=content).status_code == 405


def test_the_log_has_a_line_for_each_request(url, log):
    before = len(log.read_text().splitlines()) if log.exists() else 0
    post(url, "/v1/chat/completions", USER)
    lines = log.read_text().splitlines()
    entry = json.loads(lines[-1])
    assert len(lines) == before + 1
    assert (entry["method"], entry["path"]) == ("POST", "/v1/chat/completions")
    assert json.loads(entry["body"])["messages"] == USER["messages"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_by_a_signal(number):
    demo = DemoProcess()
    demo.process.send_signal(number)
    assert demo.process.wait(5) == 0
    demo.close()


def test_a_port_that_is_taken_is_an_error(url):
    command = [sys.executable, "-m", "commands.process.demo"]
    port = f"--port={url.rpartition(':')[2]}"
    ended = subprocess.run([*command, port], check=False, cwd=ROOT, capture_output=True, text=True)
    assert (ended.returncode, "cannot listen on" in ended.stderr) == (1, True)
