"""The Hub's texts: one file a language, the same names in each (a test checks it)."""

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path

LANGUAGES: Mapping[str, str] = {"en": "English", "zh": "中文"}
DEFAULT = "en"
SHARED = "shared"


@cache
def strings(language: str) -> Mapping[str, str]:
    """Return the texts of a language by name: `section.name`, or the name alone for the shared
    ones. Values in braces are filled in where they are used."""
    path = Path(__file__).with_name(f"{language}.json")
    sections: dict[str, dict[str, str]] = json.loads(path.read_text(encoding="utf-8"))
    return {
        name if section == SHARED else f"{section}.{name}": text
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
