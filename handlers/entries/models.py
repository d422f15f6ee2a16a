"""GET /v1/models and /v1/models/{model}, and the same under /v1beta: the models of a key.

These requests leave no usage record, because they call no model.
"""

from collections.abc import Awaitable, Sequence
from contextlib import suppress
from dataclasses import replace
from urllib.parse import parse_qsl, unquote

from adapters.endpoints.table import ENDPOINTS, rows_of_name
from adapters.family import Family, ModelEntry
from adapters.family.traits import Traits
from adapters.faults import Condition, Fault
from adapters.registry import FAMILIES
from adapters.responses.codex_models import QUERY_FIELD as CODEX_FIELD
from adapters.responses.codex_models import codex_model_list
from handlers.entries.base import QUERY_FIELDS_MAX
from handlers.entries.intake import KeyedHandler
from handlers.relay import admit
from handlers.relay.translations import traits_at
from store.catalog.catalog import Model, Snapshot
from store.catalog.keys import KeyEntry

PREFIXES = ("/v1/models", "/v1beta/models")  # the second only for generate_content


# The two entries have the same clients and the same list.
_ENTRIES = {"chat_completions": ("chat_completions", "responses")}


class ModelsHandler(KeyedHandler):
    """The handler of the list of models and of one model."""

    ALLOW = "GET, HEAD"
    READS_BODY = False

    @property
    def endpoint(self) -> str:
        return PREFIXES[self.request.path.startswith(PREFIXES[1])]

    @property
    def dialect(self) -> Family:
        """Return the family of the caller, by its headers. Under /v1beta there is only one."""
        if self.request.path.startswith(PREFIXES[1]):
            return FAMILIES["generate_content"]
        return super().dialect

    def check_head(self) -> Awaitable[None] | None:
        if self.request.method not in ("GET", "HEAD"):
            raise Fault(Condition.METHOD_NOT_ALLOWED, allow=self.ALLOW)
        return self.check_credential()

    def complete(self, body: bytes) -> None:
        family, query = self.dialect, self._query()
        snapshot = self.site.relay.snapshot
        entries = _entries(snapshot, self._key, family.name)
        name = unquote(self.request.path.partition("/models")[2].lstrip("/"))
        if family.name == "generate_content":
            name = name.removeprefix("models/")
        try:
            if not name and family.name == "chat_completions" and CODEX_FIELD in query:
                self.respond(codex_model_list(self._of_codex(), query[CODEX_FIELD]))
            elif not name:
                self.respond(family.client.model_list(list(entries.values()), query))
            elif name in entries:
                self.respond(family.client.model_entry(entries[name]))
            else:
                raise Fault(Condition.MODEL_NOT_FOUND, model=name)
        except Fault as fault:
            self.answer_fault(fault)

    def _of_codex(self) -> list[ModelEntry]:
        """Return the models for responses, each with the traits that it has at its first
        channel."""
        snapshot, key = self.site.relay.snapshot, self._key
        entries = []
        for model in snapshot.listed(key, "responses"):
            entry = _entry(model)
            channels = snapshot.candidates(key.group, model.name, "responses")
            with suppress(Fault):  # the options of a channel are unreadable
                traits = traits_at(channels[0], model.name) if channels else Traits()
                efforts = () if traits.thinking == "none" else traits.efforts
                entry = replace(entry, efforts=efforts, images=traits.images)
            entries.append(entry)
        return entries

    def _query(self) -> dict[str, str]:
        """Return the fields of the query; none if there are too many."""
        query = self.request.query
        if query.count("&") >= QUERY_FIELDS_MAX:
            return {}
        return dict(parse_qsl(query, keep_blank_values=True))


def _entries(snapshot: Snapshot, key: KeyEntry, family: str) -> dict[str, ModelEntry]:
    """Return the models that a key can call in a dialect, by name, with the endpoints of each."""
    models: dict[str, Model] = {}
    paths: dict[str, list[str]] = {}
    lists = [
        (FAMILIES[name].client.operations["generate"].endpoint, snapshot.listed(key, name))
        for name in _ENTRIES.get(family, [family])
    ]
    for row in ENDPOINTS.values():
        if row.family.name == family and row.path_is_listed:
            rule = admit.EndpointRule(row)
            lists.append((row.endpoint, snapshot.listed_at(key, row.entry, rule)))
    for path, listed in lists:
        for model in listed:
            models[model.name] = model
            paths.setdefault(model.name, []).append(path)
    return {
        name: replace(_entry(model), endpoints=_likely(name, paths[name]))
        for name, model in sorted(models.items())
    }


def _entry(model: Model) -> ModelEntry:
    created_s = model.created_ms // 1000
    return ModelEntry(model.name, created_s, model.context_tokens, model.max_output_tokens)


def _likely(name: str, paths: Sequence[str]) -> tuple[str, ...]:
    """Return the paths that fit the model's name if the name tells the model's purpose,
    else all."""
    rows = rows_of_name(name)
    fitting = [path for path in paths if (ENDPOINTS[path].row if path in ENDPOINTS else "") in rows]
    return tuple(fitting or paths)
