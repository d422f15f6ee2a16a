"""The scripted vendor as a process of the tests: the upstream of a gateway under test."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SAMPLES = ROOT / "tests" / "wire"
END_TIMEOUT_S = 10


class ScriptedUpstream:
    """Starts the vendor on a free port (or the given one); ends it with `close` or `with`."""

    def __init__(
        self, samples: Path | None = None, log_file: Path | None = None, port: int = 0
    ) -> None:
        command = [sys.executable, "-m", "commands.demo", f"--port={port}", "--watch-stdin"]
        if samples is None and SAMPLES.is_dir():
            samples = SAMPLES
        if samples is not None:
            command.append(f"--samples={samples}")
        if log_file is not None:
            command.append(f"--log={log_file}")
        self.process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().strip()
        if not self.url:
            self.close()
            raise RuntimeError("the scripted upstream did not start; its reason is on stderr")
        self.port = int(self.url.rpartition(":")[2])

    def log(self) -> list[dict[str, Any]]:
        """What reached the vendor since the start or the last reset, oldest first."""
        return [json.loads(line) for line in self._ask("GET", "/__log").splitlines()]

    def stats(self) -> dict[str, int]:
        """connections, streams (open now), accepted, requests (since the start)."""
        answer: dict[str, int] = json.loads(self._ask("GET", "/__stats"))
        return answer

    def reset(self) -> None:
        self._ask("POST", "/__reset")

    def close(self) -> None:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        try:
            self.process.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()

    def __enter__(self) -> ScriptedUpstream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ask(self, method: str, path: str) -> bytes:
        request = urllib.request.Request(self.url + path, method=method)
        request.add_header("connection", "close")
        with urllib.request.urlopen(request, timeout=30) as answer:
            body: bytes = answer.read()
        return body
