"""The code of a request: curl, and the official SDKs of its family in Python and JavaScript."""

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from operations.chat import GENERATE_CONTENT
from operations.client_settings import SampleRequest

KEY_VARIABLE = "SLUICE_API_KEY"
CURL, PYTHON, JAVASCRIPT = "curl", "python", "javascript"
LANGUAGES = (CURL, PYTHON, JAVASCRIPT)
LINE_CHARS = 60
_GENERATION = "generationConfig"
_KEY_HEADERS = {"messages": "x-api-key: {}", GENERATE_CONTENT: "x-goog-api-key: {}"}
# Fields of bodies that are parameters of the SDKs' functions.
_KNOWN_BY_SDKS = frozenset(
    {
        *("model", "messages", "max_tokens", "max_completion_tokens", "temperature", "top_p"),
        *("system", "tools", "tool_choice", "thinking", "output_config", "stop_sequences", "stop"),
        *("reasoning_effort", "web_search_options", "input", "instructions", "reasoning", "store"),
        *("stream", "max_output_tokens", "seed", "n", "user", "metadata", "service_tier", "text"),
        *("response_format", "top_k", "include", "truncation", "verbosity", "stream_options"),
    }
)


class Sdk(NamedTuple):
    """An SDK in one language. `begin` contains @base for the base URL. `stream` and `whole`, which
    print the text of an answer, contain @arguments."""

    title: str
    begin: str
    stream: str
    whole: str


_OPENAI_PYTHON = """\
import os
from openai import OpenAI

client = OpenAI(
    base_url="@base/v1",
    api_key=os.environ["SLUICE_API_KEY"],
)
"""
_OPENAI_JAVASCRIPT = """\
import OpenAI from "openai";

const client = new OpenAI({
  baseURL: "@base/v1",
  apiKey: process.env.SLUICE_API_KEY,
});
"""
SDKS: Mapping[tuple[str, str], Sdk] = {
    ("chat_completions", PYTHON): Sdk(
        "OpenAI SDK",
        _OPENAI_PYTHON,
        """\
stream = client.chat.completions.create(@arguments)
for chunk in stream:
    for choice in chunk.choices:
        print(choice.delta.content or "", end="", flush=True)""",
        """\
answer = client.chat.completions.create(@arguments)
print(answer.choices[0].message.content)""",
    ),
    ("chat_completions", JAVASCRIPT): Sdk(
        "OpenAI SDK",
        _OPENAI_JAVASCRIPT,
        """\
const stream = await client.chat.completions.create(@arguments);
for await (const chunk of stream) {
  process.stdout.write(chunk.choices[0]?.delta?.content ?? "");
}""",
        """\
const answer = await client.chat.completions.create(@arguments);
console.log(answer.choices[0].message.content);""",
    ),
    ("responses", PYTHON): Sdk(
        "OpenAI SDK",
        _OPENAI_PYTHON,
        """\
stream = client.responses.create(@arguments)
for event in stream:
    if event.type == "response.output_text.delta":
        print(event.delta, end="", flush=True)""",
        """\
answer = client.responses.create(@arguments)
print(answer.output_text)""",
    ),
    ("responses", JAVASCRIPT): Sdk(
        "OpenAI SDK",
        _OPENAI_JAVASCRIPT,
        """\
const stream = await client.responses.create(@arguments);
for await (const event of stream) {
  if (event.type === "response.output_text.delta") process.stdout.write(event.delta);
}""",
        """\
const answer = await client.responses.create(@arguments);
console.log(answer.output_text);""",
    ),
    ("messages", PYTHON): Sdk(
        "Anthropic SDK",
        """\
import os
import anthropic

client = anthropic.Anthropic(
    base_url="@base",
    auth_token=os.environ["SLUICE_API_KEY"],
)
""",
        """\
with client.messages.stream(@arguments) as stream:
    for text in stream.text_stream:
        print(text, end="", flush=True)""",
        """\
answer = client.messages.create(@arguments)
for block in answer.content:
    print(getattr(block, "text", ""))""",
    ),
    ("messages", JAVASCRIPT): Sdk(
        "Anthropic SDK",
        """\
import Anthropic from "@anthropic-ai/sdk";

const client = new Anthropic({
  baseURL: "@base",
  authToken: process.env.SLUICE_API_KEY,
});
""",
        """\
const stream = client.messages.stream(@arguments);
stream.on("text", (text) => process.stdout.write(text));
await stream.finalMessage();""",
        """\
const answer = await client.messages.create(@arguments);
for (const block of answer.content) console.log(block.text ?? "");""",
    ),
    (GENERATE_CONTENT, PYTHON): Sdk(
        "Google GenAI SDK",
        """\
import os
from google import genai

client = genai.Client(
    api_key=os.environ["SLUICE_API_KEY"],
    http_options={"base_url": "@base"},
)
""",
        """\
stream = client.models.generate_content_stream(@arguments)
for chunk in stream:
    print(chunk.text or "", end="", flush=True)""",
        """\
answer = client.models.generate_content(@arguments)
print(answer.text)""",
    ),
    (GENERATE_CONTENT, JAVASCRIPT): Sdk(
        "Google GenAI SDK",
        """\
import { GoogleGenAI } from "@google/genai";

const client = new GoogleGenAI({
  apiKey: process.env.SLUICE_API_KEY,
  httpOptions: { baseUrl: "@base" },
});
""",
        """\
const stream = await client.models.generateContentStream(@arguments);
for await (const chunk of stream) {
  process.stdout.write(chunk.text ?? "");
}""",
        """\
const answer = await client.models.generateContent(@arguments);
console.log(answer.text);""",
    ),
}
"""The SDKs, by family and language."""


@dataclass(frozen=True, slots=True)
class CodeSample:
    """The code of a request. `title`: the SDK's, "" for curl."""

    language: str
    title: str
    text: str


def code_of(family: str, base_url: str, model: str, request: SampleRequest) -> list[CodeSample]:
    """Return the code of a request in LANGUAGES, with the key in KEY_VARIABLE."""
    samples = [CodeSample(CURL, "", _curl(family, base_url, request))]
    is_stream = "stream" in request.path or request.body.get("stream") is True
    for language in (PYTHON, JAVASCRIPT):
        sdk = SDKS[family, language]
        arguments = _arguments(family, language, model, request, is_stream=is_stream)
        call = (sdk.stream if is_stream else sdk.whole).replace("@arguments", arguments, 1)
        text = sdk.begin.replace("@base", base_url) + call
        samples.append(CodeSample(language, sdk.title, text))
    return samples


def _curl(family: str, base_url: str, request: SampleRequest) -> str:
    header = _KEY_HEADERS.get(family, "Authorization: Bearer {}").format(f"${KEY_VARIABLE}")
    lines = [f"curl -N {shlex.quote(base_url + request.path)}", f'-H "{header}"']
    lines += [f"-H {shlex.quote(f'{name}: {value}')}" for name, value in request.headers.items()]
    body = json.dumps(request.body, ensure_ascii=False, indent=2)
    lines += ["-H 'Content-Type: application/json'", f"-d {shlex.quote(body)}"]
    return " \\\n  ".join(lines)


def _arguments(
    family: str, language: str, model: str, request: SampleRequest, *, is_stream: bool
) -> str:
    """Return the arguments of the SDK's function: fields by name, or one object."""
    body: dict[str, Any] = dict(request.body)
    if family == GENERATE_CONTENT:
        config = dict(body.pop(_GENERATION, {}))
        contents = body.pop("contents", [])
        body = {"model": model, "contents": contents, "config": config | body}
    elif family == "messages" and is_stream:
        del body["stream"]
    if language == JAVASCRIPT:
        return literal(body, JAVASCRIPT)
    if family != GENERATE_CONTENT:
        further = {name: body.pop(name) for name in list(body) if name not in _KNOWN_BY_SDKS}
        body |= {"extra_body": further} if further else {}
    lines = [f"    {name}={literal(value, PYTHON, 4)},\n" for name, value in body.items()]
    return "\n" + "".join(lines)


_WORDS: Mapping[str, Mapping[object, str]] = {
    PYTHON: {True: "True", False: "False", None: "None"},
    JAVASCRIPT: {True: "true", False: "false", None: "null"},
}


def literal(value: Any, language: str, column: int = 0) -> str:
    """Return a JSON value as code, on one line if it is short. `column`: where it begins."""
    if value is None or isinstance(value, bool):
        return _WORDS[language][value]
    if not isinstance(value, (dict, list)):
        return json.dumps(value, ensure_ascii=False)
    step = 4 if language == PYTHON else 2
    inner = column + step
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    items = (
        [literal(item, language, inner) for item in value]
        if isinstance(value, list)
        else [
            f"{_name(name, language)}: {literal(item, language, inner)}"
            for name, item in value.items()
        ]
    )
    line = ", ".join(items)
    pad = " " if language == JAVASCRIPT and opening == "{" and items else ""
    if "\n" not in line and column + len(line) <= LINE_CHARS:
        return f"{opening}{pad}{line}{pad}{closing}"
    lines = "".join(f"{' ' * inner}{item},\n" for item in items)
    return f"{opening}\n{lines}{' ' * column}{closing}"


def _name(name: str, language: str) -> str:
    bare = language == JAVASCRIPT and name.isidentifier() and name.isascii()
    return name if bare else json.dumps(name, ensure_ascii=False)
