"""Where in a TOML text a key was written: the standard parser does not say.

Facts of the syntax stay with tomllib: a statement of TOML (a table header or one key with its
value) is itself a TOML document, so lines are gathered until tomllib takes them.
"""

import tomllib
from collections.abc import Iterator

KeyPath = tuple[str, ...]


def key_lines(text: str) -> dict[KeyPath, int]:
    """The first line (from 1) of every key and table of a text that tomllib has accepted.

    A key of an inline table has the line where its statement begins; keys inside arrays of tables
    share one path, and the first line wins.
    """
    lines: dict[KeyPath, int] = {}
    table: KeyPath = ()
    for number, statement, document in _statements(text):
        paths = list(_paths(document))
        if statement.lstrip().startswith("["):
            table = paths[-1]
            prefix: KeyPath = ()
        else:
            prefix = table
        for path in paths:
            lines.setdefault(prefix + path, number)
    return lines


def _statements(text: str) -> Iterator[tuple[int, str, dict[str, object]]]:
    """(first line, text, decoded) of each statement; blank lines and comments are left out."""
    pending: list[str] = []
    first = 1
    # "\n" only: splitlines() would also cut at characters that are legal inside a TOML string
    for number, line in enumerate(text.split("\n"), start=1):
        if not pending:
            first = number
        pending.append(line)
        statement = "\n".join(pending)
        try:
            document = tomllib.loads(statement)
        except tomllib.TOMLDecodeError:
            continue  # a string or an array that goes on in the next line
        pending.clear()
        if document:
            yield first, statement, document


def _paths(document: dict[str, object]) -> Iterator[KeyPath]:
    """Every path of a decoded statement, outer tables before what they hold."""
    for key, value in document.items():
        yield (key,)
        inner = value[-1] if isinstance(value, list) and value else value
        if isinstance(inner, dict):
            for path in _paths(inner):
                yield (key, *path)
