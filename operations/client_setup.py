"""The set-up of clients for people: which clients there are, what their base URL ends with, and
their settings as pieces to paste, for each system.

Made from the settings that `client-config` prints. Pure; for the Hub.
"""

import json
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from operations.client_settings import CLIENTS, ClientSettings

UNIX, POWERSHELL, CMD, FILE = "unix", "powershell", "cmd", "file"
SYSTEMS = (UNIX, POWERSHELL, CMD)
TERMINALS: Mapping[str, str] = {UNIX: "Terminal", POWERSHELL: "PowerShell", CMD: "cmd"}


@dataclass(frozen=True, slots=True)
class Client:
    """A client program. `kind`: of base_url_check.KINDS, which says what its base URL ends with;
    `family`: what it speaks; `program`: what starts it, if it is one."""

    name: str
    title: str
    section: str
    kind: str
    family: str
    program: str = ""
    ends: str = ""  # what its base URL ends with, where that is not the kind's
    settings_file: str = ""  # where its variables can stand instead, as JSON below "env"


ALL: Mapping[str, Client] = {
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
    """A text to paste, and where it belongs."""

    title: str
    text: str


@dataclass(frozen=True, slots=True)
class SystemSetup:
    """The snippets of one system; `system` is FILE where a file takes the place of variables."""

    system: str
    snippets: tuple[Snippet, ...]


def setups(client: str, base_url: str, key: str, model: str | None) -> list[SystemSetup]:
    """A client's snippets by system; one of UNIX alone where the system makes no difference."""
    facts, settings = ALL[client], CLIENTS[client](base_url, key, model)
    parts = tuple(Snippet(title, text) for title, text in settings.parts.items())
    if not settings.environment:
        return [SystemSetup(UNIX, parts)]
    found = [
        SystemSetup(system, (*parts, Snippet(TERMINALS[system], _shell(facts, settings, system))))
        for system in SYSTEMS
    ]
    if facts.settings_file:
        text = json.dumps({"env": dict(settings.environment)}, indent=2, ensure_ascii=False)
        found.append(SystemSetup(FILE, (Snippet(facts.settings_file, text), *parts)))
    return found


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
