"""Try it: the page, which works without script as a form, and POST /api/try.

A call is made as the chosen key, with a grant. The key's group, limits, payer, models and networks
apply, and the call leaves a usage record. Only the page keeps the texts.
"""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from msgspec.structs import asdict
from tornado.iostream import StreamClosedError

from handlers.hub.keys.setup import SnippetValues, cut
from handlers.hub.try_it.conversation import (
    CallFacts,
    Conversation,
    ShownTurn,
    remedies_of,
)
from handlers.hub.try_it.prepare import (
    NUMBERS,
    SWITCHES,
    TEXTS,
    ModelChoice,
    TrySettings,
    TryView,
    load_view,
    settings_of,
)
from handlers.hub.web.base import Api, Failure, HubHandler, Page, invalid, or_refused
from handlers.hub.web.formats import STATE_SHAPES
from handlers.hub.web.relay_calls import (
    SHOWN_HEADERS,
    AnswerText,
    RelayAnswer,
    RelayCall,
    record_of,
    running,
)
from operations.chat import ChatTurn
from operations.chat_code import KEY_VARIABLE, CodeSample, code_of
from store.calls.usage_queries import Row
from store.values.pricing import format_money

AGENT = "sluice-hub/try"
MAX_PROMPT_CHARS = 200_000


async def facts_of(handler: HubHandler, answer: RelayAnswer, text: AnswerText) -> CallFacts:
    """Return the facts of an answer, with its usage record if it appears in time."""
    record: Row = await record_of(handler, answer.request_id) or {}
    refused = answer.status is not None and answer.status >= 400
    headers = answer.headers or {}
    return CallFacts(
        status=answer.status,
        id=record.get("id"),
        outcome=record.get("outcome"),
        error_code=record.get("error_code"),
        error_message=record.get("error_message"),
        input_tokens=record.get("input_tokens"),
        output_tokens=record.get("output_tokens"),
        cost=format_money(record["cost_nanos"]) if record else None,
        ttft_ms=record.get("ttft_ms", answer.first_byte_ms),
        total_ms=record.get("duration_ms", answer.total_ms),
        complete=answer.complete,
        body=text.raw if refused else None,
        headers={name: headers[name] for name in SHOWN_HEADERS if name in headers},
        error=answer.error,
    )


class TryPage(Page):
    """/try: `?key=&model=&with=&system=` preset the form."""

    def initialize(self, site: Any) -> None:
        super().initialize(site)
        self._calls: list[RelayCall] = []

    async def get(self) -> None:
        settings = TrySettings(
            key=self.get_query_argument("key", ""),
            model=self.get_query_argument("model", ""),
            other=self.get_query_argument("with", ""),
            system=self.get_query_argument("system", ""),
        )
        await self.page(settings, Conversation())

    @or_refused
    async def post(self) -> None:
        settings, action = self._settings(), self.get_body_argument("do", "send")
        conversation = Conversation.read(self.get_body_argument("turns", ""))
        prompt = self.get_body_argument("prompt", "", strip=False).strip()[:MAX_PROMPT_CHARS]
        match action:
            case "clear":
                conversation = Conversation()
            case "compare":
                settings = replace(settings, other=settings.other or "*")
            case "one":
                settings = replace(settings, other="")
            case "native":
                settings = replace(settings, entry="")
            case "plain":
                settings = settings.plain()
            case "send" | "again" | "go_on":
                await self._ask(settings, conversation, prompt, action)
                return
        await self.page(settings, conversation, prompt)

    async def _ask(
        self, settings: TrySettings, conversation: Conversation, prompt: str, action: str
    ) -> None:
        """Make the calls for a question and render the page."""
        if action == "again":
            question, _ = conversation.pair
            prompt = question.text if question else prompt
            conversation = conversation.without_last_answer()
        elif action == "go_on":
            prompt = self.words["try.go_on_prompt"]
        if not prompt:
            raise invalid("prompt", self.words["try.no_prompt"])
        view = await self.load(settings)
        turns = conversation.chat_turns(prompt)
        if view.other:
            turns = turns[-1:]  # a comparison sends only the question
        requests = [(choice, view.request(choice, turns)) for choice in view.shown_models]
        with running(self, len(requests)):
            answers = await asyncio.gather(
                *(self._answer(view, choice, request) for choice, request in requests)
            )
        await self.page(view.settings, conversation.add(ShownTurn("user", prompt), *answers))

    async def _answer(self, view: TryView, choice: ModelChoice, request: Any) -> ShownTurn:
        assert view.key is not None
        text = AnswerText(choice.entry, is_stream=view.settings.stream)
        call = RelayCall(self, view.key.id, AGENT)
        self._calls.append(call)
        answer = await call.run(request, text)
        return ShownTurn(
            "assistant", text.text, choice.offer.model, await facts_of(self, answer, text)
        )

    def on_connection_close(self) -> None:
        """Stop the calls, since the client has disconnected."""
        super().on_connection_close()
        for call in self._calls:
            call.stop()

    async def refuse(self, failure: Failure) -> None:
        """Render the page with the submitted values and the problem."""
        prompt = self.get_body_argument("prompt", "", strip=False)
        try:
            conversation = Conversation.read(self.get_body_argument("turns", ""))
            settings = self._settings()
        except Failure:
            conversation, settings = Conversation(), TrySettings()
        if failure.wait_s:
            self.set_header("Retry-After", str(failure.wait_s))
        await self.page(settings, conversation, prompt, failure)

    def _settings(self) -> TrySettings:
        """Return the settings in the form. Sliders that were not moved are not sent."""
        text = {name: self.get_body_argument(name, "") for name in _FIELDS}
        numbers: dict[str, float | None] = {}
        for name in NUMBERS:
            try:
                numbers[name] = float(text[name]) if text[name] else None
            except ValueError:
                raise invalid(name, f"{name} is a number") from None
        return TrySettings(
            key=text["key"],
            model=text["model"],
            # the entry of another model does not apply to the new one
            entry=text["entry"] if text["entry_of"] in ("", text["model"]) else "",
            effort=text["effort"],
            other=text["with"],
            system=text["system"].replace("\r\n", "\n"),
            further=text["further"],
            max_tokens=text["max_tokens"],
            temperature=numbers["temperature"],
            top_p=numbers["top_p"],
            stream=bool(text["stream"]),
            search=bool(text["search"]),
        )

    async def load(self, settings: TrySettings) -> TryView:
        """Return the choices of the user. Raises Failure if nothing can be called."""
        view = await self.choices(settings)
        if view.key is None or view.model is None:
            raise invalid("key", self.words["try.nothing_to_call"])
        return view

    async def choices(self, settings: TrySettings) -> TryView:
        """Return the choices of the user."""
        return await self.store(load_view, self.me.user_id, settings, self.site.base_url)

    async def page(
        self,
        settings: TrySettings,
        conversation: Conversation,
        prompt: str = "",
        failure: Failure | None = None,
    ) -> None:
        """Answer with the page."""
        view = await self.choices(settings)
        samples: Sequence[Any] = ()
        try:
            samples = self._samples(view, conversation, prompt) if view.model else ()
        except Failure as wrong:
            failure = failure or wrong
        self.show(
            "try_it.html",
            view=view,
            settings=view.settings,
            conversation=conversation,
            prompt=prompt,
            failure=failure,
            samples=samples,
            remedies_of=remedies_of,
            shapes=STATE_SHAPES,
            KEY=KEY_VARIABLE,
        )

    def _samples(
        self, view: TryView, conversation: Conversation, prompt: str
    ) -> Sequence[tuple[CodeSample, Sequence[tuple[str, str]]]]:
        """Return the code for the last call or, without one, for the next, in pieces. Raises
        Failure."""
        question, _ = conversation.pair
        turns = [ChatTurn("user", prompt or self.words["try.example"])]
        if question is not None:
            turns = conversation.without_last_answer().chat_turns(question.text)
        assert view.model is not None
        request = view.request(view.model, turns)
        base, model = self.site.base_url, view.model.offer.model
        values = SnippetValues(base, KEY_VARIABLE, lambda _: model)
        samples = code_of(view.model.entry, base, model, request)
        return [(sample, cut(sample.text, values)) for sample in samples]


_FIELDS = (*TEXTS, *NUMBERS, *SWITCHES, "entry_of")


class TryApi(Api):
    """POST /api/try: {"key", "model", "entry", "turns", …}. Answers with the events of the family,
    then one event `sluice` with the facts."""

    def initialize(self, site: Any) -> None:
        super().initialize(site)
        self._call: RelayCall | None = None

    async def post(self) -> None:
        body = self.body()
        settings, turns = settings_of(body), _turns_of(body.get("turns"))
        view = await self.store(load_view, self.me.user_id, settings, self.site.base_url)
        _check(settings, view)
        assert view.key is not None and view.model is not None
        request = view.request(view.model, turns)
        text = AnswerText(view.model.entry, is_stream=settings.stream)
        sink = _EventSink(self, text)
        self._call = RelayCall(self, view.key.id, AGENT)
        with running(self):
            self.set_header("Content-Type", "text/event-stream; charset=utf-8")
            self.set_header("X-Accel-Buffering", "no")
            answer = await self._call.run(request, sink)
        if sink.left:
            return
        facts = await facts_of(self, answer, text)
        event = {**asdict(facts), "text": "" if settings.stream else text.text}
        self.write(f"\n\nevent: sluice\ndata: {json.dumps(event, ensure_ascii=False)}\n\n")
        self.finish()

    def on_connection_close(self) -> None:
        """Stop the call, since the client has disconnected."""
        super().on_connection_close()
        if self._call is not None:
            self._call.stop()


class _EventSink:
    """A sink that forwards the events of a stream. Any other body is collected in `text`."""

    def __init__(self, handler: TryApi, text: AnswerText) -> None:
        self._handler, self._text = handler, text
        self._status = 0
        self.left = False

    def begin(self, status: int) -> None:
        self._status = status
        self._text.begin(status)

    async def take(self, chunk: bytes) -> None:
        if self._status >= 400 or not self._text.is_stream:
            await self._text.take(chunk)
            return
        try:
            self._handler.write(chunk)
            await self._handler.flush()
        except StreamClosedError:
            self.left = True
            raise


def _turns_of(value: Any) -> list[ChatTurn]:
    """Return the turns in a body. Raises Failure."""
    problem = invalid("turns", 'turns are a list of {"role": "user" or "assistant", "text": …}')
    if not isinstance(value, list) or not value:
        raise problem
    turns = []
    for turn in value:
        if not isinstance(turn, Mapping) or not isinstance(turn.get("text"), str):
            raise problem
        if turn.get("role") not in ("user", "assistant"):
            raise problem
        turns.append(ChatTurn(turn["role"], turn["text"]))
    return turns


def _check(settings: TrySettings, view: TryView) -> None:
    """Raise Failure if a choice is invalid or not the user's."""
    if view.key is None or (settings.key and view.settings.key != settings.key):
        raise invalid("key", "key is the id of a key of yours that works")
    if view.model is None or (settings.model and view.settings.model != settings.model):
        raise invalid("model", f"the group {view.key.group} does not offer this model to the key")
    if settings.entry and view.settings.entry != settings.entry:
        entries = ", ".join(view.model.offer.entries)
        raise invalid("entry", f"the model can be called by {entries}")
