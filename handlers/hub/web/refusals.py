"""Refusals of the store in the page's language: the sentences that say what a name, a number, an
amount, a moment or a list must be. Others stay as they are."""

import re
from collections.abc import Mapping

from store.values.passwords import FAULTS

_NUMBER = r"(?P<{}>-?[\d.,]+)"
_FORMS: Mapping[str, str] = {
    "whole_number": "must be a whole number",
    "between": f"must be between {_NUMBER.format('least')} and {_NUMBER.format('most')}",
    "one_of": r"must be one of (?P<options>[^;]+)(?:; did you mean .*)?",
    "decimal": r'must be a decimal string like "(?P<example>[^"]+)"',
    "out_of_range": "is out of range",
    "moment": r'must be a time like "(?P<example>[^"]+)"',
    "name": r"must have 1 to (?P<most>\d+) printable characters and no space at an end",
    "address": r"must be a URL like (?P<example>\S+)",
    "too_many": r"has more than (?P<most>\d+) (?:elements|entries)",
    "negative": rf"\w+ {_NUMBER.format('amount')} must not be negative",
    "digits": r"'(?P<text>.*)' is no \w+: write digits and at most one point, like 12\.50",
    "decimals": rf"\w+ {_NUMBER.format('amount')} has more than (?P<most>\d+) decimals",
    "too_large": rf"\w+ {_NUMBER.format('amount')} is too large",
    "missing": r"(?P<field>\w+) is missing",
    "exists": r'[a-z]+ "(?P<name>[^"]*)" exists.*',
}
"""Sentences by the names of their words, `refused.NAME`."""
_PATTERNS = {name: re.compile(rf"(?:.*: )?{form}", re.DOTALL) for name, form in _FORMS.items()}


def refusal_in_words(words: Mapping[str, str], message: str) -> str:
    """Return a refusal with its values in the language of `words`; unknown ones as they are."""
    for fault, text in FAULTS.items():
        if message.endswith(text):
            return words[f"password_{fault}"]
    for name, pattern in _PATTERNS.items():
        if match := pattern.fullmatch(message):
            values = match.groupdict()
            if "field" in values:
                values["field"] = words.get(f"admin.f_{values['field']}", values["field"])
            return words[f"refused.{name}"].format(**values)
    return message
