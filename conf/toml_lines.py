"""Finds the line of each key in a TOML text, which the standard parser does not report.

tomllib alone knows the syntax: a TOML statement (a table header or one key with its value) is
itself a TOML document, so lines are collected until tomllib accepts them.
"""

import tomllib
from collections.abc import Iterator

KeyPath = tuple[str, ...]
EntryPath = tuple[str, int, str]
"""An array of tables, the index of one of its tables, and a key in it: "" for the table itself,
nested keys joined by dots."""

# The last line of a multi-line statement contains the end of an array or a string.
_ENDS = ("]", "}", '"""', "'''")


def key_lines(text: str) -> dict[KeyPath, int]:
    """The first line (from 1) of every key and table of a text that tomllib accepts.

    A key of an inline table has the line where its statement begins; keys inside arrays of tables
    share one path, and the first line wins.
    """
    return {path: first for path, (first, _) in key_spans(text).items()}


def key_spans(text: str) -> dict[KeyPath, tuple[int, int]]:
    """As `key_lines`: the first and the last line of the statement of every key and table."""
    spans: dict[KeyPath, tuple[int, int]] = {}
    table: KeyPath = ()
    for number, statement, document in _statements(text):
        paths = list(_paths(document))
        if statement.lstrip().startswith("["):
            table = paths[-1]
            prefix: KeyPath = ()
        else:
            prefix = table
        for path in paths:
            spans.setdefault(prefix + path, (number, number + statement.count("\n")))
    return spans


def entry_lines(text: str) -> dict[EntryPath, int]:
    """The first line of every table in arrays of tables, and of its keys.

    Tables written in one statement, as in `user = [{…}, {…}]`, share its line.
    """
    lines: dict[EntryPath, int] = {}
    counts: dict[str, int] = {}
    name = ""  # of the table that the statements are in
    inner: KeyPath = ()
    for number, statement, document in _statements(text):
        ((outer, value),) = document.items()
        if statement.lstrip().startswith("["):
            name, inner = outer, _header(document)[1:]
            if statement.lstrip().startswith("[[") and not inner:
                counts[name] = counts.get(name, 0) + 1
            lines.setdefault((name, counts.get(name, 1) - 1, ".".join(inner)), number)
        elif not name and isinstance(value, list):
            lines |= {(outer, index, ""): number for index in range(len(value))}
        else:
            for path in _paths(document):
                lines.setdefault((name, counts.get(name, 1) - 1, ".".join((*inner, *path))), number)
    return lines


def _header(document: dict[str, object]) -> KeyPath:
    """The path of a table by its header alone."""
    return list(_paths(document))[-1]


def _statements(text: str) -> Iterator[tuple[int, str, dict[str, object]]]:
    """(first line, text, decoded) of each statement, without blank lines and comments."""
    pending: list[str] = []
    first = 1
    # "\n" only: splitlines() would also cut at characters that are legal inside a TOML string
    for number, line in enumerate(text.split("\n"), start=1):
        if not pending:
            first = number
        pending.append(line)
        if len(pending) > 1 and not any(end in line for end in _ENDS):
            continue  # else an array of 10,000 lines would be parsed 10,000 times
        statement = "\n".join(pending)
        try:
            document = tomllib.loads(statement)
        except tomllib.TOMLDecodeError:
            continue  # a string or an array that continues in the next line
        pending.clear()
        if document:
            yield first, statement, document


def _paths(document: dict[str, object]) -> Iterator[KeyPath]:
    """Every path of a decoded statement, outer tables first."""
    for key, value in document.items():
        yield (key,)
        inner = value[-1] if isinstance(value, list) and value else value
        if isinstance(inner, dict):
            for path in _paths(inner):
                yield (key, *path)
