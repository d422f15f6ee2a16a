"""Admission: credential, key, entry point, model, bounds of the cost. From memory.

The order of the checks is promised to callers: credential, key, entry point, then (with the body)
JSON, model, fields. The only wait is for a key that nobody has used lately; what a request names of
what upstream accounts keep is checked behind this (admit_stored).
"""

import re
from collections.abc import Callable, Sequence
from ipaddress import IPv4Network, IPv6Network, ip_address

from adapters.family import Family, Peek
from adapters.family.estimate import (
    body_weight,
    input_bound_steps,
    input_bound_tokens,
    tokens_of_weight,
    weight_steps,
)
from adapters.family.stored import StoredRef
from adapters.faults import Condition, Fault
from adapters.json.jsonio import Spans, top_level, top_level_steps
from adapters.json.structure import Steps, at_once
from adapters.registry import CODECS, FAMILIES, TRANSLATORS, VENDORS
from handlers.relay.call import Call
from handlers.relay.limits.limits import Demand
from store.catalog.catalog import Channel, Group, Snapshot
from store.catalog.key_cache import KeyCache
from store.catalog.keys import KeyEntry
from store.values.errors import StoreUnavailable
from store.values.key_secrets import SECRET_PREFIX
from store.values.pricing import bound_nanos

Network = IPv4Network | IPv6Network

_FORWARDED_MAX = 64  # addresses of X-Forwarded-For that are looked at, from the right
DEFAULT_OUTPUT_BOUND_TOKENS = 8192  # when neither the client nor the model says a bound
MODEL_NAME_MAX_CHARS = 128  # of a name in a record
_TOO_MUCH = "The bounds of this request (max_tokens, n) are beyond any amount of money."
_KEY_SHAPE = re.compile(r"[\w.-]{16,200}", re.ASCII)  # of others nothing is shown
_KEY_SHOWN_CHARS = 4
_SEARCHED_BYTES = 1 << 20  # of a large body at a time: a millisecond
LEAST_OUTPUT_TOKENS = 256  # an answer worth starting when little money is left


def client_address(peer: str, forwarded: str | None, trusted: Sequence[Network]) -> str:
    """The caller's address: `peer`, or what a trusted proxy says it is.

    The first address from the right of X-Forwarded-For that is not a trusted proxy; an unreadable
    one ends the search, since anybody may have written it.
    """
    if not trusted or forwarded is None or not is_within(peer, trusted):
        return peer
    found = peer
    for part in reversed(forwarded.split(",")[-_FORWARDED_MAX:]):
        candidate = part.strip()
        try:
            ip_address(candidate)
        except ValueError:
            return found
        found = candidate
        if not is_within(candidate, trusted):
            return found
    return found


def is_within(address: str, networks: Sequence[Network]) -> bool:
    """Return whether an address is in one of some networks; a text that is none is not."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return False
    return any(parsed in network for network in networks)


def credential(header: Callable[[str], str | None], sources: Sequence[str]) -> str:
    """The API key of a request: the first source that is present decides, alone.

    `header` gives a header's value by its lower-case name. Raises Fault MISSING_KEY,
    MALFORMED_AUTHORIZATION.
    """
    for source in sources:
        value = header(source)
        if value is None:
            continue
        if source != "authorization":
            if not value:
                raise Fault(Condition.MISSING_KEY)
            return value
        scheme, _, secret = value.partition(" ")
        if scheme.lower() != "bearer" or "," in secret or secret.split() != [secret]:
            raise Fault(Condition.MALFORMED_AUTHORIZATION)
        return secret
    raise Fault(Condition.MISSING_KEY)


async def find_key(keys: KeyCache, secret: str) -> KeyEntry:
    """The key of a secret, from the store when it is not in memory. Raises Fault INVALID_KEY,
    UNAVAILABLE."""
    try:
        entry = await keys.get(secret)
    except StoreUnavailable:
        raise Fault(Condition.UNAVAILABLE) from None
    if entry is None:
        raise unknown_key(secret)
    return entry


def unknown_key(secret: str) -> Fault:
    """INVALID_KEY, with as much of the key as lets its owner recognise it."""
    if _KEY_SHAPE.fullmatch(secret) is None:
        return Fault(Condition.INVALID_KEY)
    head = SECRET_PREFIX if secret.startswith(SECRET_PREFIX) else ""
    return Fault(Condition.INVALID_KEY, detail=f"{head}…{secret[-_KEY_SHOWN_CHARS:]}")


def check_key(key: KeyEntry, client_ip: str, now_ms: int) -> None:
    """Raises Fault KEY_DISABLED, KEY_EXPIRED, IP_NOT_ALLOWED."""
    if key.disabled or key.revoked:
        raise Fault(Condition.KEY_DISABLED)
    for until_ms in (key.expires_ms, key.valid_until_ms):
        if until_ms is not None and until_ms <= now_ms:
            raise Fault(Condition.KEY_EXPIRED)
    if key.networks and not is_within(client_ip, key.networks):
        raise Fault(Condition.IP_NOT_ALLOWED)


def check_entry(snapshot: Snapshot, key: KeyEntry, family: Family) -> Group:
    """The key's group, when it has the family's entry point. Raises Fault ENTRY_NOT_ALLOWED."""
    group = snapshot.groups.get(key.group)
    if group is None or group.disabled or family.name not in group.entries:
        raise Fault(Condition.ENTRY_NOT_ALLOWED, detail=key.group)
    return group


def read_body(call: Call, body: bytes) -> None:
    """JSON, model and fields of the body into the call. Raises Fault of the client's mistakes."""
    _read_fields(call, body, top_level(body))
    _check_job(call)
    call.body = body
    assert call.spans is not None
    kept = call.family.client.stored_fields
    if kept.may_name(call.spans):
        call.kept_refs = at_once(kept.refs(call.spans))
    codecs = CODECS.get(call.family.name)
    # Not `in`, which raises and drops an exception for each bytes it is asked about.
    call.has_foreign = codecs is not None and body.find(codecs.client.foreign_mark) >= 0
    _set_bounds(call, input_bound_tokens(body), body_weight(body))


def large_body_steps(call: Call, body: bytes) -> Steps[None]:
    """`read_body` in steps, for bodies that take long. Raises Fault INVALID_FIELD also for more
    values than a model can take."""
    spans = yield from top_level_steps(body)
    yield True
    _read_fields(call, body, spans)
    yield True
    _check_job(call)
    call.body = body
    kept = call.family.client.stored_fields
    if (yield from kept.may_name_steps(spans)):
        call.kept_refs = yield from kept.refs(spans)
    if (codecs := CODECS.get(call.family.name)) is not None:
        call.has_foreign = yield from _contains(body, codecs.client.foreign_mark)
    bound = yield from input_bound_steps(body)
    weight = yield from weight_steps(body, 0, len(body))
    _set_bounds(call, bound, weight)


def _contains(body: bytes, mark: bytes) -> Steps[bool]:
    for at in range(0, len(body), _SEARCHED_BYTES):
        if body.find(mark, at, at + _SEARCHED_BYTES + len(mark) - 1) >= 0:
            return True
        yield False
    return False


def _read_fields(call: Call, body: bytes, spans: Spans) -> None:
    """The model and the few fields that are read. Raises Fault MODEL_NOT_FOUND, or of a field."""
    call.spans = spans
    try:
        call.peek = peek = call.family.client.peek(spans, call.operation, call.target)
    except Fault:
        # A model that this key cannot have is told before a field that is wrong.
        name = call.family.client.model_name(spans, call.target)
        call.stream = call.operation.job == "stream" or spans.value("stream") is True
        check_model(call, name)
        raise
    call.stream = peek.stream
    check_model(call, peek.model)


def _check_job(call: Call) -> None:
    """Leaves the channels that can do what is asked. Raises Fault UNKNOWN_PATH."""
    if call.operation.job == "count":
        check_counting(call)
    elif call.operation.job == "compact":
        check_native(call)


def read_stored(call: Call) -> None:
    """A call about the stored response that its path names."""
    assert call.target is not None
    call.stream = "stream=true" in call.query[1:].split("&")
    call.peek = Peek("", call.stream, None, 1, include_usage=True)
    call.kept_refs = (StoredRef("answer", "id", call.target, alone=True),)


def counts(family: str, channel: Channel) -> bool:
    """Whether a channel counts tokens for calls of a family."""
    if not VENDORS[channel.vendor].counts:
        return False
    return channel.family == family or TRANSLATORS[family, channel.family].counts


def check_counting(call: Call) -> None:
    """Leaves the channels whose vendors count tokens; when there are none, but some of other
    families, the count is an estimate. Raises Fault UNKNOWN_PATH when there are none at all."""
    family = call.family.name
    able = tuple(one for one in call.candidates if counts(family, one))
    if able or not call.candidates:
        call.candidates = able
        return
    call.estimated = any(one.family != family for one in call.candidates)
    if not call.estimated:
        raise Fault(Condition.UNKNOWN_PATH, "No channel of this model counts tokens.")


def check_native(call: Call) -> None:
    """Leaves the channels of the call's own family, for what no other has. Raises Fault
    UNKNOWN_PATH when there are none."""
    native = tuple(one for one in call.candidates if one.family == call.family.name)
    if call.candidates and not native:
        raise Fault(Condition.UNKNOWN_PATH, "No channel of this model has this endpoint.")
    call.candidates = native


def check_model(call: Call, name: str) -> None:
    """Finds the model for this key, its current prices and channels. Raises Fault
    MODEL_NOT_FOUND."""
    key, group, snapshot = call.key, call.group, call.snapshot
    assert group is not None
    call.model_name = name[:MODEL_NAME_MAX_CHARS]
    if key.models is not None and name not in key.models:
        raise Fault(Condition.MODEL_NOT_FOUND, model=call.model_name)
    call.candidates = snapshot.candidates(group.name, name, call.family.name)
    # Where all channels drain there are none, either; the plan tells that.
    if not call.candidates and not snapshot.serves(group.name, name, call.family.name):
        elsewhere = _other_entry(call, group, name)
        raise Fault(Condition.MODEL_NOT_FOUND, elsewhere, model=call.model_name)
    # What is offered has prices, too.
    call.model = model = snapshot.models[name]
    call.prices = model.prices_at(call.arrival.started_ms)


def _other_entry(call: Call, group: Group, name: str) -> str | None:
    """What to tell about a model that the key may call, though not here; None when it may not."""
    paths = [
        family.client.operations["generate"].endpoint
        for family in FAMILIES.values()
        if family.name in group.entries and call.snapshot.serves(group.name, name, family.name)
    ]
    if not paths:
        return None
    return f"The model '{call.model_name}' is not served at this entry; call it at {paths[0]}."


def _set_bounds(call: Call, bound: int, weight: int) -> None:
    """Upper bounds of the tokens the call can cost, for the hold and against absurd reports."""
    model, peek = call.model, call.peek
    assert model is not None and peek is not None
    call.input_bound_tokens = bound = min(bound, model.context_tokens or bound)
    # Made now, by the cheap rule: the body is freed when an answer is accepted, and only its end
    # shows whether usage is reported.
    call.input_estimate_tokens = min(tokens_of_weight(weight), bound)
    outputs, most = peek.max_output_tokens, model.max_output_tokens
    if outputs is None or (most is not None and most < outputs):
        outputs = DEFAULT_OUTPUT_BOUND_TOKENS if most is None else most
    call.output_bound_tokens = outputs * peek.choices
    if not call.operation.free:
        call.demand = demand_of(call, peek)


def demand_of(call: Call, peek: Peek) -> Demand:
    """What a paid call asks of token limits. A client that sets no bound of its answer does not
    want the longest that the model can give."""
    inputs, outputs = call.input_estimate_tokens, call.output_bound_tokens
    if peek.max_output_tokens is None:
        outputs = min(outputs, DEFAULT_OUTPUT_BOUND_TOKENS * peek.choices)
    return Demand(inputs, inputs + outputs, inputs + min(outputs, LEAST_OUTPUT_TOKENS))


def least_hold(call: Call) -> int:
    """Nanos with which it may start when less than its `hold_bound` is left: a short answer's.

    Raises Fault INVALID_FIELD when no money covers it.
    """
    return hold_bound(call, min(LEAST_OUTPUT_TOKENS, call.output_bound_tokens))


def hold_bound(call: Call, output_tokens: int | None = None) -> int:
    """Nanos to hold: the most that the call can cost, with so many output tokens if it is not its
    own bound of them. Raises Fault INVALID_FIELD when no money covers it."""
    if output_tokens is None:
        output_tokens = call.output_bound_tokens
    prices, group = call.prices, call.group
    assert prices is not None and group is not None
    try:
        return bound_nanos(call.input_bound_tokens, output_tokens, prices, group.multiplier_ppm)
    except OverflowError:
        raise Fault(Condition.INVALID_FIELD, _TOO_MUCH) from None
