"""docs/errors.md: whole, readable in one place, and right about the SDKs."""

import json
import re

import anthropic
import httpx2
import openai
import pytest
from google.genai import errors as genai_errors
from google.genai._api_client import _RETRY_HTTP_STATUS_CODES as GENAI_REPEATS

from adapters.faults import CODES, Condition, Fault
from adapters.registry import FAMILIES, FAMILY_NAMES
from commands.nouns import error_docs

CHAT, RESPONSES, MESSAGES, GENERATE = FAMILY_NAMES
PAGE = error_docs.page()
HEADS = ["status", "raises", "repeats", "headers", "message", "what to do", "No."]


def sections():
    """{title: its lines}"""
    parts = re.split(r"^## (.+)$", PAGE, flags=re.MULTILINE)
    return dict(zip(parts[1::2], (part.splitlines() for part in parts[2::2]), strict=True))


def table(lines):
    """The rows of the one table among lines, each a dictionary."""
    rows = [line[2:-2].split(" | ") for line in lines if line.startswith("| ")]
    assert len({len(row) for row in rows}) == 1
    return [dict(zip(rows[0], row, strict=True)) for row in rows[1:]]


def rows_of(family):
    [lines] = [lines for title, lines in sections().items() if title.startswith(f"{family} (")]
    return table(lines)


ROWS = [(family, row) for family in FAMILY_NAMES for row in rows_of(family)]


@pytest.mark.parametrize("family", FAMILY_NAMES)
def test_every_condition_has_its_row_in_every_family_that_can_meet_it(family):
    numbers = [row["No."][:3] for row in rows_of(family)]
    assert len(set(numbers)) == len(numbers)
    expected = {condition.value for condition in Condition}
    assert set(numbers) == (expected if family == RESPONSES else expected - {"E39"})


def test_rows_are_found_by_status_and_code():
    for family in FAMILY_NAMES:
        rows = rows_of(family)
        status, _, code, *_ = rows[0]
        assert status == "status" and set(HEADS) <= set(rows[0])
        assert rows == sorted(rows, key=lambda row: (row["status"], row[code]))


@pytest.mark.parametrize("row", [row for _, row in ROWS])
def test_a_row_says_what_happened_and_what_to_do(row):
    assert row["message"] and row["what to do"].endswith(".")
    assert "None" not in row["message"]


def test_what_nothing_leads_to_yet_is_marked():
    marked = {(family, row["No."]) for family, row in ROWS if "yet" in row["No."]}
    later = {(f, "E14 *not reached yet*") for f in FAMILY_NAMES if f != RESPONSES}
    assert marked == later


# ---- the SDKs ------------------------------------------------------------------------------------

CLIENTS = {
    CHAT: openai.OpenAI(api_key="x"),
    RESPONSES: openai.OpenAI(api_key="x"),
    MESSAGES: anthropic.Anthropic(api_key="x"),
}


def answer_of(family, number):
    fault = Fault(Condition(number), param="p")
    envelope = FAMILIES[family].encode_fault(fault, "01ABC")
    request = httpx2.Request("POST", "http://gateway.example")
    return httpx2.Response(
        envelope.status, headers=envelope.headers, content=envelope.body, request=request
    )


@pytest.mark.parametrize(("family", "row"), ROWS, ids=[f"{f} {r['No.'][:3]}" for f, r in ROWS])
def test_the_sdk_raises_and_repeats_what_the_row_says(family, row):
    answer = answer_of(family, row["No."][:3])
    if family == GENERATE:
        with pytest.raises(genai_errors.APIError) as caught:
            genai_errors.APIError.raise_for_response(answer)
        raised, repeats = caught.value, answer.status_code in GENAI_REPEATS
    else:
        client = CLIENTS[family]
        body = json.loads(answer.content)
        raised = client._make_status_error("m", body=body, response=answer)
        repeats = client._should_retry(answer)
    assert row["raises"] == f"`{type(raised).__name__}`"
    assert row["repeats"] == ("yes" if repeats else "no")
    assert row["status"] == str(answer.status_code)


# ---- streams and upstreams -----------------------------------------------------------------------


def test_failures_in_a_stream():
    rows = {row["No."]: row for row in table(sections()["Failures inside a stream"])}
    assert [Condition(number) for number in rows] == list(error_docs.IN_STREAM)
    assert rows["E27"][CHAT] == "`server_error` `upstream_overloaded`"
    assert rows["E27"][RESPONSES] == "`server_error` `server_is_overloaded`, then `server_error`"
    assert rows["E27"][MESSAGES] == "`overloaded_error`"
    assert rows["E27"][GENERATE] == "503 `UNAVAILABLE` (`ServerError`)"
    assert rows["E24"][GENERATE] == "500 `INTERNAL` (`ServerError`)"
    assert rows["E25"][GENERATE] == "429 `RESOURCE_EXHAUSTED` (`ClientError`)"
    assert rows["E28"][MESSAGES] == "`timeout_error`"
    assert not any("retry-after" in row["what to do"] for row in rows.values())


def test_how_upstreams_are_read():
    rows = table(sections()["How upstream errors are read"])
    told = {row["the upstream"]: (row["is told as"][:3], row["another channel is asked"])
            for row in rows}  # fmt: skip
    assert told["400, 413, 422 and other 4xx"] == ("E22", "no")
    assert told["401, 402, 403; 405, 407, 410, 421"] == ("E24", "yes")
    assert told["404 with the id of a file, a response, a conversation"] == ("E35", "no")
    assert told["504; any 5xx with `DEADLINE_EXCEEDED`"] == ("E28", "no")
    assert told["closed or reset before the head"] == ("E26", "yes")
    numbers = {number for number, _ in told.values()}
    assert numbers == {*(f"E{n}" for n in range(21, 31)), "E35"}
    for row in rows:
        number, code = row["is told as"].split()
        assert code == f"`{CODES[Condition(number)]}`"


def test_a_reading_whose_statuses_differ_is_not_written():
    reading = error_docs._Reading("these two", (400, 401))
    with pytest.raises(ValueError, match="these two"):
        error_docs._reading_row(reading)
