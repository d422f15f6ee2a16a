"""Settings for client programs, and the snippets that show them, for each operating system.

Clients of the OpenAI families get the address with /v1. Those of messages and generate-content get
the bare address, because they append version and path themselves. Only curl gets the full path.
"""

import json
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple
from urllib.parse import quote, urlencode

from conf.settings import ANY_ADDRESS, HubSettings, ServerSettings

MESSAGES_VERSION = "2023-06-01"
PROMPT = "Say hello."
NO_MODEL = "MODEL"  # a placeholder that the reader replaces by a model's name
CODEX_KEY = "SLUICE_API_KEY"
CODEX_FILE = "~/.codex/config.toml"
GEMINI_FILE = "~/.gemini/settings.json"
CLAUDE_MODELS = (
    "ANTHROPIC_MODEL",
    # the models for its large, usual and small names; Claude Code itself calls the small one
    "ANTHROPIC_DEFAULT_OPUS_MODEL",
    "ANTHROPIC_DEFAULT_SONNET_MODEL",
    "ANTHROPIC_DEFAULT_HAIKU_MODEL",
)
ModelOf = Callable[[str], str | None]
"""Returns the model for a family, None for no model."""


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """Variables for the shell, and texts for other places, by title."""

    environment: Mapping[str, str] = field(default_factory=dict)
    parts: Mapping[str, str] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """Return everything as text: the variables, then each part below its title."""
        texts = ["\n".join(f"export {n}={shlex.quote(v)}" for n, v in self.environment.items())]
        texts += [f"# {title}\n{text}" for title, text in self.parts.items()]
        return "\n\n".join(filter(None, texts))


def base_url(server: ServerSettings, stored: str = "") -> str:
    """Return the gateway's address for clients: the file's, else the stored one, else where it
    listens."""
    if server.public_url or stored:
        return server.public_url or stored
    return _listening(server.host, server.port)


def hub_url(hub: HubSettings) -> str:
    """Return the Hub's address as browsers see it, without a path."""
    return hub.public_url.rstrip("/") or _listening(hub.host, hub.port)


def _listening(host: str, port: int) -> str:
    host = "127.0.0.1" if host in ANY_ADDRESS else host
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class SampleRequest(NamedTuple):
    """A streamed request with PROMPT, as a client of a family makes it."""

    path: str
    headers: Mapping[str, str]
    body: Mapping[str, object]


def sample_request(family: str, key: str, model: str, max_tokens: int = 100) -> SampleRequest:
    """Return a request that streams the answer to PROMPT. `max_tokens` is used by messages only."""
    bearer = {"Authorization": f"Bearer {key}"}
    messages = [{"role": "user", "content": PROMPT}]
    streamed = {"model": model, "stream": True}
    match family:
        case "chat_completions":
            path = "/v1/chat/completions"
            return SampleRequest(path, bearer, {**streamed, "messages": messages})
        case "responses":
            return SampleRequest("/v1/responses", bearer, {**streamed, "input": PROMPT})
        case "messages":
            headers = {"x-api-key": key, "anthropic-version": MESSAGES_VERSION}
            body = {"model": model, "max_tokens": max_tokens, "stream": True, "messages": messages}
            return SampleRequest("/v1/messages", headers, body)
    path = f"/v1beta/models/{model}:streamGenerateContent?alt=sse"
    contents = [{"role": "user", "parts": [{"text": PROMPT}]}]
    return SampleRequest(path, {"x-goog-api-key": key}, {"contents": contents})


CURL_TITLES: Mapping[str, str] = {
    "chat_completions": "Chat completions",
    "responses": "Responses",
    "messages": "Messages",
    "generate_content": "Generate content",
}
"""The families, each with the title of its command."""


def curl(family: str, base: str, key: str, model: str) -> str:
    """Return the command of a family's sample request, ready to paste."""
    path, headers, body = sample_request(family, key, model)
    lines = [f"curl -N {shlex.quote(base + path)}"]
    lines += [f"-H {shlex.quote(f'{name}: {value}')}" for name, value in headers.items()]
    packed = json.dumps(body, separators=(",", ":"))
    lines += ["-H 'Content-Type: application/json'", f"-d {shlex.quote(packed)}"]
    return " \\\n  ".join(lines)


def _openai(base: str, key: str, model_of: ModelOf) -> ClientSettings:
    url = base + "/v1"
    python = f"from openai import OpenAI\n\nclient = OpenAI(base_url={url!r}, api_key={key!r})"
    script = _javascript("OpenAI", "openai", {"baseURL": url, "apiKey": key})
    variables = {"OPENAI_BASE_URL": url, "OPENAI_API_KEY": key}
    return ClientSettings(variables, {"Python": python, "JavaScript": script})


def _anthropic(base: str, key: str, model_of: ModelOf) -> ClientSettings:
    python = (
        f"from anthropic import Anthropic\n\nclient = Anthropic(base_url={base!r}, api_key={key!r})"
    )
    script = _javascript("Anthropic", "@anthropic-ai/sdk", {"baseURL": base, "apiKey": key})
    variables = {"ANTHROPIC_BASE_URL": base, "ANTHROPIC_API_KEY": key}
    return ClientSettings(variables, {"Python": python, "JavaScript": script})


def _javascript(name: str, package: str, options: Mapping[str, str]) -> str:
    fields = ", ".join(
        f"{option}: {json.dumps(value, ensure_ascii=False)}" for option, value in options.items()
    )
    head = f"import {name} from {json.dumps(package)};"
    return f"{head}\n\nconst client = new {name}({{ {fields} }});"


def _google_genai(base: str, key: str, model_of: ModelOf) -> ClientSettings:
    def python(options: Mapping[str, str]) -> str:
        arguments = f"api_key={key!r}, http_options={options!r}"
        return f"from google import genai\n\nclient = genai.Client({arguments})"

    parts = {
        "Python; version 3 and newer ask at /v1 by themselves": python({"base_url": base}),
        "Python; at /v1beta, where older versions ask": python(
            {"base_url": base, "api_version": "v1beta"}
        ),
    }
    return ClientSettings({"GOOGLE_GEMINI_BASE_URL": base, "GEMINI_API_KEY": key}, parts)


def _claude_code(base: str, key: str, model_of: ModelOf) -> ClientSettings:
    model = model_of("messages")
    # AUTH_TOKEN is sent as Bearer and needs no confirmation in the program
    variables = {"ANTHROPIC_BASE_URL": base, "ANTHROPIC_AUTH_TOKEN": key}
    return ClientSettings(variables | (dict.fromkeys(CLAUDE_MODELS, model) if model else {}))


def _codex(base: str, key: str, model_of: ModelOf) -> ClientSettings:
    model = model_of("responses")
    model_lines = [f"model = {json.dumps(model)}"] if model else []
    # The gateway's list replaces Codex's own, which is better for these models.
    has_list = model is not None and not model.startswith("gpt-")
    lines = [
        *model_lines,
        'model_provider = "sluice"',
        "",
        "[model_providers.sluice]",
        'name = "Sluice"',
        f"base_url = {json.dumps(base + '/v1')}",
        f'env_key = "{CODEX_KEY}"',
        'wire_api = "responses"',
        *([f"model_catalog_url = {json.dumps(base + '/v1/models')}"] if has_list else []),
    ]
    return ClientSettings({CODEX_KEY: key}, {CODEX_FILE: "\n".join(lines)})


def _gemini_cli(base: str, key: str, model_of: ModelOf) -> ClientSettings:
    variables = {"GOOGLE_GEMINI_BASE_URL": base, "GEMINI_API_KEY": key}
    # without it a call from a script fails with "Invalid auth method selected."
    signed_in = {"security": {"auth": {"selectedType": "gemini-api-key"}}}
    model = model_of("generate_content")
    model_variables = {"GEMINI_MODEL": model} if model else {}
    return ClientSettings(variables | model_variables, {GEMINI_FILE: json.dumps(signed_in)})


def _ide_plugin(base: str, key: str, model_of: ModelOf) -> ClientSettings:
    model = model_of("chat_completions") or NO_MODEL
    fields = {"Base URL": base + "/v1", "API key": key, "Model": model}
    text = "\n".join(f"{name}: {value}" for name, value in fields.items())
    return ClientSettings(parts={"Fields of an OpenAI-compatible provider": text})


def _cc_switch(base: str, key: str, model_of: ModelOf) -> ClientSettings:
    def link(app: str, endpoint: str, family: str) -> str:
        model = model_of(family)
        fields = {"resource": "provider", "app": app, "name": "Sluice", "endpoint": endpoint}
        fields |= {"apiKey": key, **({"model": model} if model else {})}
        return f"ccswitch://v1/import?{urlencode(fields, quote_via=quote, safe=':/')}"

    parts = {
        "CC Switch, Claude Code": link("claude", base, "messages"),
        "CC Switch, Codex": link("codex", base + "/v1", "responses"),
        "CC Switch, Gemini CLI": link("gemini", base, "generate_content"),
    }
    return ClientSettings(parts=parts)


def _all_curls(base: str, key: str, model_of: ModelOf) -> ClientSettings:
    commands = {
        title: curl(family, base, key, model_of(family) or NO_MODEL)
        for family, title in CURL_TITLES.items()
    }
    return ClientSettings(parts=commands)


CLIENT_SETTINGS: Mapping[str, Callable[[str, str, ModelOf], ClientSettings]] = {
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


# ---- snippets for people ---------------------------------------------------------------------

UNIX, POWERSHELL, CMD, FILE = "unix", "powershell", "cmd", "file"
SYSTEMS = (UNIX, POWERSHELL, CMD)
TERMINALS: Mapping[str, str] = {UNIX: "Terminal", POWERSHELL: "PowerShell", CMD: "cmd"}


@dataclass(frozen=True, slots=True)
class Client:
    """A client program. `kind`: a kind of base_url_check.KINDS, which has the end of its base URL;
    `program`: the command that starts it, if any."""

    name: str
    title: str
    section: str
    kind: str
    family: str
    program: str = ""
    ends: str = ""  # the end of its base URL, if it differs from the kind's
    settings_file: str = ""  # a file that can contain its variables as JSON below "env"


CLIENTS: Mapping[str, Client] = {
    client.name: client
    for client in (
        Client("claude-code", "Claude Code", "tools", "messages", "messages", "claude",
               settings_file="~/.claude/settings.json"),
        Client("codex", "Codex", "tools", "openai", "responses", "codex"),
        Client("gemini-cli", "Gemini CLI", "tools", "generate_content", "generate_content",
               "gemini"),
        Client("ide-plugin", "IDE plug-ins", "tools", "openai", "chat_completions"),
        Client("openai", "OpenAI SDK", "sdks", "openai", "chat_completions"),
        Client("anthropic", "Anthropic SDK", "sdks", "messages", "messages"),
        Client("google-genai", "Google GenAI SDK", "sdks", "generate_content", "generate_content"),
        Client("curl", "curl", "hand", "full_messages", "chat_completions"),
        Client("cc-switch", "CC Switch", "hand", "messages", "messages", ends="link"),
    )
}  # fmt: skip
SECTIONS = ("tools", "sdks", "hand")


@dataclass(frozen=True, slots=True)
class Snippet:
    """A text to paste and its place."""

    title: str
    text: str


@dataclass(frozen=True, slots=True)
class SystemSetup:
    """The snippets for one system. `system` is FILE if a file replaces the variables."""

    system: str
    snippets: tuple[Snippet, ...]


def setups(client: str, base_url: str, key: str, model_of: ModelOf) -> list[SystemSetup]:
    """Return a client's snippets by system; only UNIX if the systems do not differ."""
    facts, settings = CLIENTS[client], CLIENT_SETTINGS[client](base_url, key, model_of)
    parts = tuple(Snippet(title, text) for title, text in settings.parts.items())
    if not settings.environment:
        return [SystemSetup(UNIX, parts)]
    systems = [
        SystemSetup(system, (*parts, Snippet(TERMINALS[system], _shell(facts, settings, system))))
        for system in SYSTEMS
    ]
    if facts.settings_file:
        text = json.dumps({"env": dict(settings.environment)}, indent=2, ensure_ascii=False)
        systems.append(SystemSetup(FILE, (Snippet(facts.settings_file, text), *parts)))
    return systems


def _shell(client: Client, settings: ClientSettings, system: str) -> str:
    line = _LINES[system]
    lines = [line(name, value) for name, value in settings.environment.items()]
    return "\n".join([*lines, client.program] if client.program else lines)


def _powershell(name: str, value: str) -> str:
    doubled = value.replace("'", "''")
    return f"$env:{name} = '{doubled}'"


_LINES: Mapping[str, Callable[[str, str], str]] = {
    UNIX: lambda name, value: f"export {name}={shlex.quote(value)}",
    POWERSHELL: _powershell,
    CMD: lambda name, value: f'set "{name}={value}"',
}
