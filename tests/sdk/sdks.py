"""The four families as their official SDKs speak them: one way to make a call and to read its
answer, for all."""

import base64
import contextlib
from collections.abc import Iterator
from typing import Any, ClassVar

import anthropic
import httpx2
import openai
from google import genai
from google.genai import errors, types
from pydantic import BaseModel

from tests.sdk.world import TIMEOUT_S, TLS, Wire, World

Facts = tuple[Any, ...]
PIXEL = b"\x89PNG\r\n\x1a\n" + bytes(600)
PDF = b"%PDF-1.7\n" + bytes(600)
PIXEL_BASE64, PDF_BASE64 = (base64.b64encode(data).decode() for data in (PIXEL, PDF))
IMAGE_URL = f"data:image/png;base64,{PIXEL_BASE64}"
PDF_URL = f"data:application/pdf;base64,{PDF_BASE64}"


def openai_client(world: World, **options: Any) -> openai.OpenAI:
    """Return a client with the key main, unless the options name another."""
    options = {"api_key": world.keys["main"], "base_url": world.base_url + "/v1", **options}
    return openai.OpenAI(timeout=TIMEOUT_S, **options)


class Kettle(BaseModel):
    """What structured answers are parsed into."""

    name: str
    cups: int


class Weather(BaseModel):
    """The weather of a harbour."""

    harbour: str


class Tide(BaseModel):
    """The tide of a harbour."""

    harbour: str
    day: int


class Sdk:
    """One family; `fault_place`: the number of first events of a stream that contain three text
    deltas."""

    family: str
    base = ""  # in the URL
    path: str  # of the endpoint
    count_path: str = ""  # of the counting endpoint, if there is one
    agent: str  # the start of the SDK's user agent
    fault_place: int
    error: type[Exception]
    omit: object = None  # the value for a header that is not sent
    streamed: ClassVar[dict[str, Any]] = {}  # fields of a stream that reports its usage

    @contextlib.contextmanager
    def client(
        self, world: World, key: str = "main", base: str | None = None
    ) -> Iterator[tuple[Any, Wire]]:
        """Yield a client of a key (its name or secret), and the wire with its answers."""
        wire, url = Wire(), world.base_url + (self.base if base is None else base)
        with (
            httpx2.Client(transport=wire, timeout=TIMEOUT_S) as http,
            self.connect(url, world.keys.get(key, key), wire, http) as client,
        ):
            yield client, wire

    def connect(self, url: str, key: str, wire: Wire, http: httpx2.Client) -> Any:
        raise NotImplementedError

    def async_client(self, world: World) -> Any:
        raise NotImplementedError

    def create(self, client: Any, model: str, prompt: str, **fields: Any) -> Any:
        """Return an answer; with `stream`, an iterator of the events that can be closed."""
        raise NotImplementedError

    def text(self, events: list[Any]) -> str:
        """Return the text of a whole answer or of a stream's events."""
        raise NotImplementedError

    def content(self, answer: Any) -> Any:
        """Return everything from the vendor in an answer."""
        return answer.to_dict()

    def expected(self, said: Any) -> Any:
        """Return the `content` to expect for an answer that the vendor has sent."""
        return said

    def names(self, events: list[Any]) -> set[str]:
        """Return the model's names in an answer or a stream."""
        return {event.model for event in events}

    def usage(self, events: list[Any]) -> tuple[int, int]:
        """Return the tokens that a whole answer or a stream's events report: in, out."""
        raise NotImplementedError

    def finished(self, events: list[Any]) -> bool:
        """Return True if the events contain the end of an answer."""
        raise NotImplementedError

    def facts(self, error: Any) -> Facts:
        """Return the facts of an error apart from its message."""
        raise NotImplementedError

    def models(self, client: Any) -> list[str]:
        return [model.id for model in client.models.list()]

    def model(self, client: Any, name: str) -> str:
        return str(client.models.retrieve(name).id)

    def count(self, client: Any, prompt: str) -> int:
        """Return the number of a prompt's tokens, counted by the family."""
        raise NotImplementedError


class OpenAI(Sdk):
    """The common part of chat completions and responses."""

    base = "/v1"
    agent = "OpenAI/Python"
    error = openai.APIError
    omit = openai.omit

    def connect(self, url: str, key: str, wire: Wire, http: httpx2.Client) -> Any:
        return openai.OpenAI(api_key=key, base_url=url, timeout=TIMEOUT_S, http_client=http)

    def async_client(self, world: World) -> Any:
        return openai.AsyncOpenAI(
            api_key=world.keys["main"], base_url=f"{world.base_url}/v1", timeout=TIMEOUT_S
        )

    def facts(self, error: Any) -> Facts:
        return type(error).__name__, error.type, error.code


class Chat(OpenAI):
    family = "chat_completions"
    path = "/v1/chat/completions"
    fault_place = 4
    streamed: ClassVar[dict[str, Any]] = {"stream_options": {"include_usage": True}}

    def create(self, client: Any, model: str, prompt: str, **fields: Any) -> Any:
        messages = [{"role": "user", "content": prompt}]
        return client.chat.completions.create(model=model, messages=messages, **fields)

    def text(self, events: list[Any]) -> str:
        choices = [event.choices[0] for event in events if event.choices]
        return "".join((getattr(c, "delta", None) or c.message).content or "" for c in choices)

    def usage(self, events: list[Any]) -> tuple[int, int]:
        return events[-1].usage.prompt_tokens, events[-1].usage.completion_tokens

    def finished(self, events: list[Any]) -> bool:
        return any(event.choices and event.choices[0].finish_reason for event in events)


class Responses(OpenAI):
    family = "responses"
    path = "/v1/responses"
    count_path = "/v1/responses/input_tokens"
    fault_place = 7

    def create(self, client: Any, model: str, prompt: str, **fields: Any) -> Any:
        return client.responses.create(model=model, input=prompt, **fields)

    def text(self, events: list[Any]) -> str:
        if hasattr(events[0], "output_text"):
            return str(events[0].output_text)
        return "".join(e.delta for e in events if e.type == "response.output_text.delta")

    def names(self, events: list[Any]) -> set[str]:
        responses = (getattr(event, "response", event) for event in events)
        return {response.model for response in responses if hasattr(response, "model")}

    def usage(self, events: list[Any]) -> tuple[int, int]:
        usage = getattr(events[-1], "response", events[-1]).usage
        return usage.input_tokens, usage.output_tokens

    def finished(self, events: list[Any]) -> bool:
        kinds = [event.type for event in events]
        return "response.completed" in kinds or "response.incomplete" in kinds

    def count(self, client: Any, prompt: str) -> int:
        return int(client.responses.input_tokens.count(model="tea", input=prompt).input_tokens)


class Messages(Sdk):
    family = "messages"
    path = "/v1/messages"
    count_path = "/v1/messages/count_tokens"
    agent = "Anthropic/Python"
    fault_place = 5
    error = anthropic.APIError
    omit = anthropic.omit

    def connect(self, url: str, key: str, wire: Wire, http: httpx2.Client) -> Any:
        return anthropic.Anthropic(api_key=key, base_url=url, timeout=TIMEOUT_S, http_client=http)

    def async_client(self, world: World) -> Any:
        return anthropic.AsyncAnthropic(
            api_key=world.keys["main"], base_url=world.base_url, timeout=TIMEOUT_S
        )

    def create(self, client: Any, model: str, prompt: str, **fields: Any) -> Any:
        messages = [{"role": "user", "content": prompt}]
        return client.messages.create(model=model, max_tokens=9000, messages=messages, **fields)

    def text(self, events: list[Any]) -> str:
        if hasattr(events[0], "content"):
            return "".join(block.text for block in events[0].content if block.type == "text")
        deltas = [event.delta for event in events if event.type == "content_block_delta"]
        return "".join(delta.text for delta in deltas if delta.type == "text_delta")

    def names(self, events: list[Any]) -> set[str]:
        return {getattr(events[0], "message", events[0]).model}

    def usage(self, events: list[Any]) -> tuple[int, int]:
        start = getattr(events[0], "message", events[0])
        last = events[-2] if len(events) > 1 else start  # a stream ends with message_stop
        return start.usage.input_tokens, last.usage.output_tokens

    def finished(self, events: list[Any]) -> bool:
        return "message_stop" in [event.type for event in events]

    def facts(self, error: Any) -> Facts:
        return error.status_code, error.type, error.body["request_id"] == error.request_id

    def count(self, client: Any, prompt: str) -> int:
        messages = [{"role": "user", "content": prompt}]
        return int(client.messages.count_tokens(model="tea", messages=messages).input_tokens)


class Generate(Sdk):
    family = "generate_content"
    path = "/v1beta/models/{model}:generateContent"
    count_path = "/v1beta/models/{model}:countTokens"
    agent = "google-genai-sdk/"
    fault_place = 4
    error = errors.APIError

    def connect(self, url: str, key: str, wire: Wire, http: httpx2.Client) -> Any:
        options = types.HttpOptions(
            base_url=url, timeout=TIMEOUT_S * 1000, client_args={"transport": wire}
        )
        return genai.Client(api_key=key, http_options=options)

    def async_client(self, world: World) -> Any:
        options = types.HttpOptions(
            base_url=world.base_url, timeout=TIMEOUT_S * 1000, async_client_args={"verify": TLS}
        )
        return genai.Client(api_key=world.keys["main"], http_options=options).aio

    def create(
        self,
        client: Any,
        model: str,
        prompt: str,
        *,
        stream: bool = False,
        extra_headers: dict[str, str] | None = None,
    ) -> Any:
        models = client.models
        call = models.generate_content_stream if stream else models.generate_content
        config: Any = {"http_options": {"headers": extra_headers}} if extra_headers else None
        return call(model=model, contents=prompt, config=config)

    def content(self, answer: Any) -> Any:
        # without fields that the SDK adds
        ours = {"sdk_http_response", "parsed", "automatic_function_calling_history"}
        return answer.model_dump(exclude=ours)

    def expected(self, said: Any) -> Any:
        return self.content(types.GenerateContentResponse.model_validate(said))

    def text(self, events: list[Any]) -> str:
        return "".join(part.text or "" for part in self._parts(events) if not part.thought)

    def names(self, events: list[Any]) -> set[str]:
        return {event.model_version for event in events}

    def _parts(self, events: list[Any]) -> Iterator[Any]:
        for event in events:
            for candidate in event.candidates or ():
                yield from candidate.content.parts or ()

    def usage(self, events: list[Any]) -> tuple[int, int]:
        usage = events[-1].usage_metadata
        return usage.prompt_token_count, usage.candidates_token_count

    def finished(self, events: list[Any]) -> bool:
        return any(c.finish_reason for event in events for c in event.candidates or ())

    def facts(self, error: Any) -> Facts:
        return type(error).__name__, error.code, error.status

    def models(self, client: Any) -> list[str]:
        return [model.name.removeprefix("models/") for model in client.models.list()]

    def model(self, client: Any, name: str) -> str:
        return str(client.models.get(model=name).name).removeprefix("models/")

    def count(self, client: Any, prompt: str) -> int:
        return int(client.models.count_tokens(model="tea", contents=prompt).total_tokens)


SDKS: tuple[Sdk, ...] = (Chat(), Responses(), Messages(), Generate())
