"""docs/errors.md, written by hand: every condition is there, as families and SDKs have it."""

import json
import re
from pathlib import Path

import anthropic
import httpx2
import openai
import pytest
from google.genai import errors as genai_errors
from google.genai._api_client import _RETRY_HTTP_STATUS_CODES as GENAI_REPEATS

from adapters.faults import CODES, Condition, Fault
from adapters.registry import FAMILIES, FAMILY_NAMES
from adapters.upstream_errors.read import read_embedded_error, read_upstream_error

CHAT, RESPONSES, MESSAGES, GENERATE = FAMILY_NAMES
PAGE = (Path(__file__).resolve().parents[1] / "docs/errors.md").read_text()
HEADS = ["status", "raises", "retries", "headers", "message", "what to do", "No."]


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
IDS = [f"{family} {row['No.'][:3]}" for family, row in ROWS]


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


# ---- what families answer ------------------------------------------------------------------------


def envelope_of(family, number):
    fault = Fault(Condition(number), param="p", model="demo-large")
    return FAMILIES[family].client.encode_fault(fault, "01ABC")


@pytest.mark.parametrize(("family", "row"), ROWS, ids=IDS)
def test_a_row_is_what_the_family_answers(family, row):
    condition = Condition(row["No."][:3])
    envelope = envelope_of(family, condition)
    error = json.loads(envelope.body)["error"]
    assert row["status"] == str(envelope.status)
    recorded = f"`{CODES[condition]}`"
    if family in (CHAT, RESPONSES):
        assert row["type"] == f"`{error['type']}`"
        sent = f"`{error['code']}`"
        assert row["code"] == (sent if sent == recorded else f"{sent} (record: {recorded})")
    else:
        kind, name = ("type", "type") if family == MESSAGES else ("`status`", "status")
        assert row[kind] == f"`{error[name]}`"
        assert row["code of the record"] == recorded
    headers = [f"`{n}: {v}`" for n, v in envelope.headers.items() if n != "content-type"]
    assert row["headers"] == (", ".join(headers) or "–")


# ---- the SDKs ------------------------------------------------------------------------------------

CLIENTS = {
    CHAT: openai.OpenAI(api_key="x"),
    RESPONSES: openai.OpenAI(api_key="x"),
    MESSAGES: anthropic.Anthropic(api_key="x"),
}


def answer_of(family, number):
    envelope = envelope_of(family, number)
    request = httpx2.Request("POST", "http://gateway.example")
    return httpx2.Response(
        envelope.status, headers=envelope.headers, content=envelope.body, request=request
    )


@pytest.mark.parametrize(("family", "row"), ROWS, ids=IDS)
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
    assert row["retries"] == ("yes" if repeats else "no")


# ---- streams and upstreams -----------------------------------------------------------------------

STREAMS = {
    CHAT: "/completions",
    RESPONSES: "/responses",
    MESSAGES: "/messages",
    GENERATE: ":streamGenerateContent",
}


def errors_in_a_stream(name, condition):
    """The decoded events with which a stream of the family ends."""
    family = FAMILIES[name]
    operation = next(
        o for o in family.client.operations.values() if o.endpoint.endswith(STREAMS[name])
    )
    tap = family.upstream.stream_tap("m", "m", drop_usage=False, operation=operation)
    events = tap.encode_fault(Fault(condition), "01ABC").decode()
    return [json.loads(line[6:]) for line in events.splitlines() if line.startswith("data: ")]


def genai_class(status):
    with pytest.raises(genai_errors.APIError) as caught:
        genai_errors.APIError.raise_for_response(httpx2.Response(status, content=b"{}"))
    return type(caught.value).__name__


STREAM_ROWS = table(sections()["Failures inside a stream"])


@pytest.mark.parametrize("row", STREAM_ROWS, ids=[row["No."] for row in STREAM_ROWS])
def test_failures_in_a_stream(row):
    said = {name: errors_in_a_stream(name, Condition(row["No."])) for name in FAMILY_NAMES}
    chat, generate = said[CHAT][0]["error"], said[GENERATE][0]["error"]
    error, failed = said[RESPONSES]
    kind, code, last = error["error"]["type"], error["code"], failed["response"]["error"]["code"]
    assert row[CHAT] == f"`{chat['type']}` `{chat['code']}`"
    assert row[RESPONSES] == f"`{kind}` `{code}`, then `{last}`"
    assert row[MESSAGES] == f"`{said[MESSAGES][0]['error']['type']}`"
    raised = genai_class(generate["code"])
    assert row[GENERATE] == f"{generate['code']} `{generate['status']}` (`{raised}`)"
    assert "retry-after" not in row["what to do"]


READINGS = table(sections()["How upstream errors are read"])
# What an upstream may answer, by the beginning of its row: statuses (none: 200), the error object.
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
