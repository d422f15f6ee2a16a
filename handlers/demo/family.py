"""What a family of the scripted vendor offers, and the words it shares with the vendor's server.

Here: the Protocol `Family`, what was asked (`Ask`), what is said (`Said`) and how a request is
turned down (`Refusal`). Not here: wire formats (one file a family) and sockets (http1, perform).
Imported by every module of handlers.demo.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from handlers.demo.script import Script

Path = tuple[str | int, ...]
Task = Literal["generate", "count", "models", "model"]
Finish = Literal["stop", "length", "stop_sequence", "tools"]

# The upstream key that is refused, as a vendor refuses a revoked one.
BAD_KEY_PREFIX = "sk-bad"

# Both model lists show these; any other model name is served as well.
MODEL_NAMES = ("demo-large", "demo-small")
MODELS_CREATED_S = 1_795_000_000


class Refusal(Exception):
    """A request the vendor turns down; the family gives it its shape.

    `problem` is the fact in words, `path` the place in the body, `kind` what is wrong there.
    """

    def __init__(
        self,
        problem: str,
        path: Path = (),
        kind: Literal["value", "type", "missing", "plain"] = "value",
        *,
        status: int = 400,
        code: str | None = None,
        error_type: str | None = None,
    ) -> None:
        super().__init__(problem)
        self.problem = problem
        self.path = path
        self.kind = kind
        self.status = status
        self.code = code
        self.error_type = error_type


@dataclass(frozen=True, slots=True)
class Route:
    task: Task
    method: str
    argument: str = ""  # the model, where it stands in the path


@dataclass(frozen=True, slots=True)
class Tool:
    name: str
    schema: Mapping[str, Any]
    custom: bool = False


@dataclass(frozen=True, slots=True)
class Call:
    id: str
    name: str
    arguments: str  # JSON text; free text of a custom tool
    custom: bool = False


@dataclass(frozen=True, slots=True)
class Ask:
    """The facts of a request that decide what is said."""

    model: str
    prompt: str  # the last words of the user
    input_tokens: int
    stream: bool = False
    fresh: bool = True  # the last message holds words of the user, not results of tools
    images: int = 0
    tools: tuple[Tool, ...] = ()
    tool_mode: Literal["auto", "none", "any"] = "auto"
    parallel: bool = True
    schema: Mapping[str, Any] | None = None  # {} = any JSON object
    thinking: bool = False
    thinking_shown: bool = True
    limit_tokens: int | None = None
    stops: tuple[str, ...] = ()
    choices: int = 1
    include_usage: bool = False


@dataclass(frozen=True, slots=True)
class Counts:
    """Token counts; `output` includes `reasoning`."""

    input: int
    output: int
    reasoning: int


@dataclass(frozen=True, slots=True)
class Said:
    """One answer, before a family writes it down; `pieces` are the deltas of the text."""

    counts: Counts
    finish: Finish
    pieces: tuple[str, ...] = ()
    thoughts: tuple[str, ...] = ()
    calls: tuple[Call, ...] = ()
    stop_sequence: str | None = None


class Family(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def garbage(self) -> bytes:
        """An event whose data is no JSON."""

    def find(self, path: str, headers: Mapping[str, str]) -> Route | None:
        """None: not a path of this family, or not one of its clients."""

    def admit(self, headers: Mapping[str, str]) -> None:
        """Raises Refusal when the credential (or a version the family demands) is not right."""

    def check_content_type(self, value: str) -> None:
        """Raises Refusal when a body of this content type is not taken."""

    def read(self, route: Route, headers: Mapping[str, str], body: dict[str, Any]) -> Ask:
        """Raises Refusal for whatever the real vendor would refuse."""

    def lookup(self, route: Route, query: Mapping[str, str]) -> dict[str, Any]:
        """The model list, or one model."""

    def count(self, ask: Ask) -> dict[str, Any]: ...

    def plain(self, ask: Ask, said: Said, script: Script) -> dict[str, Any]: ...

    def events(self, ask: Ask, said: Said, script: Script) -> Iterator[bytes]: ...

    def refusal(self, refusal: Refusal, request_id: str) -> dict[str, Any]: ...

    def error_event(self, refusal: Refusal, request_id: str) -> bytes: ...

    def ping(self) -> bytes:
        """The family's keep-alive event; b"" where it has none."""

    def answer_headers(self, request_id: str) -> dict[str, str]: ...
