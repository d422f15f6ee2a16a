"""Readers of usage in answers of endpoints, and the charges if nothing is reported.

Facts: the types of the official SDKs of OpenAI, Cohere and Jina. A reader gets the short fields of
an answer, or an event.
"""

from collections.abc import Callable, Mapping
from typing import Any

from adapters.family import Peek
from adapters.family.counts import MAX_USES, Kinds, Tokens, extras_of, fields_in, kinds_of
from store.values.usage import MAX_TOKENS, Usage, more_counts, token_count

_MS_PER_S = 1000
_MAX_SECONDS = 1_000_000
HasPrice = Callable[[str], bool]


def input_usage(answer: Mapping[str, Any]) -> Usage | None:
    """Return the tokens of an answer without output: ``prompt_tokens``, or only the total."""
    usage = fields_in(answer, "usage")
    tokens = token_count(usage.get("prompt_tokens"))
    if tokens is None:
        tokens = token_count(usage.get("total_tokens"))
    if tokens is None:
        return None
    details = kinds_of(fields_in(usage, "prompt_tokens_details"))
    return Tokens(tokens, 0, input_kinds=details).usage(extras=extras_of(usage))


def search_usage(answer: Mapping[str, Any]) -> Usage | None:
    """Return the search units that Cohere bills, or the tokens that others report."""
    units = token_count(fields_in(answer.get("meta"), "billed_units").get("search_units"))
    if units is None:
        return input_usage(answer)
    return _use("search_unit", min(units, MAX_USES))


def _kind_usage(answer: Mapping[str, Any], kind: str) -> Usage | None:
    """Return counts in the field names of OpenAI's newer endpoints. Output without details counts
    as ``kind``."""
    usage = fields_in(answer, "usage")
    inputs, outputs = (token_count(usage.get(f"{side}_tokens")) for side in ("input", "output"))
    if inputs is None or outputs is None:
        return None
    details = fields_in(usage, "input_tokens_details") or fields_in(usage, "input_token_details")
    kinds: Kinds = kinds_of(fields_in(usage, "output_tokens_details"))
    if kind and not kinds:
        kinds = {kind: outputs}
    tokens = Tokens(inputs, outputs, input_kinds=kinds_of(details), output_kinds=kinds)
    return tokens.usage(extras=extras_of(usage))


def image_usage(answer: Mapping[str, Any]) -> Usage | None:
    """Return the tokens of pictures, by modality."""
    return _kind_usage(answer, "image")


def speech_usage(answer: Mapping[str, Any]) -> Usage | None:
    """Return the tokens of speech, from its last event."""
    return _kind_usage(answer, "audio")


def transcript_usage(answer: Mapping[str, Any]) -> Usage | None:
    """Return the tokens of a transcription, or the seconds of its sound."""
    usage = _kind_usage(answer, "")
    if usage is not None:
        return usage
    seconds = fields_in(answer, "usage").get("seconds")
    return _seconds(answer.get("duration") if seconds is None else seconds)


def _seconds(value: object) -> Usage | None:
    """Return the usage of seconds of sound, a number or text; None if the value is neither."""
    try:
        seconds = float(value) if isinstance(value, int | float | str) else -1.0
    except ValueError:
        return None
    if isinstance(value, bool) or not 0 <= seconds <= _MAX_SECONDS:
        return None
    return _use("audio_second", round(seconds * _MS_PER_S))


def _use(meter: str, count: int) -> Usage:
    return Usage(more=more_counts({meter: min(count, MAX_TOKENS)}))


def no_charge(peek: Peek, inputs: int, units: int, has_price: HasPrice) -> Usage:
    """Return no usage: free unless there is a price per call."""
    return Usage()


def uses_of_request(peek: Peek, inputs: int, units: int, has_price: HasPrice) -> Usage:
    """Return the uses that the request determines: characters, milliseconds of sound."""
    return Usage(more=peek.asks.uses)


def pictures_of_answer(peek: Peek, inputs: int, units: int, has_price: HasPrice) -> Usage:
    """Return the pictures counted in the answer."""
    return _use("image", units)


def one_search(peek: Peek, inputs: int, units: int, has_price: HasPrice) -> Usage:
    """Return one search unit if that has a price, otherwise the estimated tokens."""
    return _use("search_unit", 1) if has_price("search_unit") else Usage(inputs)
