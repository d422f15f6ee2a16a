"""Names in requests of generate-content that stand for what an account keeps: cached contents,
files, stores of documents. Imported by this folder's ``client``."""

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

from adapters.family.kept import (
    KeptFields,
    Marks,
    RefList,
    field_value,
    marked_elements,
    objects,
)
from adapters.faults import wrong_type
from adapters.generate_content.request import spellings
from adapters.json.jsonio import Spans
from adapters.json.structure import Steps

FILES_HOST = "generativelanguage.googleapis.com"
_FILES = "files/"
_COUNTED = spellings("generateContentRequest")
_CACHED = spellings("cachedContent")
_SYSTEM = spellings("systemInstruction")
_IN_TURNS = Marks(*spellings("fileUri"))
_IN_TOOLS = Marks(*spellings("fileSearchStoreNames"), "retrieval")


def _read(spans: Spans, refs: RefList) -> Steps[None]:
    for name in _CACHED:
        _read_cached(field_value(spans, name), name, refs)
    for name in _SYSTEM:
        _read_turn(field_value(spans, name), name, refs)
    yield from marked_elements(spans, "contents", _IN_TURNS, lambda p, v: _read_turn(v, p, refs))
    yield from marked_elements(spans, "tools", _IN_TOOLS, lambda p, v: _read_tool(v, p, refs))
    for name in _COUNTED:
        for path, counted in objects(field_value(spans, name), name):
            for inner, value in _values(counted, "cachedContent", path):
                _read_cached(value, inner, refs)
            for part in ("contents", "systemInstruction"):
                for inner, value in _values(counted, part, path):
                    _read_turn(value, inner, refs)
            _read_tool(counted.get("tools"), f"{path}.tools", refs)
            yield False


def _read_cached(value: object, path: str, refs: RefList) -> None:
    if value is not None and not isinstance(value, str):
        raise wrong_type(path, "expected a string")
    refs.add("given", path, value, alone=True)


def _read_turn(value: object, start: str, refs: RefList) -> None:
    for path, turn in objects(value, start):
        _read_parts(turn.get("parts"), f"{path}.parts", refs)


def _read_parts(value: object, start: str, refs: RefList) -> None:
    for path, part in objects(value, start):
        for inner, file in _objects(part, "fileData", path):
            for place, uri in _values(file, "fileUri", inner):
                refs.add("given", place, file_id(uri))
        for inner, answer in _objects(part, "functionResponse", path):
            _read_parts(answer.get("parts"), f"{inner}.parts", refs)


def file_id(uri: object) -> str | None:
    """The id of a file that the vendor keeps, as "files/abc"; None for an address elsewhere."""
    if not isinstance(uri, str):
        return None
    try:
        parts = urlsplit(uri.strip())
        host = (parts.hostname or "").rstrip(".")
    except ValueError:
        return uri  # no address that anybody can fetch
    if parts.scheme and host != FILES_HOST:
        return None
    _, found, name = parts.path.rpartition(_FILES)
    return _FILES + name.partition(":")[0] if found else uri


def _read_tool(value: object, start: str, refs: RefList) -> None:
    for path, tool in objects(value, start):
        for inner, search in _objects(tool, "fileSearch", path):
            for place, names in _values(search, "fileSearchStoreNames", inner):
                refs.add_all("given", place, names)
        for inner, retrieval in objects(tool.get("retrieval"), f"{path}.retrieval"):
            _read_retrieval(retrieval, inner, refs)


def _read_retrieval(retrieval: dict[str, Any], path: str, refs: RefList) -> None:
    for inner, search in _objects(retrieval, "vertexAiSearch", path):
        for name in ("datastore", "engine"):
            refs.add("given", f"{inner}.{name}", search.get(name))
        for place, store in _objects(search, "dataStoreSpecs", inner):
            for last, value in _values(store, "dataStore", place):
                refs.add("given", last, value)
    for inner, rag in _objects(retrieval, "vertexRagStore", path):
        for place, corpora in _values(rag, "ragCorpora", inner):
            refs.add_all("given", place, corpora)
        for place, resource in _objects(rag, "ragResources", inner):
            for last, value in _values(resource, "ragCorpus", place):
                refs.add("given", last, value)


def _values(holder: dict[str, Any], name: str, path: str) -> Iterator[tuple[str, Any]]:
    """A field in either spelling, with its path."""
    for spelling in spellings(name):
        if spelling in holder:
            yield f"{path}.{spelling}", holder[spelling]


def _objects(holder: dict[str, Any], name: str, path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for inner, value in _values(holder, name, path):
        yield from objects(value, inner)


KEPT = KeptFields(
    frozenset({*_CACHED, *_COUNTED}),
    (*((name, _IN_TURNS) for name in ("contents", *_SYSTEM)), ("tools", _IN_TOOLS)),
    _read,
)
