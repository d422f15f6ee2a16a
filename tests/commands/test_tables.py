"""Tables on terminals: everything fits, ids stay whole, omitted columns are named."""

import random

import pytest

from commands.tables import fitted

ID = "01M86Z0SQ3FDQ7M915JFYFY935"
TIME = "2026-11-24T14:36:28.123Z"
HEAD = ("id", "user", "name", "group", "status", "secret", "expires_at")
ROW = (ID, "alice", "the key of a laptop", "default", "active", "sk-slc-abc…wxyz", TIME)


def test_without_a_terminal_and_in_a_wide_one_it_is_as_wide_as_it_is():
    lines, left_out = fitted(HEAD, [ROW], 0)
    assert len(lines) == 2 and left_out == []
    assert lines[1].split("  ") == [cell for cell in ROW if cell]
    assert fitted(HEAD, [ROW], 200) == (lines, left_out)


def test_cells_are_wrapped_where_they_can_be():
    lines, left_out = fitted(("name", "models"), [("a", "gpt-4.1,gpt-5,claude,gemini-3")], 24)
    assert left_out == []
    assert lines == ["name  models", "a     gpt-4.1,gpt-5,", "      claude,gemini-3"]


def test_ids_stay_whole_and_times_break_at_their_day():
    lines, left_out = fitted(HEAD, [ROW], 80)
    assert max(map(len, lines)) <= 80
    assert lines[1].startswith(ID + "  alice")
    assert left_out in ([], ["expires_at"], ["secret", "expires_at"])
    lines, left_out = fitted(("id", "expires_at"), [(ID, TIME)], 45)
    assert lines[1:] == [f"{ID}  2026-11-24T", f"{' ' * 26}  14:36:28.123Z"] and not left_out


def test_a_long_name_is_broken_anywhere():
    lines, _ = fitted(("name", "n"), [("x" * 128, "1")], 40)
    assert max(map(len, lines)) <= 40
    assert "".join(line.split("  ")[0].strip() for line in lines[1:]) == "x" * 128


@pytest.mark.parametrize("seed", range(30))
def test_nothing_is_lost_and_nothing_is_too_wide(seed):
    chance = random.Random(seed)

    def cell():
        return "".join(chance.choices("abcdefgh ,/-.", k=chance.randint(1, 60))).strip() or "-"

    head = [f"c{number}" for number in range(chance.randint(1, 12))]
    rows = [[cell() for _ in head] for _ in range(5)]
    lines, left_out = fitted(head, rows, 80)
    assert max(map(len, lines)) <= 80
    kept = len(head) - len(left_out)
    assert list(head[kept:]) == left_out
    shown = sorted("".join(lines).replace(" ", ""))
    cells = [*head[:kept], *(text for row in rows for text in row[:kept])]
    assert shown == sorted("".join(cells).replace(" ", ""))
