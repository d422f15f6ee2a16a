"""The generator of docs/conversions.md: what a translation between two families carries.

Made from the verdicts of the codecs, the table of models, and the results of the matrix of tests
(tests/translation/table.json).
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_args, get_type_hints

import msgspec

from adapters.codecs import CODECS
from adapters.family.codec import Asking, UpstreamCodec
from adapters.family.traits import Traits
from adapters.ir.request import Feature
from adapters.models import TABLE
from adapters.registry import FAMILY_NAMES
from tools.docs.conversion_words import CASES, FEATURES

PAGE = "docs/conversions.md"
RESULTS = Path(__file__).resolve().parents[2] / "tests/translation/table.json"
TITLES = {
    "chat_completions": "chat completions",
    "responses": "responses",
    "messages": "messages",
    "generate_content": "generate-content",
}
MODES = 2  # plain and stream
_VERDICTS = {"map": "carried", "note": "dropped, noted", "refuse": "refused"}

_HEAD = """\
# Conversions

Made by `make docs` from the codecs in adapters/, the table of models and the results of the tests;
do not edit.

Any client can be served by any upstream. Where both speak the same family, the bytes pass as they
are, and nothing on this page applies. Where they do not, the request is decoded into the words of
adapters/ir, encoded for the upstream, and its answer comes back the same way, event by event.

## What is not carried

Everything that a request asks for has one of three verdicts at an upstream of another family:

- **carried**: the upstream's family says the same, perhaps in other words.
- **dropped, noted**: the answer stays right without it. The field is named in the header
  `x-sluice-dropped` of the answer and in the attempt of the usage record.
- **refused**: the answer would be wrong without it: 400, code `unsupported_parameter`, with the
  field, before any upstream is asked. A channel that can carry it is preferred; when there is one
  but it cannot be asked now, the answer is 503, so that the call is tried again.

Texts, function tools, their calls and results, and the token bound are carried by all. The tables
below list the rest that is not always carried, for each client's family before each upstream's.
The last column says for which models another verdict holds; its names are those of the [table of
models](#what-models-can-take).

A translated request has at most 16 stop sequences of 256 characters: where the upstream does not
take them, the gateway looks for each in all text of the answer. More are 400, code `invalid_type`,
with the field.
"""

_FIELDS = """\
## Every field of a request

The fields of the request types of the official SDKs (openai 3.57, anthropic 2.14, google-genai
3.6), and what becomes of each at an upstream of another family whose model has the usual traits. A
field that says several things (`response_format`, `service_tier`, `thinking`) is judged by the
tables above. A field that is in no list is dropped and noted.

Refused is what a client would take for granted in an answer that is made without it: tokens that
are forbidden or forced, checks of the vendor, the region or account it works in, an answer that
goes on just where the last message ends. Noted is what no vendor promises (`seed`), what changes
the style alone (penalties, `verbosity`), what costs time or money (caches, tiers), and tools of the
vendor's own that the model may use and need not.
"""

_STATE = """\
## How state travels

**Reasoning.** The text of thoughts is shown to every client in the way of its family:
`reasoning_content` in chat completions, the summary of a reasoning item in responses, a thinking
block in messages, a part with `thought` in generate-content. What a vendor signs or encrypts, so
that thinking can go on in the next request (signatures, encrypted reasoning, thought signatures),
goes through the client in the place where its family keeps such things: `encrypted_content`,
`signature`, `thoughtSignature`; for chat completions in extra fields of the message that clients
send back if they keep what they do not know. It is wrapped: `gw1.`, the upstream's family, a mark
of channel and upstream key, the value, and a signature of the gateway's (`translation_secrets` of
secrets.toml) that holds for one user. When this user sends it back, it is unwrapped for the channel
and key that made it. For any other it is removed together with the thought, and thinking goes on
without; so a conversation may change its channel at any time. When an upstream refuses its own
state, the call is repeated once without any.

Thoughts that nobody has signed go back to vendors that sign none and go on only with them
(`reasoning_echo`, `thinking_parts`): every thought of the history, whoever made it. A model that
refuses a call because thoughts are missing is asked once more with them, and again from then on.

**Compaction** by a model of another family (`/v1/responses/compact`, `compaction_trigger`) is a
summary that the model itself writes, wrapped as state is. Any channel reads it again: it stands for
the user's own conversation, and goes on as text. What a vendor has compacted is its own state.

**Ids of tool calls** reach the client as the upstream made them. An id with characters that a
family does not have is sent as `gw_` and its base64url form, which is undone on the way back; where
an upstream gives none, the gateway makes one from the place of the call, the same each time.

**Names of tools** that are too long for the upstream, or have characters it refuses, are shortened
with a hash, and the client gets its own names back. Free-text tools become functions with one
string, `input`; groups of tools become functions with the group's name before theirs.

**Order of turns.** Each upstream gets turns as it demands them: neighbours of one role joined,
results of tools first and together, a missing result filled in, a result without its call as text.

**Stop sequences** that an upstream does not know are looked for by the gateway, which ends the
answer there. **Usage** is counted in disjoint classes (input, cache read, cache written, output,
reasoning) and shown with the containment rules of the client's family; the cost follows the
upstream's numbers. **Errors**, also inside a stream, have the shape of the client's family.

**Stored state** does not cross: `previous_response_id`, conversations, background and files that
were uploaded to a vendor are refused by channels of other families. `thread` of messages needs a
channel that keeps threads: else the refusal says `thread_unsupported_request`, and SDKs send the
whole conversation.
"""

_MODELS = """\
## What models can take

What a translated request holds depends on the upstream's model. A row goes by the vendor, the
family, and the beginning of the upstream's name of the model; the longest that fits wins, and one
of the vendor goes before one of any vendor. The table lists what differs from the default:

{default}

A channel's `options` override single traits for all its models, where a vendor's model is new or a
server of one's own can do less or more:

    ./sluice channel set at-home options.images=false options.token_bound=max_tokens

The traits and their values are listed in [channels.md](channels.md); an unknown one, or a value
that it cannot have, is an error of `apply` and `channel set`.
"""

_MATRIX = """\
## What was tried

The official SDK of each client's family (openai, anthropic, google-genai) before a scripted vendor
of each upstream's family, which refuses what the real one refuses. `make matrix` tries them all and
writes this table; `make test` fails where a cell does not do as it says. ✓: passes whole and
streamed; `plain`, `stream`: only so; ✗: neither; an empty cell: that client has no such thing.
"""


def page() -> str:
    """Return the whole page."""
    lines = [_HEAD]
    for client in CODECS:
        for upstream, codecs in CODECS.items():
            if client != upstream:
                lines += _pair(client, upstream, codecs.upstream)
    lines += [_FIELDS, *_fields(), _STATE, *_models(), _MATRIX, *_matrix()]
    return "\n".join(lines).rstrip() + "\n"


def _pair(client: str, upstream: str, codec: UpstreamCodec) -> Iterator[str]:
    yield f"### {TITLES[client].capitalize()} → {TITLES[upstream]}\n"
    rows = list(_losses(client, codec))
    yield "| what | field | verdict | for models with |"
    yield "|---|---|---|---|"
    yield from rows
    yield ""


def _losses(client: str, codec: UpstreamCodec) -> Iterator[str]:
    others = _exceptions(codec)
    for feature, named in FEATURES.items():
        field = getattr(named, client)
        verdict = codec.verdict(feature, Traits())
        if field and (verdict != "map" or feature in others):
            special = "; ".join(others.get(feature, ()))
            yield f"| {named.words} | {field} | {_VERDICTS[verdict]} | {special} |"


def _exceptions(codec: UpstreamCodec) -> Mapping[Feature, list[str]]:
    """Return the verdicts that a single trait changes, each with its new value."""
    found: dict[Feature, list[str]] = {}
    for name, value in _other_values():
        traits = msgspec.structs.replace(Traits(), **{name: value})
        for feature in FEATURES:
            verdict = codec.verdict(feature, traits)
            if verdict != codec.verdict(feature, Traits()):
                said = f"`{name}={_written(value)}`: {_VERDICTS[verdict]}"
                found.setdefault(feature, []).append(said)
    return found


def _other_values() -> Iterator[tuple[str, Any]]:
    """Yield each trait that is a word or boolean, with each value other than its default."""
    default = Traits()
    for name, kind in get_type_hints(Traits).items():
        usual = getattr(default, name)
        if isinstance(usual, bool | str):
            values = (True, False) if kind is bool else get_args(kind)
            yield from ((name, value) for value in values if value != usual)


def _written(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _fields() -> Iterator[str]:
    for client, codecs in CODECS.items():
        others = [name for name in FAMILY_NAMES if name != client]
        yield f"### Fields of {TITLES[client]}\n"
        yield f"| field | {' | '.join(TITLES[upstream] for upstream in others)} |"
        yield "|---" * (len(others) + 1) + "|"
        for name, feature in sorted(codecs.client.fields.items()):
            cells = [_verdict(CODECS[upstream].upstream, feature) for upstream in others]
            yield f"| `{name}` | {' | '.join(cells)} |"
        yield ""


def _verdict(codec: UpstreamCodec, feature: Asking) -> str:
    return _VERDICTS[codec.verdict(feature, Traits()) if feature else "map"]


def _models() -> Iterator[str]:
    default = ", ".join(
        f"`{name}={_written(getattr(Traits(), name))}`" for name in Traits.__struct_fields__
    )
    yield _MODELS.format(default=default)
    yield "| vendor | family | model begins with | differs by |"
    yield "|---|---|---|---|"
    rows: dict[tuple[str, str, str], list[str]] = {}
    for (vendor, family, prefix), traits in TABLE.items():
        key = (vendor or "any", prefix, _differences(traits))
        rows.setdefault(key, []).append(TITLES[family])
    joined: dict[tuple[str, str, str], list[str]] = {}
    for (vendor, prefix, differs), families in rows.items():
        joined.setdefault((", ".join(families), prefix, differs), []).append(vendor)
    for (families_said, prefix, differs), vendors in joined.items():
        name = f"`{prefix}`" if prefix else "any name"
        yield f"| {', '.join(vendors)} | {families_said} | {name} | {differs} |"
    yield ""


def _differences(traits: Traits) -> str:
    default = Traits()
    return ", ".join(
        f"`{name}={_written(getattr(traits, name))}`"
        for name in Traits.__struct_fields__
        if getattr(traits, name) != getattr(default, name)
    )


def _matrix() -> Iterator[str]:
    results = json.loads(RESULTS.read_text(encoding="utf-8"))
    for client in FAMILY_NAMES:
        yield f"### A client of {TITLES[client]}\n"
        yield f"| case | {' | '.join(TITLES[upstream] for upstream in FAMILY_NAMES)} |"
        yield "|---" * (len(FAMILY_NAMES) + 1) + "|"
        for case, words in CASES.items():
            cells = results[case][client]
            shown = [_cell(case, client, cells[upstream]) for upstream in FAMILY_NAMES]
            yield f"| {words} | {' | '.join(shown)} |"
        yield ""


def _cell(case: str, client: str, modes: list[str]) -> str:
    if case == "stop" and client == "responses":
        return ""
    if len(modes) == MODES or (case == "error_midstream" and modes):
        return "✓"
    return modes[0] if modes else "✗"
