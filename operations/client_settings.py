"""What to put into a client program so that it talks to this gateway.

The rule: clients of the OpenAI families are given the address with /v1; those of messages and of
generate-content the bare address, for they append version and path themselves. The full path is
for curl alone.
"""

import json
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from urllib.parse import quote, urlencode

from conf.settings import ANY_ADDRESS, HubSettings, ServerSettings

MESSAGES_VERSION = "2023-06-01"
PROMPT = "Say hello."
NO_MODEL = "MODEL"  # stands where a name has to, to be replaced by the reader
CODEX_KEY = "SLUICE_API_KEY"
CODEX_FILE = "~/.codex/config.toml"
GEMINI_FILE = "~/.gemini/settings.json"
CLAUDE_MODELS = (
    "ANTHROPIC_MODEL",
    # what its names for large, usual and small models mean; it asks the small one by itself
    "ANTHROPIC_DEFAULT_OPUS_MODEL",
    "ANTHROPIC_DEFAULT_SONNET_MODEL",
    "ANTHROPIC_DEFAULT_HAIKU_MODEL",
)


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """Variables for the shell, and what belongs elsewhere: title -> text."""

    environment: Mapping[str, str] = field(default_factory=dict)
    parts: Mapping[str, str] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """All of it, for people: the variables, then each part below its title."""
        found = ["\n".join(f"export {n}={shlex.quote(v)}" for n, v in self.environment.items())]
        found += [f"# {title}\n{text}" for title, text in self.parts.items()]
        return "\n\n".join(filter(None, found))


def base_url(server: ServerSettings, kept: str = "") -> str:
    """The gateway's address as clients see it: of the file, else `kept` in the store, else where it
    listens."""
    if server.public_url or kept:
        return server.public_url or kept
    return _listening(server.host, server.port)


def hub_url(hub: HubSettings) -> str:
    """The Hub's address as browsers see it, without a path."""
    return hub.public_url.rstrip("/") or _listening(hub.host, hub.port)


def _listening(host: str, port: int) -> str:
    host = "127.0.0.1" if host in ANY_ADDRESS else host
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def chat_curl(base: str, key: str, model: str) -> str:
    """A streamed chat completion, ready to be pasted."""
    body = {"model": model, "stream": True, "messages": [{"role": "user", "content": PROMPT}]}
    return _curl(base + "/v1/chat/completions", _bearer(key), body)


def responses_curl(base: str, key: str, model: str) -> str:
    """A streamed response, ready to be pasted."""
    return _curl(
        base + "/v1/responses", _bearer(key), {"model": model, "stream": True, "input": PROMPT}
    )


def messages_curl(base: str, key: str, model: str) -> str:
    """A streamed message, ready to be pasted."""
    body = {
        "model": model,
        "max_tokens": 100,
        "stream": True,
        "messages": [{"role": "user", "content": PROMPT}],
    }
    headers = {"x-api-key": key, "anthropic-version": MESSAGES_VERSION}
    return _curl(base + "/v1/messages", headers, body)


def generate_curl(base: str, key: str, model: str) -> str:
    """Streamed generated content, ready to be pasted."""
    url = f"{base}/v1beta/models/{model}:streamGenerateContent?alt=sse"
    body = {"contents": [{"role": "user", "parts": [{"text": PROMPT}]}]}
    return _curl(url, {"x-goog-api-key": key}, body)


CURLS: Mapping[str, tuple[str, Callable[[str, str, str], str]]] = {
    "chat_completions": ("Chat completions", chat_curl),
    "responses": ("Responses", responses_curl),
    "messages": ("Messages", messages_curl),
    "generate_content": ("Generate content", generate_curl),
}
"""For each family its title and the maker of its command from base URL, key and model."""


def _bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def _curl(url: str, headers: Mapping[str, str], body: Mapping[str, object]) -> str:
    lines = [f"curl -N {shlex.quote(url)}"]
    lines += [f"-H {shlex.quote(f'{name}: {value}')}" for name, value in headers.items()]
    packed = json.dumps(body, separators=(",", ":"))
    lines += ["-H 'Content-Type: application/json'", f"-d {shlex.quote(packed)}"]
    return " \\\n  ".join(lines)


def _openai(base: str, key: str, model: str | None) -> ClientSettings:
    url = base + "/v1"
    python = f"from openai import OpenAI\n\nclient = OpenAI(base_url={url!r}, api_key={key!r})"
    script = _javascript("OpenAI", "openai", {"baseURL": url, "apiKey": key})
    variables = {"OPENAI_BASE_URL": url, "OPENAI_API_KEY": key}
    return ClientSettings(variables, {"Python": python, "JavaScript": script})


def _anthropic(base: str, key: str, model: str | None) -> ClientSettings:
    python = (
        f"from anthropic import Anthropic\n\nclient = Anthropic(base_url={base!r}, api_key={key!r})"
    )
    script = _javascript("Anthropic", "@anthropic-ai/sdk", {"baseURL": base, "apiKey": key})
    variables = {"ANTHROPIC_BASE_URL": base, "ANTHROPIC_API_KEY": key}
    return ClientSettings(variables, {"Python": python, "JavaScript": script})


def _javascript(name: str, package: str, options: Mapping[str, str]) -> str:
    given = ", ".join(
        f"{option}: {json.dumps(value, ensure_ascii=False)}" for option, value in options.items()
    )
    return f"import {name} from {json.dumps(package)};\n\nconst client = new {name}({{ {given} }});"


def _google_genai(base: str, key: str, model: str | None) -> ClientSettings:
    def python(options: Mapping[str, str]) -> str:
        given = f"api_key={key!r}, http_options={options!r}"
        return f"from google import genai\n\nclient = genai.Client({given})"

    parts = {
        "Python; version 3 and newer ask at /v1 by themselves": python({"base_url": base}),
        "Python; at /v1beta, where older versions ask": python(
            {"base_url": base, "api_version": "v1beta"}
        ),
    }
    return ClientSettings({"GOOGLE_GEMINI_BASE_URL": base, "GEMINI_API_KEY": key}, parts)


def _claude_code(base: str, key: str, model: str | None) -> ClientSettings:
    # AUTH_TOKEN is sent as Bearer and needs no confirmation in the program
    variables = {"ANTHROPIC_BASE_URL": base, "ANTHROPIC_AUTH_TOKEN": key}
    return ClientSettings(variables | (dict.fromkeys(CLAUDE_MODELS, model) if model else {}))


def _codex(base: str, key: str, model: str | None) -> ClientSettings:
    chosen = [f"model = {json.dumps(model)}"] if model else []
    lines = [
        *chosen,
        'model_provider = "sluice"',
        "",
        "[model_providers.sluice]",
        'name = "Sluice"',
        f"base_url = {json.dumps(base + '/v1')}",
        f'env_key = "{CODEX_KEY}"',
        'wire_api = "responses"',
    ]
    return ClientSettings({CODEX_KEY: key}, {CODEX_FILE: "\n".join(lines)})


def _gemini_cli(base: str, key: str, model: str | None) -> ClientSettings:
    variables = {"GOOGLE_GEMINI_BASE_URL": base, "GEMINI_API_KEY": key}
    # without it a call from a script ends in "Invalid auth method selected."
    signed_in = {"security": {"auth": {"selectedType": "gemini-api-key"}}}
    chosen = {"GEMINI_MODEL": model} if model else {}
    return ClientSettings(variables | chosen, {GEMINI_FILE: json.dumps(signed_in)})


def _ide_plugin(base: str, key: str, model: str | None) -> ClientSettings:
    fields = {"Base URL": base + "/v1", "API key": key, "Model": model or NO_MODEL}
    text = "\n".join(f"{name}: {value}" for name, value in fields.items())
    return ClientSettings(parts={"Fields of an OpenAI-compatible provider": text})


def _cc_switch(base: str, key: str, model: str | None) -> ClientSettings:
    def link(app: str, endpoint: str) -> str:
        fields = {"resource": "provider", "app": app, "name": "Sluice", "endpoint": endpoint}
        fields |= {"apiKey": key, **({"model": model} if model else {})}
        return f"ccswitch://v1/import?{urlencode(fields, quote_via=quote, safe=':/')}"

    parts = {
        "CC Switch, Claude Code": link("claude", base),
        "CC Switch, Codex": link("codex", base + "/v1"),
        "CC Switch, Gemini CLI": link("gemini", base),
    }
    return ClientSettings(parts=parts)


def _all_curls(base: str, key: str, model: str | None) -> ClientSettings:
    name = model or NO_MODEL
    return ClientSettings(parts={title: make(base, key, name) for title, make in CURLS.values()})


CLIENTS: Mapping[str, Callable[[str, str, str | None], ClientSettings]] = {
    "openai": _openai,
    "anthropic": _anthropic,
    "google-genai": _google_genai,
    "claude-code": _claude_code,
    "codex": _codex,
    "gemini-cli": _gemini_cli,
    "ide-plugin": _ide_plugin,
    "cc-switch": _cc_switch,
    "curl": _all_curls,
}
