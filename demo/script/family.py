"""What a family of the scripted vendor offers, and the words it shares with the vendor's server.

Here: the Protocol `Family`, what was asked (`Ask`), what is said (`Said`) and how a request is
turned down (`Refusal`). Not here: wire formats (one file a family) and sockets (http1, perform).
Imported by every module of demo.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol

from demo.script.directives import Script

Path = tuple[str | int, ...]
Task = Literal[
    "generate", "count", "compact", "models", "model", "stored", "items", "forget", "cancel"
]
# Their requests have no body: `Family.lookup` answers them.
LOOKUPS: frozenset[Task] = frozenset(("models", "model", "stored", "items", "forget", "cancel"))
Finish = Literal["stop", "length", "stop_sequence", "tools", "refusal"]

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
        retry_after_s: int | None = None,
    ) -> None:
        super().__init__(problem)
        self.problem = problem
        self.path = path
        self.kind = kind
        self.status = status
        self.code = code
        self.error_type = error_type
        self.retry_after_s = retry_after_s
        # In a stream: its first and its last event before the fault, for a family that refers
        # to them in the event of the error; empty where the fault comes first.
        self.after: tuple[bytes, bytes] = (b"", b"")


@dataclass(frozen=True, slots=True)
class Route:
    task: Task
    method: str
    argument: str = ""  # the model or the id, where it stands in the path
    also: tuple[tuple[str, Task], ...] = ()  # other methods of the path, and what they ask for
    stream: bool = False  # the path itself asks for a stream
    query: Mapping[str, str] = field(default_factory=dict)

    def by(self, method: str) -> Route:
        """What is asked by this method; the route itself where the path does not have it."""
        task = dict(self.also).get(method)
        return self if task is None else replace(self, task=task, method=method)


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
class Turn:
    """What is due in a session: calls to make, or the words that end it."""

    calls: tuple[Call, ...] = ()
    say: str = ""


@dataclass(frozen=True, slots=True)
class Ask:
    """The facts of a request that decide what is said."""

    model: str
    prompt: str  # the last words of the user
    input_tokens: int
    stream: bool = False
    framing: Literal["sse", "json_array"] = "sse"  # of a stream
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
    task: Task = "generate"
    turn: Turn | None = None  # of a session
    # The request itself, for a family whose answers repeat its settings.
    body: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Counts:
    """Token counts; `output` includes `reasoning`, `input` what was cached and written to cache."""

    input: int
    output: int
    reasoning: int
    cached: int = 0
    written: int = 0


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
        """The answer to a task of LOOKUPS; raises Refusal when there is no such thing."""

    def count(self, ask: Ask) -> dict[str, Any]: ...

    def plain(self, ask: Ask, said: Said, script: Script) -> dict[str, Any]: ...

    def events(self, ask: Ask, said: Said, script: Script) -> Iterator[bytes]: ...

    def refusal(self, refusal: Refusal, request_id: str) -> dict[str, Any]: ...

    def error_event(self, refusal: Refusal, request_id: str) -> bytes: ...

    def ping(self) -> bytes:
        """The family's keep-alive event; b"" where it has none."""

    def answer_headers(self, request_id: str) -> dict[str, str]: ...
