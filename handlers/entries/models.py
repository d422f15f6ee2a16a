"""GET /v1/models and /v1/models/{model}, and the same under /v1beta: the models of a key.

There is no usage record: nothing is called.
"""

from collections.abc import Awaitable
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from urllib.parse import parse_qsl, unquote

from adapters.family import Family, ModelEntry
from adapters.family.traits import Traits
from adapters.faults import Condition, Fault
from adapters.registry import FAMILIES
from adapters.responses.codex_models import QUERY_FIELD as CODEX_FIELD
from adapters.responses.codex_models import codex_model_list
from handlers.entries.base import QUERY_FIELDS_MAX
from handlers.entries.intake import KeyedHandler
from handlers.relay.translations import traits_at
from store.catalog.catalog import Model

PREFIXES = ("/v1/models", "/v1beta/models")  # the second is of generate_content alone


# One shape, one list for the two entries of the same clients.
_ENTRIES = {"chat_completions": ("chat_completions", "responses")}


class ModelsHandler(KeyedHandler):
    """The list of models, and one model of it."""

    ALLOW = "GET, HEAD"
    READS_BODY = False

    @property
    def endpoint(self) -> str:
        return PREFIXES[self.request.path.startswith(PREFIXES[1])]

    @property
    def dialect(self) -> Family:
        """The family of the caller, by its headers; under /v1beta there is one alone."""
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
        lists = (
            snapshot.listed(self._key, name) for name in _ENTRIES.get(family.name, [family.name])
        )
        models = sorted({model.name: model for model in chain.from_iterable(lists)}.items())
        entries = {name: _entry(model) for name, model in models}
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
        """Return the models of responses, each with the traits that it has at its first channel."""
        snapshot, key = self.site.relay.snapshot, self._key
        entries = []
        for model in snapshot.listed(key, "responses"):
            entry = _entry(model)
            channels = snapshot.candidates(key.group, model.name, "responses")
            with suppress(Fault):  # a channel whose options cannot be read
                traits = traits_at(channels[0], model.name) if channels else Traits()
                efforts = () if traits.thinking == "none" else traits.efforts
                entry = replace(entry, efforts=efforts, images=traits.images)
            entries.append(entry)
        return entries

    def _query(self) -> dict[str, str]:
        """Return the fields of the query; none when there are too many."""
        query = self.request.query
        if query.count("&") >= QUERY_FIELDS_MAX:
            return {}
        return dict(parse_qsl(query, keep_blank_values=True))


def _entry(model: Model) -> ModelEntry:
    created_s = model.created_ms // 1000
    return ModelEntry(model.name, created_s, model.context_tokens, model.max_output_tokens)
