"""`client-config`: what to put into a client program so that it talks to this gateway.

The rule: clients of the chat kind are given the address with /v1; clients of the messages kind the
bare address, for they append /v1/messages themselves. The full path is for curl alone.
"""

import shlex
from collections.abc import Callable, Mapping
from pathlib import Path

import click

from commands.output import config_option, configuration, json_option, print_json
from conf.settings import ANY_ADDRESS, ServerSettings

CHAT_PATH = "/v1/chat/completions"
MESSAGES_PATH = "/v1/messages"
MESSAGES_VERSION = "2023-06-01"

LATER = ("google-genai", "codex", "gemini-cli")


def base_url(server: ServerSettings) -> str:
    """The gateway's address as clients see it, without a path."""
    if server.public_url:
        return server.public_url
    host = "127.0.0.1" if server.host in ANY_ADDRESS else server.host
    return f"http://[{host}]:{server.port}" if ":" in host else f"http://{host}:{server.port}"


def chat_curl(base: str, key: str, model: str) -> str:
    """A streamed chat completion, ready to be pasted."""
    body = (
        f'{{"model":"{model}","stream":true,"messages":[{{"role":"user","content":"Say hello."}}]}}'
    )
    return _curl(base + CHAT_PATH, {"Authorization": f"Bearer {key}"}, body)


def messages_curl(base: str, key: str, model: str) -> str:
    """A streamed message, ready to be pasted."""
    body = (
        f'{{"model":"{model}","max_tokens":100,"stream":true,'
        '"messages":[{"role":"user","content":"Say hello."}]}'
    )
    headers = {"x-api-key": key, "anthropic-version": MESSAGES_VERSION}
    return _curl(base + MESSAGES_PATH, headers, body)


def _curl(url: str, headers: Mapping[str, str], body: str) -> str:
    lines = [f"curl -N {shlex.quote(url)}"]
    lines += [f"-H {shlex.quote(f'{name}: {value}')}" for name, value in headers.items()]
    lines += ["-H 'Content-Type: application/json'", f"-d {shlex.quote(body)}"]
    return " \\\n  ".join(lines)


def _openai(base: str, key: str) -> str:
    return _exports({"OPENAI_BASE_URL": base + "/v1", "OPENAI_API_KEY": key})


def _anthropic(base: str, key: str) -> str:
    return _exports({"ANTHROPIC_BASE_URL": base, "ANTHROPIC_API_KEY": key})


def _claude_code(base: str, key: str) -> str:
    # AUTH_TOKEN is sent as Bearer and needs no confirmation in the program
    return _exports({"ANTHROPIC_BASE_URL": base, "ANTHROPIC_AUTH_TOKEN": key})


def _all_curls(base: str, key: str) -> str:
    return "\n\n".join(make(base, key, "MODEL") for make in (chat_curl, messages_curl))


def _exports(variables: Mapping[str, str]) -> str:
    return "\n".join(f"export {name}={shlex.quote(value)}" for name, value in variables.items())


CLIENTS: Mapping[str, Callable[[str, str], str]] = {
    "openai": _openai,
    "anthropic": _anthropic,
    "claude-code": _claude_code,
    "curl": _all_curls,
}


@click.command()
@click.argument("client", type=click.Choice((*CLIENTS, *LATER)))
@click.option("--key", required=True, metavar="SECRET", help="The API key the client shall use.")
@config_option
@json_option
def command(client: str, key: str, config: Path | None, as_json: bool) -> None:
    """Print the settings for a client program, ready to be pasted into a shell."""
    if client not in CLIENTS:
        raise click.ClickException(
            f"{client} is not served yet: it speaks a family this version does not have"
        )
    base = base_url(configuration(config).settings.server)
    text = CLIENTS[client](base, key)
    if as_json:
        print_json({"client": client, "base_url": base, "settings": text})
    else:
        click.echo(text)
