"""The text of an upstream's error body in any shape: words and numbers, without judgement.

Imported by ``read``, which has the rules.
"""

import math
import re
from dataclasses import dataclass, replace
from typing import Any

from adapters.faults import MAX_RETRY_AFTER_S, clean_message
from adapters.json.jsonio import loads_loose

MAX_ERROR_BYTES = 65536  # of an error body; longer ones are HTML pages

_PARAM = re.compile(r"[a-z_][a-z0-9_.\[\]]{0,99}", re.ASCII | re.IGNORECASE)
_DURATION = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)s", re.ASCII)
_THREAD_CODE = re.compile(r"thread_[a-z_]{1,50}", re.ASCII)
_FEATURE = re.compile(r"[a-z_]{1,50}", re.ASCII)
MAX_FEATURES = 16  # that a thread does not support
_RETRY_INFO = "google.rpc.RetryInfo"  # the end of the type's URL in Google's details


@dataclass(frozen=True, slots=True)
class ErrorText:
    """The readable parts of an error body. Words for the rules are lower case."""

    message: str = ""  # as written
    names: frozenset[str] = frozenset()  # the error's type, code, status and reason
    status: int | None = None  # an HTTP status inside the body
    words: str = ""  # names and message in one, for rules about wording
    param: str | None = None  # the field it blames, if that is a path of names
    wait_s: int | None = None  # seconds, 1 to 60, until a retry may help
    code: str = ""  # its error code as written, otherwise the closest word
    page: bool = False  # an HTML page
    thread: dict[str, object] | None = None  # why a thread cannot go on, for clients that replay it


def bounded_s(seconds: float) -> int:
    """Return a wait in whole seconds, 1 to 60."""
    return min(max(math.ceil(seconds), 1), MAX_RETRY_AFTER_S)


def read_body(body: bytes) -> ErrorText:
    """Read an error body: JSON, an event stream whose first event is an error, or text."""
    text = body[:MAX_ERROR_BYTES].decode(errors="replace").strip()
    try:
        return read_error(loads_loose(body) if len(body) <= MAX_ERROR_BYTES else None)
    except ValueError:
        pass
    # An event stream whose first event is an error may also come with an error status.
    if text.startswith("data:") or "\ndata:" in text:
        line = text[text.index("data:") + 5 :].split("\n", 1)[0]
        try:
            return read_error(loads_loose(line.encode()))
        except ValueError:
            return ErrorText()
    if text.startswith("<"):
        return ErrorText(page=True)  # nothing in it is useful to a client
    return _error_text(text, [], None)


def read_error(error: object) -> ErrorText:
    """Read {"error":{…}}, [{"error":{…}}], {"detail"}, {"message"}, {"error":"…"}."""
    if isinstance(error, list):
        error = error[0] if error else None
    if not isinstance(error, dict):
        return _error_text(error if isinstance(error, str) else "", [], None)
    inner: Any = error.get("error")
    if not isinstance(inner, dict):
        # A responses stream may end in response.failed with the error one level deeper.
        response = error.get("response")
        inner = response.get("error") if isinstance(response, dict) else None
    places: list[dict[str, Any]] = [inner, error] if isinstance(inner, dict) else [error]
    message = ""
    for place in places:
        for name in ("message", "msg", "detail", "error"):
            if not message:
                message = _sentence(place.get(name))
    names: list[object] = []
    status: int | None = None
    for place in places:
        for name in ("type", "code", "status", "reason"):
            value = place.get(name)
            if isinstance(value, str) and value.isdecimal():
                value = int(value[:4])
            if isinstance(value, int) and not isinstance(value, bool) and status is None:
                status = value
            names.append(value)
    details = [entry for place in places for entry in _details(place.get("details"))]
    telling = [place.get("code") for place in places]
    telling += [entry.get("reason") for entry in details]
    telling += [place.get(name) for name in ("status", "type") for place in places]
    words = (word for word in telling if isinstance(word, str))
    code = next((word for word in words if word and not word.isdecimal()), "")
    for entry in details:
        names += (entry.get("reason"), entry.get("error_code"))
    text = _error_text(message, names, status)
    wait_s = _retry_delay_s(details)
    thread = next(filter(None, map(_thread, details)), None)
    return replace(text, param=_param_of(places[0]), wait_s=wait_s, code=code, thread=thread)


def _sentence(value: object) -> str:
    """Return a text, or the texts of FastAPI's list of invalid fields."""
    if not isinstance(value, list):
        return value if isinstance(value, str) else ""
    entries = [entry for entry in value[:20] if isinstance(entry, dict) and "msg" in entry]
    fields = [".".join(map(str, _list(entry.get("loc")))) for entry in entries]
    return "; ".join(f"{at}: {entry['msg']}" for at, entry in zip(fields, entries, strict=True))


def _list(value: object) -> list[object]:
    return value[:20] if isinstance(value, list) else []


def _thread(details: dict[str, Any]) -> dict[str, object] | None:
    """Return the error code about a thread, with the features that it does not support."""
    code, features = details.get("error_code"), details.get("unsupported")
    if not isinstance(code, str) or _THREAD_CODE.fullmatch(code) is None:
        return None
    if not isinstance(features, list):
        return {"error_code": code}
    named = [
        feature for feature in features if isinstance(feature, str) and _FEATURE.fullmatch(feature)
    ]
    return {"error_code": code, "unsupported": named[:MAX_FEATURES]}


def _details(details: object) -> list[dict[str, Any]]:
    """Return Google's list of details, or the single object that others send."""
    entries = details if isinstance(details, list) else [details]
    return [entry for entry in entries[:20] if isinstance(entry, dict)]


def _param_of(error: dict[str, Any]) -> str | None:
    param = error.get("param")
    if not isinstance(param, str) or _PARAM.fullmatch(param) is None:
        return None
    return param if clean_message(param) == param else None


def _retry_delay_s(details: list[dict[str, Any]]) -> int | None:
    """Return the wait of a RetryInfo, a duration like "34.07s"; None if there is none."""
    for entry in details:
        delay = entry.get("retryDelay")
        if str(entry.get("@type")).endswith(_RETRY_INFO) and isinstance(delay, str):
            match = _DURATION.fullmatch(delay)
            if match is not None:
                return bounded_s(float(match[1]))
    return None


def _error_text(message: str, names: list[object], status: int | None) -> ErrorText:
    words = frozenset(name.lower() for name in names if isinstance(name, str))
    return ErrorText(message, words, status, " ".join((*sorted(words), message.lower())))
