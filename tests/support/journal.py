"""Marks of running calls in a gateway's journal."""

from pathlib import Path

import msgspec

from store.calls.journal_lines import CHECK_BYTES, MARK, MarkLine


def marks(gateway):
    """Return the marks of calls, the oldest of each worker first."""
    folder = Path(gateway.settings.get("journal.dir", gateway.folder / "journal"))
    lines = [
        line[:-CHECK_BYTES]
        for path in folder.glob("*.log")
        for line in path.read_bytes().splitlines(keepends=True)
        if line.endswith(b"\n")  # the last line may be incomplete
    ]
    return [msgspec.json.decode(line, type=MarkLine) for line in lines if line[2:3] == MARK]


def marked(gateway):
    """Return the ids of calls with a mark that counts output."""
    return {mark.id for mark in marks(gateway) if mark.output_tokens}
