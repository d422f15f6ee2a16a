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

Any upstream can serve any client. If both speak the same family, the bytes pass unchanged and
nothing on this page applies. If not, the request is decoded into the vocabulary of adapters/ir and
encoded for the upstream, and the answer is translated back the same way, event by event.

## What is not carried

Everything that a request asks for gets one of three verdicts for an upstream of another family:

- **carried**: the upstream's family has the same feature, perhaps under another name.
- **dropped, noted**: the answer is still correct without it. The field is named in the response
  header `x-sluice-dropped` and in the attempt of the usage record.
- **refused**: the answer would be wrong without it. The client gets 400 `unsupported_parameter`
  with the field, before any upstream is contacted. A channel that can carry the field is preferred;
  if there is one but it is unavailable, the answer is 503, so that the client retries.

Text, function tools with their calls and results, and the token limit are always carried. The
tables below list everything else that is not always carried, by client family and upstream family.
The last column names the models with another verdict, by their traits in the [table of
models](#what-models-can-take).

A translated request may have up to 16 stop sequences of 256 characters each: if the upstream does
not support them, the gateway searches the whole text of the answer for each. More of them, or
longer ones, are refused with 400 `invalid_type` and the field.
"""

_FIELDS = """\
## Every field of a request

The fields of the request types of the official SDKs (openai 3.57, anthropic 2.14, google-genai
3.6), and the verdict on each for an upstream of another family whose model has the default traits.
For a field with several meanings (`response_format`, `service_tier`, `thinking`) see the tables
above. A field in no list is dropped and noted.

A field is refused if the client would rely on it being honoured: forbidden or forced tokens, the
vendor's moderation, the region or account it works in, an answer that continues the last message. A
field is dropped and noted if no vendor guarantees it (`seed`), if it changes only the style
(penalties, `verbosity`), if it concerns time or cost (caches, tiers), or if it offers a vendor's
own tool that the model may use but need not.
"""

_STATE = """\
## How state travels

**Reasoning.** Every client gets the text of thoughts where its family has it: `reasoning_content`
in chat completions, the summary of a reasoning item in responses, a thinking block in messages, a
part with `thought` in generate-content. State that a vendor signs or encrypts so that thinking can
continue in the next request (signatures, encrypted reasoning, thought signatures) passes through
the client in the field that its family has for it: `encrypted_content`, `signature`,
`thoughtSignature`; in chat completions, extra fields of the message, which clients send back if
they keep unknown fields. The state is wrapped: `gw1.`, the upstream's family, a mark of channel and
upstream key, the value, and a signature by the gateway (`translation_secrets` of secrets.toml) that
is valid for one user. When this user sends it back, it is unwrapped for the channel and key that
made it. For any other channel it is removed together with the thought, and thinking continues
without it, so a conversation can change its channel at any time. If an upstream refuses its own
state, the call is repeated once without any.

Unsigned thoughts are sent back to vendors that do not sign and that require them (`reasoning_echo`,
`thinking_parts`): every thought of the history, from any model. If a model refuses a call because
thoughts are missing, the call is repeated once with them, and later calls include them.

**Compaction** by a model of another family (`/v1/responses/compact`, `compaction_trigger`) is a
summary that the model itself writes, wrapped like state. Any channel can read it: it represents the
user's own conversation and is sent on as text. A vendor's own compaction is that vendor's state.

**Ids of tool calls** reach the client as the upstream made them. An id with characters that a
family does not allow is sent as `gw_` and its base64url form, which is decoded on the way back. If
an upstream gives none, the gateway derives one from the position of the call, always the same.

**Names of tools** that are too long for the upstream, or have characters it refuses, are shortened
with a hash, and the client gets its own names back. Free-text tools become functions with one
string, `input`; tools of a group become functions with the group's name as prefix.

**Order of turns.** Each upstream gets turns in the order that it requires: adjacent turns of one
role are joined, tool results come first and together, a missing result is filled in, a result
without its call becomes text.

**Stop sequences** that an upstream does not support are detected by the gateway, which ends the
answer there. **Usage** is counted in disjoint classes (input, cache read, cache written, output,
reasoning) and shown with the containment rules of the client's family; the cost follows the
upstream's numbers. **Errors**, also inside a stream, have the shape of the client's family.

**Stored state** does not cross: `previous_response_id`, conversations, background and files that
were uploaded to a vendor are refused by channels of other families. `thread` of messages needs a
channel that keeps threads; without one the refusal has the code `thread_unsupported_request`, and
SDKs send the whole conversation.
"""

_MODELS = """\
## What models can take

The content of a translated request depends on the upstream's model. A row applies to a vendor, a
family and a prefix of the upstream's model name. The longest matching prefix wins; a row of the
vendor takes precedence over one of any vendor. The table lists differences from the default:

{default}

A channel's `options` override single traits for all its models, for a new model of a vendor or a
self-hosted server that can do less or more:

    ./sluice channel set at-home options.images=false options.token_bound=max_tokens

The traits and their values are listed in [channels.md](channels.md); `apply` and `channel set`
refuse an unknown trait or an invalid value.
"""

_MATRIX = """\
## What was tried

The official SDK of each client family (openai, anthropic, google-genai) against a scripted vendor
of each upstream family, which refuses what the real one refuses. `make matrix` runs all
combinations and writes this table; `make test` fails if a cell is wrong. ✓: works both whole and
streamed; `plain`, `stream`: only that way; ✗: neither; an empty cell: does not apply to that
client.
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
    yield "| feature | field | verdict | for models with |"
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
    yield "| vendor | family | model prefix | differences |"
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
