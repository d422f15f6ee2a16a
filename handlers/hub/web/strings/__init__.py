"""The Hub's texts: one file per language, with the same names in each (checked by a test)."""

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path

LANGUAGES: Mapping[str, str] = {"en": "English", "zh": "中文"}
DEFAULT = "en"
SHARED = "shared"


class Plural(str):
    """A value in a text. `{calls:call|calls}` formats as the singular if the value is "1",
    otherwise as the plural."""

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
        """Return the text with its values filled in. Values can select singular or plural."""
        counted = {name: Plural(value) for name, value in values.items()}
        return super().format(*args, **counted)


@cache
def strings(language: str) -> Mapping[str, str]:
    """Return the texts of a language by name: `section.name`, or just the name for shared texts.
    Values in braces are filled in at use; `{calls:call|calls}` selects the singular or plural."""
    path = Path(__file__).with_name(f"{language}.json")
    sections: dict[str, dict[str, str]] = json.loads(path.read_text(encoding="utf-8"))
    return {
        name if section == SHARED else f"{section}.{name}": PageText(text)
        for section, texts in sections.items()
        for name, text in texts.items()
    }


def preferred_language(cookie: str | None, accepted: str) -> str:
    """Return the language for a browser: that of its cookie, or the first supported one in
    Accept-Language."""
    if cookie in LANGUAGES:
        return str(cookie)
    for part in accepted.split(","):
        code = part.partition(";")[0].strip().partition("-")[0].lower()
        if code in LANGUAGES:
            return code
    return DEFAULT
