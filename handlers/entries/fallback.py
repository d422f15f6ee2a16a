"""Unknown paths, answered with the right base URL; `/` and `/livez`; preflights of browsers."""

import re

from adapters.base_urls import (
    BASE_PATHS,
    PATH_SHOWN_CHARS,
    VERSIONS,
    before_end,
    doubled_part,
    end_of,
    leading_versions,
)
from adapters.family import Family
from adapters.faults import Condition, Fault
from adapters.registry import FAMILIES
from handlers.entries import cors
from handlers.entries.intake import BodyHandler

# families of paths that begin like this, if the path's end does not tell the family
_BEGINNINGS = {
    "/v1/messages": "messages",
    "/v1/responses": "responses",
    "/v1/": "chat_completions",
    "/v1beta/": "generate_content",
}
_OTHER_VERSION = re.compile(r"/v\d\w*(?=/|$)")


class RootHandler(BodyHandler):
    """The handler of GET and HEAD /. Coding clients probe it before their first call."""

    ALLOW = "GET, HEAD"
    READS_BODY = False
    BODY = b'{"service":"sluice"}'

    def check_head(self) -> None:
        if self.request.method not in ("GET", "HEAD"):
            raise Fault(Condition.METHOD_NOT_ALLOWED, allow=self.ALLOW)

    def complete(self, body: bytes) -> None:
        self.respond(self.BODY)


class LivezHandler(RootHandler):
    """The handler of GET /livez, which shows that the event loop is running."""

    BODY = b'{"live":true}'


class PreflightHandler(BodyHandler):
    """The handler of OPTIONS for any path, from a page that may call this port. No key is
    needed."""

    READS_BODY = False

    def check_head(self) -> None:
        """Accept any request head."""

    def complete(self, body: bytes) -> None:
        self.respond(b"", 200, cors.preflight_headers(self.request.headers))


class FallbackHandler(BodyHandler):
    """The handler of every other path: 404 with the right base URL."""

    @property
    def dialect(self) -> Family:
        """Return the family that the path ends or begins with, else the one of the headers."""
        path = self.request.path
        family, _ = end_of(path)
        if family is None and not _is_shared_list(path):
            begun = (name for start, name in _BEGINNINGS.items() if path.startswith(start))
            family = next(begun, None)
        return FAMILIES[family] if family else super().dialect

    def check_head(self) -> None:
        if self.site.wrong_paths is not None:
            self.site.wrong_paths.note(self)
        path = self.request.path
        family_of_end, _ = end_of(path)
        family = family_of_end or self.dialect.name
        right = self.site.base_url + BASE_PATHS[family]
        before = before_end(path)
        doubled = doubled_part(before, family)
        if doubled:
            message = f"the base URL already contains {doubled}; set it to {right}."
            raise Fault(Condition.DUPLICATED_PATH, "No such endpoint: " + message)
        ends_well = family_of_end is not None or path == "/models"
        remedy = _remedy(before, family, right) if ends_well else ""
        target = f"{self.request.method} {path[:PATH_SHOWN_CHARS]}"
        raise Fault(Condition.UNKNOWN_PATH, f"No such endpoint: {target}{remedy}.")

    def complete(self, body: bytes) -> None:
        raise AssertionError


def _is_shared_list(path: str) -> bool:
    """Return whether a path is the list of models, or below it, which several families share."""
    versions = leading_versions(path)
    what = path.removeprefix(versions)
    return not versions.endswith("/v1beta") and (what == "/models" or what.startswith("/models/"))


def _remedy(before: str, family: str, right: str) -> str:
    """Return the remedy for a path whose end is one that clients of the family append."""
    if family == "generate_content":
        if before in VERSIONS:
            return ""  # the base URL is right; the endpoint is not offered
        if _OTHER_VERSION.match(before):
            return "; the versions served are v1beta and v1"
    return f"; set the base URL to {right}"
