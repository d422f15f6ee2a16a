"""What a gateway's journal says of calls that run."""

from pathlib import Path

import msgspec

from store.calls.journal_lines import CHECK_BYTES, MARK, MarkLine


def marks(gateway):
    """The marks of calls, oldest first of each worker."""
    folder = Path(gateway.settings.get("journal.dir", gateway.folder / "journal"))
    lines = [
        line[:-CHECK_BYTES]
        for path in folder.glob("*.log")
        for line in path.read_bytes().splitlines(keepends=True)
        if line.endswith(b"\n")  # the last one may not be whole yet
    ]
    return [msgspec.json.decode(line, type=MarkLine) for line in lines if line[2:3] == MARK]


def marked(gateway):
    """The ids of calls with a mark that knows of output."""
    return {mark.id for mark in marks(gateway) if mark.output_tokens}
