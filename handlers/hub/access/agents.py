"""Browsers by the names that people know them by."""

import re

BROWSERS = (  # the first that fits: many also name those below
    ("Edge", re.compile(r"\bEdgA?(?:iOS)?/(\d+)")),
    ("Opera", re.compile(r"\bOPR/(\d+)")),
    ("Samsung Internet", re.compile(r"\bSamsungBrowser/(\d+)")),
    ("Firefox", re.compile(r"\b(?:Firefox|FxiOS)/(\d+)")),
    ("Chrome", re.compile(r"\b(?:HeadlessChrome|Chrome|CriOS)/(\d+)")),
    ("Safari", re.compile(r"\bVersion/(\d+)[\d.]* (?:Mobile/\S+ )?Safari/")),
    ("curl", re.compile(r"^curl/(\d+)")),
)
SYSTEMS = (
    ("Android", "Android"),
    ("iPhone", "iPhone"),
    ("iPad", "iPad"),
    ("Windows", "Windows"),
    ("Mac OS", "macOS"),
    ("CrOS", "ChromeOS"),
    ("Linux", "Linux"),
)
SHOWN_CHARS = 40


def browser_of(agent: str) -> str:
    """A User-Agent in words, as `Firefox 141, Linux`; its beginning when it is not known."""
    for name, pattern in BROWSERS:
        if found := pattern.search(agent):
            system = next((called for mark, called in SYSTEMS if mark in agent), "")
            return f"{name} {found[1]}" + (f", {system}" if system else "")
    return agent[:SHOWN_CHARS] or "–"
