"""The session that each client plays: five rounds of tools that read, change and run files.

The vendor plays it from the plan in the prompt (tests/vendor/sessions.py), with the client's own
tools. The client runs the tools; their results must reach the vendor, and the files must be
changed accordingly. Imported by the tests of this folder.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.vendor.sessions import marker

LAST_WORDS = "All five rounds are over."
ROUNDS = 5
Call = list[Any]  # name and arguments


@dataclass(frozen=True)
class Tools:
    """A client's tools for each action; paths are absolute."""

    read: Callable[[str], Call]
    edit: Callable[[str, str, str], Call]
    run: Callable[[str], Call]
    write: Callable[[str, str], Call]


class Workshop:
    """A folder with two files that the session changes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "project"
        self.home = folder / "home"
        self.folder.mkdir()
        self.notes = self.folder / "notes.txt"
        self.list = self.folder / "list.txt"
        self.report = self.folder / "report.txt"
        self.notes.write_text("first line\nthe word is kettle-17\nlast line – 日本語\n")
        self.list.write_text("saucer-23\n")

    def plan(self, tools: Tools) -> str:
        """Return the prompt; its plan has five rounds, the first with two calls at once."""
        notes, report = str(self.notes), str(self.report)
        steps = [
            {"call": [tools.read(notes), tools.read(str(self.list))]},
            {
                "call": [tools.edit(notes, "the word is kettle-17", "the word is teapot-42")],
                "expect": ["kettle-17", "日本語", "saucer-23"],
            },
            {"call": [tools.run("cat notes.txt; printf counted-; expr 40 + 3")]},
            {
                "call": [tools.write(report, "written-51\n")],
                "expect": ["teapot-42", "counted-43"],
            },
            {"call": [tools.run("cat report.txt; rm list.txt; printf removed-; expr 60 + 1")]},
            {"say": LAST_WORDS, "expect": ["written-51", "removed-61"]},
        ]
        return f"Please work through the plan. {marker(steps)}"

    def check(self) -> None:
        """Check that every round changed what it should."""
        assert self.notes.read_text().splitlines() == [
            "first line",
            "the word is teapot-42",
            "last line – 日本語",
        ]
        assert self.report.read_text().strip() == "written-51"
        assert not self.list.exists()
