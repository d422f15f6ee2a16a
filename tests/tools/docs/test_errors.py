"""docs/errors.md: every condition is there, and the described reading of upstream errors matches
the code.

The tables of conditions are generated; tests/test_docs.py keeps them up to date.
"""

import json
import re
from pathlib import Path

import pytest

from adapters.faults import CODES, Condition
from adapters.registry import FAMILY_NAMES
from adapters.upstream_errors.read import read_embedded_error, read_upstream_error

_, RESPONSES, *_ = FAMILY_NAMES
PAGE = (Path(__file__).resolve().parents[3] / "docs/errors.md").read_text()


def sections():
    """Return {title: its lines}."""
    parts = re.split(r"^## (.+)$", PAGE, flags=re.MULTILINE)
    return dict(zip(parts[1::2], (part.splitlines() for part in parts[2::2]), strict=True))


def table(lines):
    """Return the rows of the one table among lines, each a dictionary."""
    rows = [line[2:-2].split(" | ") for line in lines if line.startswith("| ")]
    assert len({len(row) for row in rows}) == 1
    return [dict(zip(rows[0], row, strict=True)) for row in rows[1:]]


def rows_of(family):
    [lines] = [lines for title, lines in sections().items() if title.startswith(f"{family} (")]
    return table(lines)


@pytest.mark.parametrize("family", FAMILY_NAMES)
def test_every_condition_has_its_row_in_every_family_that_can_meet_it(family):
    numbers = [row["No."][:3] for row in rows_of(family)]
    assert len(set(numbers)) == len(numbers)
    expected = {condition.value for condition in Condition}
    assert set(numbers) == (expected if family == RESPONSES else expected - {"E39"})


READINGS = table(sections()["How upstream errors are read"])
# Answers of an upstream, by the start of their row: statuses (none: 200), the error object.
UPSTREAMS = {
    "400, 413, 422 and": ((400, 413, 415, 422), {}),
    "the same, with words on the length": ((400, 413), {"code": "context_length_exceeded"}),
    "the same, with words on a policy": ((400,), {"code": "content_policy_violation"}),
    "the same, with words on the key": ((400,), {"message": "API key not valid"}),
    "the same, with `previous_resp": ((400, 404), {"code": "previous_response_not_found"}),
    "401, 402, 403;": ((401, 402, 403, 405, 407, 410, 421), {}),
    "404": ((404,), {}),
    "404 with": ((404,), {"message": "No such file: file-abc123"}),
    "429": ((429,), {}),
    "429 with": ((429,), {"code": "insufficient_quota"}),
    "408, 409, 425, 499;": ((408, 409, 425, 499, 500, 501, 502, 520, 526), {}),
    "503, 529;": ((503, 529), {}),
    "504;": ((504,), {}),
    "a redirect": ((301, 302, 307, 308), {}),
    "200 with an error inside": ((), {"type": "overloaded_error"}),
    "200 with HTML": ((), {}),
}


@pytest.mark.parametrize("start", UPSTREAMS)
def test_how_upstream_errors_are_read(start):
    whole = [row for row in READINGS if row["the upstream"] == start]
    [row] = whole or [row for row in READINGS if row["the upstream"].startswith(start)]
    statuses, error = UPSTREAMS[start]
    body = {"error": error}
    read = [read_upstream_error(status, {}, json.dumps(body).encode()) for status in statuses]
    for one in read or [read_embedded_error(body)]:
        assert row["reported as"].startswith(one.fault.condition.value)
        assert row["fails over"] == ("yes" if one.fail_over else "no")


def test_readings_name_conditions_and_their_codes():
    told = [row["reported as"].split() for row in READINGS]
    assert {number for number, _ in told} == {*(f"E{n}" for n in range(21, 31)), "E35"}
    for number, code in told:
        assert code == f"`{CODES[Condition(number)]}`"
