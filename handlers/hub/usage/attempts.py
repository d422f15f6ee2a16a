"""The attempts of a call: why each failed in words that name no vendor, and where each lies on the
line of time."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from handlers.hub.web.formats import code_word

AXIS_PARTS = 4
LANE_PX, TOP_PX = 36, 26
LATE_PERCENT = 55.0  # from here on words stand left of their place
LONG_PERCENT = 75.0  # an attempt so long has its name at its beginning
FLOW_UNITS = 1000  # the width of the drawing of the flow line
STEP_UNITS = 28  # of it for the step down to the next attempt

_CONDITIONS: Mapping[str, str] = {
    **dict.fromkeys(("connect", "tls", "timeout_connect"), "upstream_unreachable"),
    **dict.fromkeys(("timeout_first_byte", "upstream_timeout"), "upstream_timeout"),
    **dict.fromkeys(("too_large", "protocol"), "upstream_invalid_response"),
    **dict.fromkeys(("truncated", "timeout_idle", "upstream_truncated"), "upstream_truncated"),
    "reset_before_head": "upstream_error",
    "ca_file": "channel_misconfigured",
}
"""Of ways in which a transfer fails the condition that the client is told."""


@dataclass(frozen=True, slots=True)
class Lane:
    """An attempt on the line of time; places in percent of the whole. `detail`: why it failed;
    empty when it did not, or when nothing more is known than its status."""

    name: str
    begin: float
    end: float
    shape: str
    said: str
    attempt: Mapping[str, Any]
    top: int
    detail: str

    @property
    def long(self) -> bool:
        """Whether its name fits at its beginning and what became of it at its end."""
        return self.end - self.begin >= LONG_PERCENT


def details(row: Mapping[str, Any], words: Mapping[str, str]) -> list[str]:
    """Why each attempt of a call failed, as anybody may know it: the condition and never what the
    upstream said. Of the last one, where it has no condition of an upstream, the sentence that the
    caller got. Empty for one that went well."""
    attempts = json.loads(row["attempts"] or "[]")
    found = [_condition(words, one.get("error")) for one in attempts]
    if found and row["outcome"] != "ok" and attempts[-1].get("error") == row["error_code"]:
        found[-1] = found[-1] or row["error_message"] or ""
    errors = [one.get("error") for one in attempts]
    return [said or code_word(words, of) or "" for said, of in zip(found, errors, strict=True)]


def _condition(words: Mapping[str, str], error: str | None) -> str:
    return words.get(f"usage.tried_{_CONDITIONS.get(error or '', error)}", "")


def lanes(row: Mapping[str, Any], words: Mapping[str, str], *, admin: bool) -> list[Lane]:
    """The attempts of a call; a member sees no names of channels."""
    attempts = json.loads(row["attempts"] or "[]")
    whole_ms = max(row["duration_ms"] or 0, sum(one.get("ms", 0) for one in attempts), 1)
    made, at_ms = list[Lane](), 0
    for number, (one, detail) in enumerate(zip(attempts, details(row, words), strict=True), 1):
        last = number == len(attempts)
        ended_ms = whole_ms if last else min(at_ms + one.get("ms", 0), whole_ms)
        shape, said = _end_of(row, one, words, ended_ms - at_ms)
        name = one["channel"] if admin else words["usage.attempt"].format(number=number)
        begin, end = 100 * at_ms / whole_ms, 100 * ended_ms / whole_ms
        top = TOP_PX + (number - 1) * LANE_PX
        made.append(Lane(name, begin, end, shape, said, one, top, detail))
        at_ms = ended_ms
    return made


def _end_of(
    row: Mapping[str, Any], one: Mapping[str, Any], words: Mapping[str, str], took_ms: int
) -> tuple[str, str]:
    """The shape at the end of an attempt, and its words."""
    error, status = one.get("error"), one.get("status")
    what = str(status) if status else code_word(words, _CONDITIONS.get(error or "", error)) or ""
    if error is None and row["outcome"] == "ok":
        return "ok", ", ".join(filter(None, (what, words["usage.complete"])))
    shape = "idle" if row["outcome"] == "client_gone" and error is None else "bad"
    if error is None:
        what = words["codes.outcome_" + row["outcome"]]
    return shape, words["usage.after"].format(what=what, seconds=f"{took_ms / 1000:,.2f}")


def flow(made: Sequence[Lane]) -> str:
    """The path of the flow line in FLOW_UNITS: along each attempt, and from its end one step down
    to the next."""
    parts = []
    for number, one in enumerate(made):
        end = one.end * FLOW_UNITS / 100
        if number == 0:
            parts.append(f"M0 {one.top}")
        else:
            start, above = one.begin * FLOW_UNITS / 100, made[number - 1].top
            step = min(STEP_UNITS, max(end - start, 0))
            near, far, landed = start + step / 2, start + step / 4, start + step
            parts.append(f"C{near:.1f} {above} {far:.1f} {one.top} {landed:.1f} {one.top}")
        parts.append(f"H{end:.1f}")
    return "".join(parts)


def height(made: Sequence[Lane]) -> int:
    """Of the drawing with its axis."""
    return TOP_PX + max(len(made), 1) * LANE_PX


def axis(row: Mapping[str, Any]) -> list[tuple[float, str]]:
    """FairThreads in percent and their seconds."""
    whole_ms = row["duration_ms"] or 0
    parts = range(AXIS_PARTS + 1)
    return [(100 * n / AXIS_PARTS, f"{whole_ms * n / AXIS_PARTS / 1000:,.2f}") for n in parts]
