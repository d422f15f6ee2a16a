"""Admission of requests that name what upstream accounts keep: its owner and its channel.

A channel's account is shared by its users. What an answer has handed out belongs to its user, and
calls go to the channel that made it; what was made outside of the gateway may be named where a
channel lists it. All of a call's ids are looked up at once. Imported by the pipeline.
"""

from collections.abc import Mapping

from adapters.family.stored import StoredRef
from adapters.faults import Condition, Fault
from adapters.registry import VENDORS
from handlers.relay.call import Admitted, RequestHead
from handlers.relay.faults import from_store
from handlers.relay.stored_responses import StoredResponses
from store.catalog.catalog import Channel
from store.values.errors import StoreUnavailable
from store.values.usage_record import StoredAt

_ID_MAX_CHARS = 80
_ELSEWHERE = (
    "'{}' names something that another upstream keeps; this model cannot see it: send the"
    " conversation itself."
)
_NO_THREADS = (
    "No channel of this model keeps threads: send the whole conversation without 'thread'."
)
_APART = "The ids '{}' and '{}' are kept by two upstream accounts; no request can use both."

Places = Mapping[str, StoredAt | None]
"""Places by id; without a channel: another user's; None: nobody was given the id."""


async def admit_stored(
    head: RequestHead, admitted: Admitted, stored: StoredResponses
) -> tuple[Channel, ...]:
    """Return the channels that keep all that a call names, of a channel that made some of it with
    the upstream key alone.

    Raises Fault ID_NOT_FOUND when something is another user's or not known here, UNSUPPORTED when
    all channels of the model speak other families, NO_CHANNEL when the one that keeps it is
    disabled, UNAVAILABLE when only the store knows, and it is unreachable or behind.
    """
    ids = [ref.id for ref in admitted.refs if _is_looked_up(head, admitted, ref)]
    places: Places = {}
    if ids and possible_makers(head):
        try:
            found_places = await stored.find(head.key.user_id, ids)
        except StoreUnavailable as error:
            raise from_store(error) from None
        places = dict(zip(ids, found_places, strict=True))
    return _keeping_channels(head, admitted, places, refuse=stored.refuse)


def possible_makers(head: RequestHead) -> list[Channel]:
    """Return the channels, also disabled ones, that may have made what a call names."""
    group, family = head.key.group, head.family.name
    return [
        channel
        for channel in head.snapshot.channels
        if channel.family == family and group in channel.groups
    ]


def _keeping_channels(
    head: RequestHead, admitted: Admitted, places: Places, *, refuse: bool
) -> tuple[Channel, ...]:
    """Return as `admit_stored` does, by known places. `refuse`: unknown ids are refused; otherwise
    they go on, those that can be in one place alone only where there is one channel."""
    refs, family = admitted.refs, head.family.name
    channels = admitted.channels
    if channels and all(channel.family != family for channel in channels):
        _check_foreign(refs, places)
        return channels
    place = _place_of(refs, places)
    if place is not None:
        channels = (_channel_at(head, admitted, places, place),)
    for ref in refs:
        if places.get(ref.id) is None:
            channels = _narrowed(head, ref, channels, refuse=refuse, placed=place is not None)
    if place is None:
        return channels
    return head.snapshot.pinned(channels[0], place.fingerprint)


def _is_looked_up(head: RequestHead, admitted: Admitted, ref: StoredRef) -> bool:
    """Return whether an answer may have made it: not when it is shared by all users anyway."""
    if ref.kind == "either":
        return not any(channel.shares(ref.id) for channel in _native(head, admitted.channels))
    return ref.kind == "answer"


def _native(head: RequestHead, channels: tuple[Channel, ...]) -> tuple[Channel, ...]:
    return tuple(channel for channel in channels if channel.family == head.family.name)


def _place_of(refs: tuple[StoredRef, ...], places: Places) -> StoredAt | None:
    """Return the one place that keeps all that answers have made. Raises Fault ID_NOT_FOUND."""
    place, first = None, ""
    for ref in refs:
        at = places.get(ref.id)
        if at is None:
            continue
        if not at.channel_id:
            raise _unknown(ref)
        if place is None:
            place, first = at, ref.id
        elif (at.channel_id, at.fingerprint) != (place.channel_id, place.fingerprint):
            apart = _APART.format(first[:_ID_MAX_CHARS], ref.id[:_ID_MAX_CHARS])
            raise Fault(Condition.ID_NOT_FOUND, apart, param=ref.param, details=ref.details)
    return place


def _channel_at(head: RequestHead, admitted: Admitted, places: Places, place: StoredAt) -> Channel:
    """Return the channel of a place, if it may serve this call. Raises Fault ID_NOT_FOUND,
    NO_CHANNEL."""
    ref = next(ref for ref in admitted.refs if places.get(ref.id) is not None)
    channel = head.snapshot.channel(place.channel_id)
    if channel is None or channel not in possible_makers(head):
        raise _unknown(ref)
    if not channel.enabled:
        # Clients that can go on without it learn that it is gone.
        if ref.details:
            raise _unknown(ref)
        offer = admitted.offer
        raise Fault(Condition.NO_CHANNEL, model=offer.model.name if offer else None)
    if not head.operation.stored and channel not in admitted.channels:
        raise _unknown(ref)
    return channel


def _narrowed(
    head: RequestHead, ref: StoredRef, channels: tuple[Channel, ...], *, refuse: bool, placed: bool
) -> tuple[Channel, ...]:
    """Return those of the channels that may be asked for something of no known place. Raises Fault
    ID_NOT_FOUND, UNSUPPORTED."""
    native = _native(head, channels)
    if ref.kind == "thread":
        threading = tuple(channel for channel in native if VENDORS[channel.vendor].threads)
        if channels and not threading:
            raise _no_threads(ref)
        return threading
    if ref.kind != "answer":
        sharing = tuple(channel for channel in native if channel.shares(ref.id))
        if sharing or not channels:  # all drain: the plan reports that
            return sharing
    if refuse:
        raise _unknown(ref)
    if not ref.alone or placed:
        return channels
    only = head.snapshot.native(head.key.group, head.family.name)
    if len(only) != 1:
        raise _unknown(ref)
    return only


def _check_foreign(refs: tuple[StoredRef, ...], places: Places) -> None:
    """Raise Fault UNSUPPORTED, ID_NOT_FOUND for what the conversation would lack; the rest is
    left to the translation, which sends no id to a channel of another family."""
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
    detail = ref.id[:_ID_MAX_CHARS]
    return Fault(Condition.ID_NOT_FOUND, param=ref.param, detail=detail, details=ref.details)
