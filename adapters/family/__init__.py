"""The shape of a wire family, and the values that pass between it and the relay.

Only shapes: ``Family`` with its two sides, which are functions, and frozen values. A family fills
them in a folder of its own and is named in ``registry.py``; handlers and the relay know nothing
else of it. Values that are made for every call are structs, which are made six times faster than
dataclasses. Names of headers in mappings are lower case (or the mapping does not mind case).
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

    `roots`: what stands between a channel's base URL and a family's operation, in place of the
    version with which the family's own paths begin; those keep it in families that are not named.
    `any_version`: a base URL whose path has a version (``/api/v3``) is such a root itself.
    """

    name: str
    families: frozenset[str]
    auth: Literal["bearer", "x-api-key", "x-goog-api-key", "api-key"]
    roots: Mapping[str, str] = field(default_factory=dict)
    any_version: bool = False
    counts: bool = True  # false: has no endpoints that count tokens
    forward_openai_headers: bool = False  # OpenAI-Organization, -Project, -Beta of the client
    forward_anthropic_headers: bool = False  # anthropic-* of the client, but for the workspace
    threads: bool = False  # true: keeps conversations of the messages family (`thread`)
    stream_options: bool = True  # false: refuses the field, so usage is not requested
    endpoints: frozenset[str] = frozenset()  # rows of adapters/endpoints that it has
    paths: Mapping[str, str] = field(default_factory=dict)  # of a row, behind the base URL


# The kinds of operations that all families share. `stream` is a streamed `generate` where the path
# says so; `stored` retrieves and deletes.
Job = Literal[
    "generate", "stream", "count", "compact", "stored", "cancel", "list_input", "list_models"
]
Framing = Literal["sse", "json_array", "bytes"]


class Operation(Struct, frozen=True, gc=False):
    """An endpoint of the relay port.

    `framing` says how a streamed answer is cut into events; `bytes`: not at all. A path may name a
    target that the endpoint shows as a placeholder: the model, or the id of something that the
    vendor has stored. `row`: its name in the table of endpoints, `entry` the group's entry that
    permits it; empty, as of chat: none, and the family's own.
    """

    endpoint: str  # path of records, targets in it replaced: "/v1/responses/{id}"
    job: Job = "generate"
    free: bool = False  # recorded with cost 0 and without a hold: counts, stored things
    stored: bool = False  # about something stored; the request has no body that is read
    framing: Framing = "sse"
    row: str = ""
    entry: str = ""


class Peek(Struct, frozen=True, gc=False):
    """The few fields of a request that the gateway reads."""

    model: str
    stream: bool
    max_output_tokens: int | None  # None: the client set no bound; 0 is none
    choices: int  # answers requested, each is billed
    include_usage: bool  # whether the client's stream is to show usage
    stored: bool = False  # the vendor is to keep the answer for later calls that name its id
    asks: Asks = NOTHING_ASKED
    stored_by_default: bool = False  # stored, though the request does not say so
    # chat completions: a body in the shape of responses, or its tools (``adapters.reshape``)
    shape: Literal["", "flat_tools", "items"] = ""


class Envelope(Struct, frozen=True, gc=False):
    """An answer made by the gateway itself."""

    status: int
    headers: dict[str, str]
    body: bytes


class UpstreamAnswer(Struct, frozen=True, gc=False):
    """A whole answer of an upstream, ready for the client.

    ``usage`` is None when the vendor reported none that can be read; ``output_units`` is then the
    estimate of its output tokens (else 0). ``reported`` is the vendor's usage as it stands;
    ``served``: the conditions that it reported.
    """

    body: bytes
    usage: Usage | None
    reported: object | None
    upstream_id: str | None
    output_units: int = 0
    served: Served = NOT_REPORTED


@dataclass(frozen=True, slots=True)
class ModelEntry:
    """A model as lists show it; None where a number is not known. `efforts`: those of `ir.request`
    that it takes; `endpoints`: paths that take it."""

    name: str
    created_s: int
    context_tokens: int | None
    max_output_tokens: int | None
    efforts: tuple[str, ...] = ()
    images: bool = True
    endpoints: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ClientSide:
    """A family as the gateway speaks it with its clients.

    ``credentials``: headers that may carry the key ("?key": the query's field); the first one
    present decides. ``answer_headers``: those of the upstream that may go down to the client.
    """

    operations: Mapping[str, Operation]  # by job; the other framing of one by a name of its own
    credentials: tuple[str, ...]
    # the identity of a request's conversation: another in each of a caller's conversations, the
    # same in all turns of one; empty when nothing does. Makes no faults.
    conversation: Callable[[Spans], bytes]
    # the model of body or path (fields, target); raises Fault MODEL_MISSING, INVALID_FIELD
    model_name: Callable[[Spans, str | None], str]
    # a few fields (fields, operation, target); raises MODEL_MISSING, INVALID_FIELD, FIELD_MISSING
    peek: Callable[[Spans, Operation, str | None], Peek]
    # a refusal or failure before the answer began (fault, request id)
    encode_fault: Callable[[Fault, str], Envelope]
    # bytes between two events that keep the connection alive and mean nothing (inside an answer?
    # then, now and again, the number of the last event, of a family that counts them)
    keep_alive: Callable[[bool, int | None], bytes]
    # the body of a list of models (models, query); raises Fault INVALID_FIELD for a bad query
    model_list: Callable[[Sequence[ModelEntry], Mapping[str, str]], bytes]
    model_entry: Callable[[ModelEntry], bytes]  # the body that shows one model
    rate_lines: RateLines  # makes the headers about the caller's own limits
    stored_fields: StoredFields = NO_STORED_FIELDS  # references to what upstream accounts store
    # tools that the conversation adds to those of the request, as references to their features
    inline_tools: StoredFields = NO_STORED_FIELDS
    answer_headers: frozenset[str] = frozenset()


class LongMark(NamedTuple):
    """A sign of a hosted tool's use in an answer that is too large to be decoded: the bytes that it
    begins with, its pattern, and the element of the array that stands for it in the shortened
    answer, with the pattern's group in place of ``%b``."""

    start: bytes
    pattern: re.Pattern[bytes]
    element: bytes


def no_issued_ids(body: bytes, stored: bool) -> list[str]:
    """Return no ids, for a family whose answers issue none that a request can name later."""
    return []


@dataclass(frozen=True, slots=True)
class UpstreamSide:
    """A family as upstreams speak it; errors are read alike (``adapters.upstream_errors``)."""

    operations: Mapping[str, Operation]  # by job
    # the path of a call, behind the base URL, with its query (operation, upstream's model, target)
    path: Callable[[Operation, str, str | None], str]
    # header lines (client's headers, vendor, key); CHANNEL_MISCONFIGURED when the key fits in none
    request_headers: Callable[[Mapping[str, str], Vendor, str], list[str]]
    # the client's body with the upstream's name of the model and, in streams, the usage option;
    # the same object when nothing has to change (fields, read, operation, upstream's model, vendor)
    edit_request: Callable[[Spans, Peek, Operation, str, Vendor], bytes]
    # a whole answer (body, public name, upstream's name of the model, operation); raises Fault
    # UPSTREAM_INVALID or the condition of an error inside it
    read_answer: Callable[[bytes, str, str, Operation], UpstreamAnswer]
    # a tap for a stream (public name, upstream's name, whether usage is dropped, operation)
    stream_tap: Callable[[str, str, bool, Operation], Tap]
    # the names of the models that can answer, in a page of the vendor's list; UPSTREAM_INVALID
    read_models: Callable[[bytes], list[str]]
    # the ids of stored things, besides its own, that a whole answer issues (body, whether the
    # vendor stores the answer itself); those of a stream are reported by its tap
    issued_ids: Callable[[bytes, bool], list[str]] = no_issued_ids
    long_marks: tuple[LongMark, ...] = ()  # of uses that a whole answer shows in its long array
    models_query: str = ""  # asks for as many of them as a page may have
    tier_header: str = ""  # a field of the answer's head with the tier; one in the body goes before
    # some vendors do not count reasoning towards the bound that a client sets
    reasoning_beyond_bound: bool = False


@dataclass(frozen=True, slots=True)
class Family:
    """One wire format, with its client side and its upstream side."""

    name: str
    client: ClientSide
    upstream: UpstreamSide
