"""The lines of keys in a gateway.toml, and edits of one value that keep comments and other lines.

Pure, except for `replace_file`. At the end of an edit tomllib confirms the meaning of the text.
"""

import os
import re
import stat
import tomllib
from collections.abc import Iterator
from pathlib import Path

from conf.values import toml

KeyPath = tuple[str, ...]
EntryPath = tuple[str, int, str]
"""An array of tables, the index of one of its tables, and a key in it. The key is "" for the table
itself; nested keys are joined by dots."""

# The last line of a multi-line statement contains the end of an array or a string.
_ENDS = ("]", "}", '"""', "'''")


def key_lines(text: str) -> dict[KeyPath, int]:
    """Return the first line (from 1) of every key and table of a text that tomllib accepts.

    A key of an inline table has the line where its statement begins. Keys inside arrays of tables
    share one path, whose line is the first one.
    """
    return {path: first for path, (first, _) in key_spans(text).items()}


def key_spans(text: str) -> dict[KeyPath, tuple[int, int]]:
    """Return the first and the last line of the statement of every key and table."""
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
    """Return the first line of every table in arrays of tables, and of its keys.

    Tables written in one statement, as in `user = [{…}, {…}]`, share its line.
    """
    lines: dict[EntryPath, int] = {}
    counts: dict[str, int] = {}
    name = ""  # of the table to which the statements belong
    inner: KeyPath = ()
    for number, statement, document in _statements(text):
        ((outer, value),) = document.items()
        if statement.lstrip().startswith("["):
            name, inner = outer, list(_paths(document))[-1][1:]
            if statement.lstrip().startswith("[[") and not inner:
                counts[name] = counts.get(name, 0) + 1
            lines.setdefault((name, counts.get(name, 1) - 1, ".".join(inner)), number)
        elif not name and isinstance(value, list):
            lines |= {(outer, index, ""): number for index in range(len(value))}
        else:
            for path in _paths(document):
                lines.setdefault((name, counts.get(name, 1) - 1, ".".join((*inner, *path))), number)
    return lines


def _statements(text: str) -> Iterator[tuple[int, str, dict[str, object]]]:
    """Yield (first line, text, decoded) of each statement, without blank lines and comments."""
    pending: list[str] = []
    first = 1
    # "\n" only: splitlines() would also cut at characters that are legal inside a TOML string
    for number, line in enumerate(text.split("\n"), start=1):
        if not pending:
            first = number
        pending.append(line)
        if len(pending) > 1 and not any(end in line for end in _ENDS):
            continue  # otherwise an array of 10,000 lines would be parsed 10,000 times
        statement = "\n".join(pending)
        try:
            document = tomllib.loads(statement)
        except tomllib.TOMLDecodeError:
            continue  # a string or an array that continues on the next line
        pending.clear()
        if document:
            yield first, statement, document


def _paths(document: dict[str, object]) -> Iterator[KeyPath]:
    """Yield every path of a decoded statement, outer tables first."""
    for key, value in document.items():
        yield (key,)
        inner = value[-1] if isinstance(value, list) and value else value
        if isinstance(inner, dict):
            for path in _paths(inner):
                yield (key, *path)


PRIVATE_MODE = 0o600


def with_value(text: str, section: str, key: str, value: object) -> str:
    """Return the text with `section.key = value`. It replaces the old value or the line that shows
    the default; if there is neither, it is added at the start of the section.

    Raises ValueError if the text is not TOML, or if the form of the section cannot be changed here.
    """
    try:
        document = tomllib.loads(text)
    except RecursionError:
        raise ValueError("not TOML: nested too deeply") from None
    table = document.get(section, {})
    if not isinstance(table, dict):
        raise ValueError(f"{section} is not a section: edit the file by hand")
    lines = text.split("\n")
    spans = key_spans(text)
    setting = f"{key} = {toml(value)}"
    if (section, key) in spans:
        first, last = spans[section, key]
        if spans.get((section,)) == (first, last):  # one statement holds the section, or a part
            setting = _in_one_line(section, {key: value}, lines[first - 1], table)
        comment = _comment_of("\n".join(lines[first - 1 : last]))
        lines[first - 1 : last] = [setting + comment]
    elif (section,) in spans and _is_header(lines[spans[section,][0] - 1]):
        first = spans[section,][0]
        place = _shown_default(lines, first, key)
        lines[slice(first, first) if place is None else slice(place, place + 1)] = [setting]
    else:
        lines += [f"[{section}]", setting, ""]
    changed = "\n".join(lines)
    if _decoded(changed) != {**document, section: {**table, key: _plain(value)}}:
        problem = "is written in a form that cannot be changed: edit it by hand"
        raise ValueError(f"[{section}] {problem}")
    return changed


def replace_file(path: Path, text: str) -> None:
    """Replace the content of an existing private file in one step. Its owner and mode do not
    change."""
    path = path.resolve()  # a symbolic link stays a link
    existing = path.stat()
    beside = path.with_name(f".{path.name}.new")
    beside.unlink(missing_ok=True)
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE_MODE)
    with open(descriptor, "w", encoding="utf-8", newline="") as file:
        if (existing.st_uid, existing.st_gid) != (os.geteuid(), os.getegid()):
            os.fchown(descriptor, existing.st_uid, existing.st_gid)
        os.fchmod(descriptor, stat.S_IMODE(existing.st_mode))
        file.write(text)
        file.flush()
        os.fsync(descriptor)
    beside.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _in_one_line(
    section: str, changed: dict[str, object], line: str, table: dict[str, object]
) -> str:
    """Return a section without a header: `section.key = …`, or `section = { … }` with all its
    values."""
    if line.split("=")[0].strip() != section:
        (key, value), *_ = changed.items()
        return f"{section}.{key} = {toml(value)}"
    values = ", ".join(f"{key} = {toml(value)}" for key, value in {**table, **changed}.items())
    return f"{section} = {{ {values} }}"


def _is_header(line: str) -> bool:
    return line.lstrip().startswith("[")


def _shown_default(lines: list[str], start: int, key: str) -> int | None:
    """Return the index of the comment `#key = …` in the section whose first line has index
    `start`."""
    for number, line in enumerate(lines[start:], start):
        if _is_header(line):
            return None
        if re.match(rf"#{re.escape(key)}\s*=", line):
            return number
    return None


def _comment_of(statement: str) -> str:
    """Return the comment after the value of a statement, with the blanks before it."""
    last = statement.rfind("\n") + 1
    for match in re.finditer(r"\s*#", statement[last:]):
        if _decoded(statement[: last + match.start()]) == _decoded(statement):
            return statement[last + match.start() :]
    return ""


def _decoded(text: str) -> object:
    try:
        return tomllib.loads(text)
    except ValueError:
        return None


def _plain(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value
