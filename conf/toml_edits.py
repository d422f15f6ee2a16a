"""Changes one value in the text of a gateway.toml; its comments and all other lines stay.

Pure, but for `replace_file`. Where a key stands: toml_lines.py. tomllib says at the end whether the
text means what it should.
"""

import os
import re
import stat
import tomllib
from pathlib import Path

from conf.toml_lines import key_spans
from conf.values import toml

PRIVATE_MODE = 0o600


def with_value(text: str, section: str, key: str, value: object) -> str:
    """The text with `section.key = value`: in the place of the old value or of the line that shows
    the default, else at the head of the section.

    ValueError: the text is no TOML, or holds the section in a form that cannot be changed here.
    """
    try:
        document = tomllib.loads(text)
    except RecursionError:
        raise ValueError("not TOML: nested too deeply") from None
    table = document.get(section, {})
    if not isinstance(table, dict):
        raise ValueError(f"{section} is no section: edit the file by hand")
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
        raise ValueError(
            f"[{section}] is written in a form that cannot be changed: edit it by hand"
        )
    return changed


def replace_file(path: Path, text: str) -> None:
    """Put a text into an existing private file in one step; its owner and mode stay."""
    path = path.resolve()  # a link stays one
    there = path.stat()
    beside = path.with_name(f".{path.name}.new")
    beside.unlink(missing_ok=True)
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE_MODE)
    with open(descriptor, "w", encoding="utf-8", newline="") as file:
        if (there.st_uid, there.st_gid) != (os.geteuid(), os.getegid()):
            os.fchown(descriptor, there.st_uid, there.st_gid)
        os.fchmod(descriptor, stat.S_IMODE(there.st_mode))
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
    """A section without a header: `section.key = …`, or `section = { … }` with all its values."""
    if line.split("=")[0].strip() != section:
        (key, value), *_ = changed.items()
        return f"{section}.{key} = {toml(value)}"
    values = ", ".join(f"{key} = {toml(value)}" for key, value in {**table, **changed}.items())
    return f"{section} = {{ {values} }}"


def _is_header(line: str) -> bool:
    return line.lstrip().startswith("[")


def _shown_default(lines: list[str], start: int, key: str) -> int | None:
    """The index of the comment `#key = …` in the section whose first line has this index."""
    for number, line in enumerate(lines[start:], start):
        if _is_header(line):
            return None
        if re.match(rf"#{re.escape(key)}\s*=", line):
            return number
    return None


def _comment_of(statement: str) -> str:
    """The comment behind the value of a statement, with the blanks before it."""
    last = statement.rfind("\n") + 1
    for found in re.finditer(r"\s*#", statement[last:]):
        if _decoded(statement[: last + found.start()]) == _decoded(statement):
            return statement[last + found.start() :]
    return ""


def _decoded(text: str) -> object:
    try:
        return tomllib.loads(text)
    except ValueError:
        return None


def _plain(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value
