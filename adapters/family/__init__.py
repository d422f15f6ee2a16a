"""The shape of a wire family, and the values that pass between it and the relay.

Only shapes: ``Family`` with its two sides, which hold functions, and frozen values. Each family
fills them in, in a folder of its own, and is named in ``registry.py``; handlers and the relay know
nothing else of it. Values made for every call are Structs, which are created six times faster than
dataclasses. Header names in mappings are lower case (or the mapping ignores case).
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from adapters.family.asks import NOTHING_ASKED, Asks
from adapters.family.rate_headers import RateLines
from adapters.family.stored import NO_STORED_FIELDS, StoredFields
from adapters.family.tap import Tap
from adapters.faults import Fault
from adapters.json.jsonio import Spans, Struct
from store.values.usage import NOT_REPORTED, Served, Usage


@dataclass(frozen=True, slots=True)
class Vendor:
    """A row of the table of vendors: the families they speak, their paths, and their peculiarities.

    `roots`: for a family, the path between a channel's base URL and the operation. It replaces the
    version that the family's own paths start with; families not named here keep that version.
    `any_version`: if the path of the base URL has a version (``/api/v3``), the URL is such a root.
    """

    name: str
    families: frozenset[str]
    auth: Literal["bearer", "x-api-key", "x-goog-api-key", "api-key"]
    roots: Mapping[str, str] = field(default_factory=dict)
    any_version: bool = False
    counts: bool = True  # false: the vendor has no endpoints that count tokens
    forward_openai_headers: bool = False  # OpenAI-Organization, -Project, -Beta of the client
    forward_anthropic_headers: bool = False  # the client's anthropic-* except the workspace
    threads: bool = False  # true: stores conversations of the messages family (`thread`)
    stream_options: bool = True  # false: the vendor refuses the field, so usage is not requested
    endpoints: frozenset[str] = frozenset()  # its rows of adapters/endpoints
    paths: Mapping[str, str] = field(default_factory=dict)  # of a row, after the base URL


# The kinds of operations that all families share. `stream` is a streamed `generate`, in families
# whose path says so; `stored` retrieves and deletes.
Job = Literal[
    "generate", "stream", "count", "compact", "stored", "cancel", "list_input", "list_models"
]
Framing = Literal["sse", "json_array", "bytes"]


class Operation(Struct, frozen=True, gc=False):
    """An endpoint of the relay port.

    `framing`: how a streamed answer is cut into events; `bytes`: not at all. A path may contain a
    target, shown as a placeholder in the endpoint: the model, or the id of a stored object. `row`:
    the operation's name in the table of endpoints; `entry`: the group's entry that permits it. Both
    are empty for chat, which has no row and uses the family's own entry.
    """

    endpoint: str  # path in records, with placeholders for targets: "/v1/responses/{id}"
    job: Job = "generate"
    free: bool = False  # recorded with cost 0, without a hold: counts, stored objects
    stored: bool = False  # about a stored object; the body of the request is not read
    framing: Framing = "sse"
    row: str = ""
    entry: str = ""


class Peek(Struct, frozen=True, gc=False):
    """The few fields of a request that the gateway reads."""

    model: str
    stream: bool
    max_output_tokens: int | None  # None: no bound (clients also send 0)
    choices: int  # answers requested; each is billed
    include_usage: bool  # whether the client's stream shows usage
    stored: bool = False  # the vendor stores the answer for later calls by its id
    asks: Asks = NOTHING_ASKED
    stored_by_default: bool = False  # stored without the request saying so
    # chat completions: the body or its tools have the shape of responses (``adapters.reshape``)
    shape: Literal["", "flat_tools", "items"] = ""


class Envelope(Struct, frozen=True, gc=False):
    """An answer made by the gateway itself."""

    status: int
    headers: dict[str, str]
    body: bytes


class UpstreamAnswer(Struct, frozen=True, gc=False):
    """A whole answer of an upstream, ready for the client.

    ``usage`` is None if the vendor reported no readable usage; ``output_units`` is then the
    estimate of the output tokens (otherwise 0). ``reported`` is the vendor's usage unchanged;
    ``served``: the conditions that the vendor reported.
    """

    body: bytes
    usage: Usage | None
    reported: object | None
    upstream_id: str | None
    output_units: int = 0
    served: Served = NOT_REPORTED


@dataclass(frozen=True, slots=True)
class ModelEntry:
    """A model as lists show it; unknown numbers are None. `efforts`: those of `ir.request` that it
    accepts; `endpoints`: paths that accept it."""

    name: str
    created_s: int
    context_tokens: int | None
    max_output_tokens: int | None
    efforts: tuple[str, ...] = ()
    images: bool = True
    endpoints: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ClientSide:
    """The client side of a family.

    ``credentials``: headers that may carry the key ("?key": the query field). The first one present
    decides. ``answer_headers``: headers of the upstream that may go to the client.
    """

    operations: Mapping[str, Operation]  # by job; a second framing of a job has its own name
    credentials: tuple[str, ...]
    # Return the identity of a request's conversation: the same in all its turns, different in each
    # of a caller's conversations; empty if nothing identifies it. Raises no Fault.
    conversation: Callable[[Spans], bytes]
    # Return the model of body or path (fields, target). Raises Fault MODEL_MISSING, INVALID_FIELD.
    model_name: Callable[[Spans, str | None], str]
    # Read the few fields that the gateway needs (fields, operation, target). Raises Fault
    # MODEL_MISSING, INVALID_FIELD, FIELD_MISSING.
    peek: Callable[[Spans, Operation, str | None], Peek]
    # Encode a refusal or failure before the answer started (fault, request id).
    encode_fault: Callable[[Fault, str], Envelope]
    # Return bytes between two events that keep the connection alive and have no meaning (whether
    # inside an answer; there, at times, the last event's number in families that number events).
    keep_alive: Callable[[bool, int | None], bytes]
    # Return the body of a list of models (models, query). Raises Fault INVALID_FIELD if the query
    # is wrong.
    model_list: Callable[[Sequence[ModelEntry], Mapping[str, str]], bytes]
    model_entry: Callable[[ModelEntry], bytes]  # the body that describes one model
    rate_lines: RateLines  # makes the headers about the caller's rate limits
    stored_fields: StoredFields = NO_STORED_FIELDS  # references to objects that upstreams store
    # tools that the conversation adds to the request's tools, as references to their features
    inline_tools: StoredFields = NO_STORED_FIELDS
    answer_headers: frozenset[str] = frozenset()


class LongMark(NamedTuple):
    """A sign of a hosted tool's use, in an answer too large to be decoded: its first bytes, its
    pattern, and the array element that replaces it in the shortened answer. ``%b`` in the element
    stands for the pattern's group."""

    start: bytes
    pattern: re.Pattern[bytes]
    element: bytes


def no_issued_ids(body: bytes, stored: bool) -> list[str]:
    """Return no ids, for a family whose answers contain none that later requests can name."""
    return []


@dataclass(frozen=True, slots=True)
class UpstreamSide:
    """The upstream side of a family. Errors are read alike (``adapters.upstream_errors``)."""

    operations: Mapping[str, Operation]  # by job
    # Return the path and query of a call, to append to the base URL (operation, upstream's model,
    # target).
    path: Callable[[Operation, str, str | None], str]
    # Return header lines (client's headers, vendor, key). Raises Fault CHANNEL_MISCONFIGURED if
    # the key cannot stand in a header.
    request_headers: Callable[[Mapping[str, str], Vendor, str], list[str]]
    # Return the client's body with the upstream's name of the model and, for streams, the usage
    # option; the same object if nothing changes (fields, read, operation, upstream's model, vendor)
    edit_request: Callable[[Spans, Peek, Operation, str, Vendor], bytes]
    # Return a whole answer (body, public name, upstream's name of the model, operation). Raises
    # Fault UPSTREAM_INVALID, or the condition of an error inside the answer.
    read_answer: Callable[[bytes, str, str, Operation], UpstreamAnswer]
    # Return a tap for a stream (public name, upstream's name, whether usage is dropped, operation).
    stream_tap: Callable[[str, str, bool, Operation], Tap]
    # Return the names of the models that can answer, from a page of the vendor's list. Raises
    # Fault UPSTREAM_INVALID.
    read_models: Callable[[bytes], list[str]]
    # Return the ids of stored objects in a whole answer, other than its own (body, whether the
    # vendor stores the answer). The tap reports those of a stream.
    issued_ids: Callable[[bytes, bool], list[str]] = no_issued_ids
    long_marks: tuple[LongMark, ...] = ()  # signs of hosted tools in a long array of the answer
    models_query: str = ""  # asks for as many models as a page may have
    tier_header: str = ""  # response header with the tier; a tier in the body overrides it
    # Some vendors do not count reasoning towards the client's token bound.
    reasoning_beyond_bound: bool = False


@dataclass(frozen=True, slots=True)
class Family:
    """One wire format, with its client side and its upstream side."""

    name: str
    client: ClientSide
    upstream: UpstreamSide
