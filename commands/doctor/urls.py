"""Base URLs with a path that clients append themselves. Pure."""

import re

ENDINGS = (
    *("/chat/completions", "/responses", "/messages", "/messages/count_tokens", "/models"),
    *("/v1", "/v1beta"),
)
_MODEL_CALL = re.compile(r"/models/[^/]+:[A-Za-z]+$")


def without_endpoint(url: str) -> str:
    """The address without versions and endpoints at its end: what clients are to be given."""
    right = _MODEL_CALL.sub("", url.rstrip("/"))
    while ending := next((one for one in ENDINGS if right.endswith(one)), ""):
        right = right.removesuffix(ending).rstrip("/")
    return right


def said_wrong(what: str, url: str) -> str:
    """What is wrong with an address, in words."""
    doubled = url.rstrip("/").removeprefix(without_endpoint(url))
    return f"{what} {url} ends with {doubled}, which clients append: they would ask for it twice"
