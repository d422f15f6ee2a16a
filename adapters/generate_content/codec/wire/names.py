"""Names of tools as this family's upstreams take them. Imported by ``codec``.

A name begins with a letter or an underscore; then come letters, digits, ``_ . : -``, 128 at most.
"""

import hashlib
import re
from collections.abc import Iterable

from adapters.ir.request import Tool

MAX_CHARS = 128

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.:-]{0,127}")
_FOREIGN = re.compile(r"[^A-Za-z0-9_.:-]")
_HASH_CHARS = 8
_Key = tuple[str, str]  # namespace and name, as the client has them


class Names:
    """The names of one request's tools. The same name becomes the same in each request, so that a
    prefix of the conversation stays the same, too."""

    def __init__(self, tools: Iterable[Tool]) -> None:
        self.renamed: dict[str, Tool] = {}  # as sent -> those that are not sent as they are
        self._sent: dict[_Key, str] = {}
        self._named: dict[str, list[str]] = {}
        taken: set[str] = set()
        for tool in tools:
            if tool.kind == "hosted":
                continue
            name = fitting(tool.namespace, tool.name)
            if name in taken:
                name = _marked(name, f"{tool.namespace}\n{tool.name}")
            taken.add(name)
            self._sent[tool.namespace, tool.name] = name
            self._named.setdefault(tool.name, []).append(name)
            if tool.kind == "custom" or tool.namespace or name != tool.name:
                self.renamed[name] = tool

    def sent(self, name: str, namespace: str = "") -> str:
        """A tool's name for the upstream, also of one that is declared no more."""
        found = self._sent.get((namespace, name))
        return found if found is not None else fitting(namespace, name)

    def named(self, name: str) -> list[str]:
        """The tools that a client means by a name alone, in whatever namespace."""
        return self._named.get(name, [])


def fitting(namespace: str, name: str) -> str:
    """A name that the family takes; other names become others."""
    whole = f"{namespace}__{name}" if namespace else name
    if _NAME.fullmatch(whole):
        return whole
    plain = _FOREIGN.sub("_", whole)
    if not plain or not (plain[0].isalpha() or plain[0] == "_"):
        plain = "_" + plain
    return _marked(plain, whole)


def _marked(plain: str, whole: str) -> str:
    digest = hashlib.sha256(whole.encode(errors="replace")).hexdigest()[:_HASH_CHARS]
    return f"{plain[: MAX_CHARS - _HASH_CHARS - 1]}_{digest}"
