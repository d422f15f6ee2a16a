"""Tables for people, at full width or fitted to a terminal. Pure except for `room`.

In a narrow terminal cells are wrapped, if possible at commas, slashes and the like, so that ids can
still be copied. Columns that still do not fit are left out, the last ones first.
"""

import re
import shutil
from collections.abc import Iterator, Sequence
from itertools import zip_longest

GAP = "  "
WHOLE_CHARS = 26
"""Text pieces up to this length are never broken: an id."""

_PIECES = re.compile(r"[^ ,/=@]*[ ,/=@]|[^ ,/=@]+")
_TIME_PIECES = re.compile(r"(\d{4}-\d\d-\d\dT)(.+)")

Line = Sequence[str]


def room() -> int:
    """Return the columns of the terminal (or of COLUMNS). Return 0, which means no limit, if
    standard output is no terminal."""
    return shutil.get_terminal_size((0, 0)).columns


def fitted(head: Line, rows: Sequence[Line], width: int) -> tuple[list[str], list[str]]:
    """Return the lines of a table, and the names of the columns left out. `width` 0: no limit."""
    count = len(head)
    while True:
        columns = [[line[number] for line in (head, *rows)] for number in range(count)]
        widths = _widths(columns, width)
        if not width or count == 1 or _total(widths) <= width:
            break
        count -= 1
    lines = [text for line in (head, *rows) for text in _lines(line[:count], widths)]
    return lines, list(head[count:])


def _widths(columns: Sequence[Sequence[str]], width: int) -> list[int]:
    """Return natural widths, the widest ones narrowed until all fit, but not below their longest
    piece."""
    widths = [max(map(len, column)) for column in columns]
    least = [min(max(map(_longest_piece, column)), WHOLE_CHARS) for column in columns]
    while width and _total(widths) > width:
        widest = max(range(len(widths)), key=lambda n: (widths[n] > least[n], widths[n]))
        if widths[widest] <= least[widest]:
            break
        widths[widest] -= 1
    return widths


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + len(GAP) * (len(widths) - 1)


def _longest_piece(text: str) -> int:
    return max((len(piece.rstrip()) for piece in _pieces(text)), default=0)


def _pieces(text: str) -> list[str]:
    """Split a text at the places where a line may break."""
    time = _TIME_PIECES.fullmatch(text)
    return list(time.groups()) if time else _PIECES.findall(text)


def _lines(cells: Line, widths: Sequence[int]) -> Iterator[str]:
    """Yield the lines of one row, as many as its highest cell has."""
    wrapped = [_wrapped(cell, width) for cell, width in zip(cells, widths, strict=True)]
    for parts in zip_longest(*wrapped, fillvalue=""):
        padded = (part.ljust(width) for part, width in zip(parts, widths, strict=True))
        yield GAP.join(padded).rstrip()


def _wrapped(text: str, width: int) -> list[str]:
    if len(text) <= width:
        return [text]
    lines = [""]
    for piece in _pieces(text):
        if len(lines[-1]) + len(piece.rstrip()) > width and lines[-1]:
            lines.append("")
        rest = piece
        while len(rest.rstrip()) > width:
            lines[-1], rest = rest[:width], rest[width:]
            lines.append("")
        lines[-1] += rest
    return [line.rstrip() for line in lines if line.strip()]
