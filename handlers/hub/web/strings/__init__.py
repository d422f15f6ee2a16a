"""The Hub's texts: one file a language, the same names in each (a test checks it)."""

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path

LANGUAGES: Mapping[str, str] = {"en": "English", "zh": "中文"}
DEFAULT = "en"
SHARED = "shared"


class Plural(str):
    """A value of a text; `{calls:call|calls}` is its singular for "1", else its plural."""

    __slots__ = ()

    def __format__(self, spec: str) -> str:
        singular, bar, plural = spec.partition("|")
        if not bar:
            return super().__format__(spec)
        return singular if self == "1" else plural


class PageText(str):
    """A text with values in braces."""

    __slots__ = ()

    def format(self, *args: object, **values: object) -> str:
        """Return it with its values, each in its number."""
        counted = {name: Plural(value) for name, value in values.items()}
        return super().format(*args, **counted)


@cache
def strings(language: str) -> Mapping[str, str]:
    """Return the texts of a language by name: `section.name`, or the name alone for the shared
    ones. Values in braces are filled in where they are used; `{calls:call|calls}` by a number."""
    path = Path(__file__).with_name(f"{language}.json")
    sections: dict[str, dict[str, str]] = json.loads(path.read_text(encoding="utf-8"))
    return {
        name if section == SHARED else f"{section}.{name}": PageText(text)
        for section, texts in sections.items()
        for name, text in texts.items()
    }


def preferred_language(cookie: str | None, accepted: str) -> str:
    """Return the language of a browser: of its cookie, else the first known one it accepts."""
    if cookie in LANGUAGES:
        return str(cookie)
    for part in accepted.split(","):
        code = part.partition(";")[0].strip().partition("-")[0].lower()
        if code in LANGUAGES:
            return code
    return DEFAULT
