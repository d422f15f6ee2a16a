"""The generator of docs/errors.md: every condition with each family's answer and the exception of
its SDK. The text around the tables is errors.md in this folder.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anthropic
import httpx2
import openai
from google.genai import errors as genai_errors
from google.genai._api_client import _RETRY_HTTP_STATUS_CODES as GENAI_RETRIES

from adapters.faults import CODES, Condition, Fault
from adapters.registry import FAMILIES, FAMILY_NAMES

PAGE = "docs/errors.md"
_TEMPLATE = Path(__file__).parent / "errors.md"
CHAT, RESPONSES, MESSAGES, GENERATE = FAMILY_NAMES
REQUEST_ID = "01ABC"


@dataclass(frozen=True)
class Row:
    """The remedy for a condition, and the arguments of its example fault."""

    remedy: str
    fault: Mapping[str, Any] = field(default_factory=dict)
    by_family: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


_VENDOR_TEXT = "{the vendor's message, masked}"


def _duplicated(path: str, base_url: str) -> str:
    return f"No such endpoint: the base URL already contains {path}; set it to {base_url}."


ROWS: Mapping[str, Row] = {
    "E01": Row("Send the key in the header that the message names."),
    "E02": Row("Write the header as `Authorization: Bearer KEY` and nothing else."),
    "E03": Row(
        "Copy the key again; it must be a key of this gateway, not of a vendor.",
        {"detail": "sk-slc-…wxyz"},
    ),
    "E04": Row("Ask the owner of the key or the operator, or create another key."),
    "E05": Row("Create another key, or have the expiry extended."),
    "E06": Row("Call from a network that the key allows, or have yours added."),
    "E07": Row("Use another entry of the group, or a key of another group.", {"detail": "basic"}),
    "E08": Row("Use a name from the list of models; names are case-sensitive."),
    "E09": Row("Retry after `retry-after`."),
    "E10": Row("Name a model."),
    "E11": Row(
        "Send one JSON object in UTF-8; the message gives the position of the error.",
        {"message": "The body is not valid JSON (line 1, column 17)."},
    ),
    "E12": Row(
        "Correct the field that the message names.",
        {"detail": "expected an array"},
        {
            CHAT: {"param": "messages[0].content"},
            RESPONSES: {"param": "input"},
            MESSAGES: {"param": "messages[0].content"},
            GENERATE: {"param": "contents"},
        },
    ),
    "E13": Row(
        "Add the field that the message names.",
        {},
        {
            CHAT: {"param": "messages"},
            RESPONSES: {"param": "input"},
            MESSAGES: {"param": "max_tokens"},
            GENERATE: {"param": "contents"},
        },
    ),
    "E14": Row("Leave the field out.", {"param": "n"}, {RESPONSES: {"param": "background"}}),
    "E15": Row(
        "Send less; the limit is `server.max_body_bytes`.",
        {"message": "The body is larger than 32 MiB."},
    ),
    "E16": Row("Send `content-type: application/json`."),
    "E17": Row("Send the body uncompressed."),
    "E18": Row("Add balance; a retry does not help."),
    "E19": Row(
        "Wait until that day, or have the plan or the key's limit changed.",
        {"message": "The subscription quota is used up until 2026-12-01."},
    ),
    "E20": Row(
        "Retry after `retry-after`; send less at once (docs/limits.md).",
        {"message": "Rate limit reached: 60 requests per minute. Try again in 3s."},
    ),
    "E21": Row(
        "Shorten the conversation or use a model with a larger context window.",
        {"message": _VENDOR_TEXT},
    ),
    "E22": Row(
        "Correct the request as the vendor's message says.",
        {"message": f"The upstream refused the request: {_VENDOR_TEXT}"},
    ),
    "E23": Row(
        "Change the prompt; the vendor does not answer this one.", {"message": _VENDOR_TEXT}
    ),
    "E24": Row(
        "Tell the operator: the vendor refuses the channel's key or does not know its model."
    ),
    "E25": Row("Retry after `retry-after`."),
    "E26": Row("Retry.", {"message": "The upstream failed with status 500."}),
    "E27": Row("Retry after `retry-after`, or use another model."),
    "E28": Row(
        "Retry only if the call may run, and cost, twice; a stream shows sooner that it is running."
    ),
    "E29": Row("Retry; if it persists, tell the operator."),
    "E30": Row("Retry; if it persists, tell the operator."),
    "E31": Row(
        "Set the base URL that the message names, or do not make this call.",
        {},
        {
            CHAT: {"message": "No such endpoint: POST /v1/chat/completion."},
            RESPONSES: {"message": "No such endpoint: POST /v1/response."},
            MESSAGES: {"message": "No such endpoint: POST /v1/messages/batches."},
            GENERATE: {"message": "No such endpoint: POST /v1beta/corpora."},
        },
    ),
    "E32": Row(
        "Set the base URL that the message names.",
        {},
        {
            CHAT: {"message": _duplicated("/v1/chat/completions", "{base_url}/v1")},
            RESPONSES: {"message": _duplicated("/v1/responses", "{base_url}/v1")},
            MESSAGES: {"message": _duplicated("/v1/messages", "{base_url}")},
            GENERATE: {"message": _duplicated("/v1beta", "{base_url}")},
        },
    ),
    "E33": Row("Use a method from the `allow` header."),
    "E35": Row("Send the content instead of its id.", {"detail": "resp_x"}),
    "E36": Row("Retry; send the body without pauses."),
    "E37": Row("Give the operator the request id: the log has the reason."),
    "E38": Row("Retry after `retry-after`; if it persists, tell the operator."),
    "E39": Row("Nothing: clients switch to POST by themselves."),
    "E40": Row(
        "Leave the field out, or use a key of a group that allows the feature (docs/document.md).",
        {"detail": "web_search", "param": "tools[0]"},
    ),
    "E41": Row(
        "Leave the field out, or have the operator set the price (docs/money.md).",
        {"detail": "tier.priority", "param": "service_tier"},
        {MESSAGES: {"detail": "speed.fast", "param": "speed"}, GENERATE: {"param": "serviceTier"}},
    ),
}

_TITLES = {
    CHAT: "SDK openai",
    RESPONSES: "SDK openai",
    MESSAGES: "SDK anthropic",
    GENERATE: "SDK google-genai",
}
_NOT_REACHED = {("E14", CHAT), ("E14", MESSAGES), ("E14", GENERATE)}
_ONLY_RESPONSES = {"E39"}
_STREAM_FAULTS = (*(f"E{number}" for number in range(21, 31)), "E35", "E37", "E38")
_STREAM_PATHS = {
    CHAT: "/completions",
    RESPONSES: "/responses",
    MESSAGES: "/messages",
    GENERATE: ":streamGenerateContent",
}


def page() -> str:
    """Return the text of docs/errors.md."""
    tables = [
        f"## {family} ({_TITLES[family]})\n\n{_family_table(family)}" for family in FAMILY_NAMES
    ]
    text = _TEMPLATE.read_text(encoding="utf-8")
    text = text.replace("@families@\n", "\n".join(tables))
    return text.replace("@streams@\n", _stream_table())


def _family_table(family: str) -> str:
    kind = "`status`" if family == GENERATE else "type"
    code = "code" if family in (CHAT, RESPONSES) else "code of the record"
    head = ("status", kind, code, "raises", "retries", "headers", "message", "what to do", "No.")
    rows = [
        _cells(family, number)
        for number in ROWS
        if family == RESPONSES or number not in _ONLY_RESPONSES
    ]
    return _table(head, sorted(rows, key=lambda row: (row[0], row[2], row[-1])))


def _cells(family: str, number: str) -> tuple[str, ...]:
    row = ROWS[number]
    condition = Condition(number)
    arguments = {"model": "demo-large", **row.fault, **row.by_family.get(family, {})}
    envelope = FAMILIES[family].client.encode_fault(Fault(condition, **arguments), REQUEST_ID)
    error = json.loads(envelope.body)["error"]
    recorded = f"`{CODES[condition]}`"
    if family in (CHAT, RESPONSES):
        kind, code = error["type"], f"`{error['code']}`"
        if code != recorded:
            code = f"{code} (record: {recorded})"
    else:
        kind, code = error["type" if family == MESSAGES else "status"], recorded
    headers = [f"`{n}: {v}`" for n, v in envelope.headers.items() if n != "content-type"]
    raised, retries = _CLIENTS[family](envelope.status, envelope.headers, envelope.body)
    return (
        str(envelope.status),
        f"`{kind}`",
        code,
        f"`{raised}`",
        "yes" if retries else "no",
        ", ".join(headers) or "–",
        error["message"],
        row.remedy,
        f"{number} *not reached yet*" if (number, family) in _NOT_REACHED else number,
    )


def _stream_table() -> str:
    rows = []
    for number in _STREAM_FAULTS:
        events = {family: _stream_errors(family, number) for family in FAMILY_NAMES}
        chat, generate = events[CHAT][0]["error"], events[GENERATE][0]["error"]
        error, failed = events[RESPONSES]
        raised, _ = _raised_by_genai(generate["code"], {}, b"{}")
        last = failed["response"]["error"]["code"]
        rows.append(
            (
                number,
                f"`{chat['type']}` `{chat['code']}`",
                f"`{error['error']['type']}` `{error['code']}`, then `{last}`",
                f"`{events[MESSAGES][0]['error']['type']}`",
                f"{generate['code']} `{generate['status']}` (`{raised}`)",
                ROWS[number].remedy.replace("after `retry-after`", "later"),
            )
        )
    return _table(("No.", *FAMILY_NAMES, "what to do"), rows)


def _stream_errors(family: str, number: str) -> list[dict[str, Any]]:
    """Return the decoded events with which a stream of the family ends."""
    operation = next(
        operation
        for operation in FAMILIES[family].client.operations.values()
        if operation.endpoint.endswith(_STREAM_PATHS[family])
    )
    tap = FAMILIES[family].upstream.stream_tap("m", "m", drop_usage=False, operation=operation)
    events = tap.encode_fault(Fault(Condition(number)), REQUEST_ID).decode()
    return [json.loads(line[6:]) for line in events.splitlines() if line.startswith("data: ")]


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [f"| {' | '.join(cells)} |\n" for cells in (head, *rows)]
    return "".join([lines[0], "|", "---|" * len(head), "\n", *lines[1:]])


# ---- the SDKs: the class that is raised, and whether the SDK retries ----------------------------

Raised = tuple[str, bool]


def _raised_by(client: Any) -> Callable[[int, Mapping[str, str], bytes], Raised]:
    def raised(status: int, headers: Mapping[str, str], body: bytes) -> Raised:
        answer = _response(status, headers, body)
        error = client._make_status_error("m", body=json.loads(body), response=answer)
        return type(error).__name__, client._should_retry(answer)

    return raised


def _raised_by_genai(status: int, headers: Mapping[str, str], body: bytes) -> Raised:
    try:
        genai_errors.APIError.raise_for_response(_response(status, headers, body))
    except genai_errors.APIError as error:
        return type(error).__name__, status in GENAI_RETRIES
    raise ValueError(f"google-genai raises nothing for {status}")


def _response(status: int, headers: Mapping[str, str], body: bytes) -> httpx2.Response:
    request = httpx2.Request("POST", "http://gateway.example")
    return httpx2.Response(status, headers=headers, content=body, request=request)


_CLIENTS = {
    CHAT: _raised_by(openai.OpenAI(api_key="x")),
    RESPONSES: _raised_by(openai.OpenAI(api_key="x")),
    MESSAGES: _raised_by(anthropic.Anthropic(api_key="x")),
    GENERATE: _raised_by_genai,
}
