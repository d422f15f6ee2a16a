"""Admission of requests that name what upstream accounts keep: whose it is, and where it is.

A channel's account is shared by its users. What an answer has handed out belongs to its user and
goes to the place that made it; what was made outside of the gateway may be named where a channel
lists it. All of a call's ids are looked up at once. Imported by the pipeline.
"""

from collections.abc import Mapping

from adapters.family.stored import StoredRef
from adapters.faults import Condition, Fault
from adapters.registry import VENDORS
from handlers.relay.call import Call
from handlers.relay.faults import from_store
from handlers.relay.stored_responses import StoredResponses
from store.catalog.catalog import Channel
from store.values.errors import StoreUnavailable
from store.values.usage_record import StoredAt

_ID_SHOWN_MAX = 80
_ELSEWHERE = (
    "'{}' names something that another upstream keeps; this model cannot see it: send the"
    " conversation itself."
)
_NO_THREADS = (
    "No channel of this model keeps threads: send the whole conversation without 'thread'."
)
_APART = "The ids '{}' and '{}' are kept by two upstream accounts; no request can use both."

Places = Mapping[str, StoredAt | None]
"""By id: where it is; with no channel, when it is another user's; None: nobody was given it."""


async def admit_kept(call: Call, stored: StoredResponses) -> None:
    """Leaves a call the channels, and of the one that made what it names the upstream key, that
    keep all of it.

    Raises Fault ID_NOT_FOUND when something is another user's or not known here, UNSUPPORTED when
    all channels of the model speak other families, NO_CHANNEL when the one that keeps it is
    disabled, UNAVAILABLE when only the store could tell and is away or has yet to be told.
    """
    asked = [one.id for one in call.kept_refs if _is_looked_up(call, one)]
    places: Places = {}
    if asked and makers(call):
        try:
            found = await stored.find(call.key.user_id, asked)
        except StoreUnavailable as error:
            raise from_store(error) from None
        places = dict(zip(asked, found, strict=True))
    check_kept(call, places, refuse=stored.refuse)


def makers(call: Call) -> list[Channel]:
    """The channels, also disabled ones, that can have made what a call finds kept."""
    group, family = call.key.group, call.family.name
    channels = call.snapshot.channels
    return [one for one in channels if one.family == family and group in one.groups]


def check_kept(call: Call, places: Places, *, refuse: bool) -> None:
    """`admit_kept` when the places are known. `refuse`: what nobody here knows is refused;
    otherwise it goes on, what can be in one place alone only where there is one channel.

    Raises Fault as `admit_kept` does.
    """
    refs, family = call.kept_refs, call.family.name
    foreign = bool(call.candidates) and all(one.family != family for one in call.candidates)
    if foreign:
        _check_foreign(refs, places)
        return
    place = _place_of(refs, places)
    pool = call.candidates if place is None else (_channel_at(call, refs, places, place),)
    for ref in refs:
        if places.get(ref.id) is None:
            pool = _narrowed(call, ref, pool, refuse=refuse, placed=place is not None)
    call.candidates = pool
    if place is not None:
        call.candidates = call.snapshot.pinned(pool[0], place.fingerprint)


def _is_looked_up(call: Call, ref: StoredRef) -> bool:
    """Return whether an answer may have made it: not when it is shared by all users anyway."""
    if ref.kind == "either":
        return not any(channel.shares(ref.id) for channel in _native(call, call.candidates))
    return ref.kind == "answer"


def _native(call: Call, channels: tuple[Channel, ...]) -> tuple[Channel, ...]:
    return tuple(one for one in channels if one.family == call.family.name)


def _place_of(refs: tuple[StoredRef, ...], places: Places) -> StoredAt | None:
    """The one place that keeps all that answers have made. Raises Fault ID_NOT_FOUND."""
    place, first = None, ""
    for ref in refs:
        found = places.get(ref.id)
        if found is None:
            continue
        if not found.channel_id:
            raise _unknown(ref)
        if place is None:
            place, first = found, ref.id
        elif (found.channel_id, found.fingerprint) != (place.channel_id, place.fingerprint):
            apart = _APART.format(first[:_ID_SHOWN_MAX], ref.id[:_ID_SHOWN_MAX])
            raise Fault(Condition.ID_NOT_FOUND, apart, param=ref.param, details=ref.details)
    return place


def _channel_at(
    call: Call, refs: tuple[StoredRef, ...], places: Places, place: StoredAt
) -> Channel:
    """The channel of a place, if it may serve this call. Raises Fault ID_NOT_FOUND, NO_CHANNEL."""
    ref = next(one for one in refs if places.get(one.id) is not None)
    channel = call.snapshot.channel(place.channel_id)
    if channel is None or channel not in makers(call):
        raise _unknown(ref)
    if not channel.enabled:
        # Who can go on without it is told that it is gone.
        raise _unknown(ref) if ref.details else Fault(Condition.NO_CHANNEL, model=call.model_name)
    if not call.operation.stored and channel not in call.candidates:
        raise _unknown(ref)
    return channel


def _narrowed(
    call: Call, ref: StoredRef, pool: tuple[Channel, ...], *, refuse: bool, placed: bool
) -> tuple[Channel, ...]:
    """Those of the channels that may be asked for something of no known place. Raises Fault
    ID_NOT_FOUND, UNSUPPORTED."""
    native = _native(call, pool)
    if ref.kind == "thread":
        able = tuple(one for one in native if VENDORS[one.vendor].threads)
        if pool and not able:
            raise _no_threads(ref)
        return able
    sharing = tuple(one for one in native if one.shares(ref.id)) if ref.kind != "answer" else ()
    if sharing or (ref.kind != "answer" and not pool):  # all drain: the plan tells that
        return sharing
    if refuse:
        raise _unknown(ref)
    if not ref.alone or placed:
        return pool
    alone = call.snapshot.native(call.key.group, call.family.name)
    if len(alone) != 1:
        raise _unknown(ref)
    return alone


def _check_foreign(refs: tuple[StoredRef, ...], places: Places) -> None:
    """Raises Fault UNSUPPORTED, ID_NOT_FOUND for what the conversation would be without; the rest
    is left to the translation, which sends no id to a channel of another family."""
    for ref in refs:
        if ref.kind == "thread":
            raise _no_threads(ref)
        if not ref.alone:
            continue
        place = places.get(ref.id)
        if ref.kind == "answer" and (place is None or not place.channel_id):
            raise _unknown(ref)
        raise Fault(Condition.UNSUPPORTED, _ELSEWHERE.format(ref.param), param=ref.param)


def _no_threads(ref: StoredRef) -> Fault:
    return Fault(Condition.UNSUPPORTED, _NO_THREADS, param=ref.param, details=ref.details)


def _unknown(ref: StoredRef) -> Fault:
    detail = ref.id[:_ID_SHOWN_MAX]
    return Fault(Condition.ID_NOT_FOUND, param=ref.param, detail=detail, details=ref.details)
