"""Admission of requests that name objects stored in upstream accounts, by owner and channel.

A channel's account is shared by its users. An object that an answer handed out belongs to that
answer's user, and calls that name it go to the channel that made it. An object made outside of the
gateway may be named if a channel lists it. All of a call's ids are looked up at once. Imported by
the pipeline.
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
"""Places by id. A place without a channel: another user's. None: nobody was given the id."""


async def admit_stored(
    head: RequestHead, admitted: Admitted, stored: StoredResponses
) -> tuple[Channel, ...]:
    """Return the channels that have all stored objects that a call names. A channel that made some
    of them comes with only the upstream key that was used.

    Raises Fault ID_NOT_FOUND if an object is another user's or unknown, UNSUPPORTED if all channels
    of the model are of other families, NO_CHANNEL if the channel that has the object is disabled,
    UNAVAILABLE if only the store can answer, and it is unreachable or behind.
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
    """Return the channels, including disabled ones, that may have made the objects a call names."""
    group, family = head.key.group, head.family.name
    return [
        channel
        for channel in head.snapshot.channels
        if channel.family == family and group in channel.groups
    ]


def _keeping_channels(
    head: RequestHead, admitted: Admitted, places: Places, *, refuse: bool
) -> tuple[Channel, ...]:
    """Return the channels as `admit_stored` does, by known places. `refuse`: unknown ids are
    refused. Otherwise they are passed on; those that exist in one place only require that there is
    just one channel."""
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
    """Return whether an id must be looked up because an answer may have made it. Objects that all
    users share are not looked up."""
    if ref.kind == "either":
        return not any(channel.shares(ref.id) for channel in _native(head, admitted.channels))
    return ref.kind == "answer"


def _native(head: RequestHead, channels: tuple[Channel, ...]) -> tuple[Channel, ...]:
    return tuple(channel for channel in channels if channel.family == head.family.name)


def _place_of(refs: tuple[StoredRef, ...], places: Places) -> StoredAt | None:
    """Return the one place that has all objects made by answers; None if there are no such objects.
    Raises Fault ID_NOT_FOUND."""
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
        # Clients that can continue without it are told that it is gone.
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
    """Return those of the channels that may be asked for an object whose place is unknown. Raises
    Fault ID_NOT_FOUND, UNSUPPORTED."""
    native = _native(head, channels)
    if ref.kind == "thread":
        threading = tuple(channel for channel in native if VENDORS[channel.vendor].threads)
        if channels and not threading:
            raise _no_threads(ref)
        return threading
    if ref.kind != "answer":
        sharing = tuple(channel for channel in native if channel.shares(ref.id))
        if sharing or not channels:  # without channels all are draining, which the plan reports
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
    """Raise Fault UNSUPPORTED or ID_NOT_FOUND for objects without which the conversation is
    incomplete. The rest is left to the translation, which sends no id to a channel of another
    family."""
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
