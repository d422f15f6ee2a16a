"""The Hub's words: one file a language, the same names in each (a test holds it)."""

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path

LANGUAGES: Mapping[str, str] = {"en": "English", "zh": "中文"}
DEFAULT = "en"
SHARED = "shared"


@cache
def strings(language: str) -> Mapping[str, str]:
    """The sentences of a language, by name: `room.word`, or the word alone for those that all rooms
    share. Values in braces are filled in where they are used."""
    path = Path(__file__).with_name(f"{language}.json")
    rooms: dict[str, dict[str, str]] = json.loads(path.read_text(encoding="utf-8"))
    return {
        word if room == SHARED else f"{room}.{word}": sentence
        for room, words in rooms.items()
        for word, sentence in words.items()
    }


def chosen(cookie: str | None, accepted: str) -> str:
    """The language of a browser: by its cookie, else the first it accepts that there is."""
    if cookie in LANGUAGES:
        return str(cookie)
    for part in accepted.split(","):
        code = part.partition(";")[0].strip().partition("-")[0].lower()
        if code in LANGUAGES:
            return code
    return DEFAULT
