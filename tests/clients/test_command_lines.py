"""Claude Code, Codex, Gemini CLI and opencode edit files with an upstream of each family."""

import json

import pytest

from tests.clients.session import LAST_WORDS, Tools
from tests.clients.world import FAMILIES, PROGRAMS, secret_of

each_upstream = pytest.mark.parametrize("upstream", FAMILIES)

CLAUDE = Tools(
    read=lambda path: ["Read", {"file_path": path}],
    edit=lambda path, old, new: [
        "Edit",
        {"file_path": path, "old_string": old, "new_string": new},
    ],
    run=lambda line: ["Bash", {"command": line, "description": "runs a line"}],
    write=lambda path, text: ["Write", {"file_path": path, "content": text}],
)
CODEX = Tools(
    read=lambda path: ["exec_command", {"cmd": f"cat {path}"}],
    edit=lambda path, old, new: [
        "apply_patch",
        f"*** Begin Patch\n*** Update File: {path}\n@@\n-{old}\n+{new}\n*** End Patch\n",
    ],
    run=lambda line: ["exec_command", {"cmd": line}],
    write=lambda path, text: [
        "apply_patch",
        f"*** Begin Patch\n*** Add File: {path}\n+{text.strip()}\n*** End Patch\n",
    ],
)
GEMINI = Tools(
    read=lambda path: ["read_file", {"file_path": path}],
    edit=lambda path, old, new: [
        "replace",
        {"file_path": path, "old_string": old, "new_string": new, "instruction": "Replace it."},
    ],
    run=lambda line: ["run_shell_command", {"command": line, "description": "runs a line"}],
    write=lambda path, text: ["write_file", {"file_path": path, "content": text}],
)
OPENCODE = Tools(
    read=lambda path: ["read", {"filePath": path}],
    edit=lambda path, old, new: [
        "edit",
        {"filePath": path, "oldString": old, "newString": new},
    ],
    run=lambda line: ["bash", {"command": line, "description": "runs a line"}],
    write=lambda path, text: ["write", {"filePath": path, "content": text}],
)


def finished(workshop, ran):
    """Check that the client reached its last text, and that all rounds did what they should."""
    assert ran.code == 0, f"exit {ran.code}: {ran.err[-3000:]}{ran.out[-3000:]}"
    assert LAST_WORDS in ran.out, f"{ran.out[-3000:]}\n{ran.err[-3000:]}"
    workshop.check()


@each_upstream
def test_claude_code(world, workshop, upstream):
    allowed = "Read,Edit,Write,Bash"
    argv = [str(PROGRAMS / "claude"), "-p", workshop.plan(CLAUDE), "--allowedTools", allowed]
    settings = {
        "ANTHROPIC_BASE_URL": world.base_url,
        "ANTHROPIC_AUTH_TOKEN": secret_of(upstream),
        "ANTHROPIC_MODEL": "claude-sonnet-4-6",
        "ANTHROPIC_DEFAULT_HAIKU_MODEL": "claude-sonnet-4-6",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    }
    finished(workshop, world.run(argv, workshop.folder, workshop.home, **settings))


CODEX_SETTINGS = """
model = "gpt-5.5"
model_provider = "sluice"
approval_policy = "never"
sandbox_mode = "danger-full-access"

[model_providers.sluice]
name = "Sluice"
base_url = "{base_url}/v1"
env_key = "SLUICE_API_KEY"
wire_api = "responses"

[analytics]
enabled = false
"""


@each_upstream
def test_codex(world, workshop, upstream):
    folder = workshop.home / ".codex"
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text(CODEX_SETTINGS.format(base_url=world.base_url))
    argv = [str(PROGRAMS / "codex"), "exec", "--skip-git-repo-check", workshop.plan(CODEX)]
    key = secret_of(upstream)
    finished(workshop, world.run(argv, workshop.folder, workshop.home, SLUICE_API_KEY=key))


GEMINI_SETTINGS = {
    "security": {"auth": {"selectedType": "gemini-api-key"}},
    "privacy": {"usageStatisticsEnabled": False},
    "general": {"disableAutoUpdate": True},
}


@each_upstream
def test_gemini_cli(world, workshop, upstream):
    folder = workshop.home / ".gemini"
    folder.mkdir(parents=True)
    (folder / "settings.json").write_text(json.dumps(GEMINI_SETTINGS))
    argv = [str(PROGRAMS / "gemini"), "--model", "gemini-3.1-pro-preview"]
    argv += ["--approval-mode", "yolo", "--prompt", workshop.plan(GEMINI)]
    settings = {
        "GOOGLE_GEMINI_BASE_URL": world.base_url,
        "GEMINI_API_KEY": secret_of(upstream),
        "GEMINI_CLI_TRUST_WORKSPACE": "true",
    }
    finished(workshop, world.run(argv, workshop.folder, workshop.home, **settings))


@each_upstream
def test_opencode(world, workshop, upstream):
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "Sluice",
        "options": {"baseURL": f"{world.base_url}/v1", "apiKey": secret_of(upstream)},
        "models": {"gpt-4o": {"name": "gpt-4o"}},
    }
    settings = {
        "autoupdate": False,
        "share": "disabled",
        "permission": {"*": "allow"},
        "provider": {"sluice": provider},
    }
    (workshop.folder / "opencode.json").write_text(json.dumps(settings))
    argv = [str(PROGRAMS / "opencode"), "run", "--model", "sluice/gpt-4o"]
    argv.append(workshop.plan(OPENCODE))
    finished(workshop, world.run(argv, workshop.folder, workshop.home))
