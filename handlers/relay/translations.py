"""Translations for channels of other families, and the channels that cannot carry a request.

Takes requests and returns translations; does not know ``Call``. Long work comes in steps. Imported
by the relay's attempts.
"""

from collections.abc import Collection, Sequence

import msgspec

from adapters.codecs import REFRAMERS, TRANSLATORS
from adapters.family import Vendor
from adapters.family.codec import AnswerContext, Encoded, Target
from adapters.family.opaque import Origin, mark_of
from adapters.family.traits import Traits
from adapters.faults import Condition, Fault
from adapters.ir.request import Request
from adapters.json.structure import Steps
from adapters.models import traits_of
from adapters.registry import VENDORS
from adapters.translate import Translation
from handlers.relay.routing.plan import Candidate, RoutingRequest
from store.catalog.catalog import Channel

_MAX_REMEMBERED = 256


class Translations:
    """The translations of one worker's calls. The first of the ``secrets`` for opaque state signs;
    all are accepted."""

    def __init__(self, secrets: Sequence[bytes]) -> None:
        self._secret, self._older = secrets[0], tuple(secrets[1:])
        # Models, by channel and upstream name, that refused a call because thoughts were missing.
        self._echoing: set[tuple[str, str]] = set()
        # The planner knows channels by the identity of their tuple, so the same selection must be
        # the same tuple. The original tuple is kept, so that no other tuple gets the same id.
        self._remembered: dict[
            tuple[int, frozenset[str]], tuple[Sequence[Channel], tuple[Channel, ...]]
        ] = {}

    def narrowed(self, request: Request, routing: RoutingRequest) -> RoutingRequest:
        """Return the routing request without the channels that cannot carry the request. Raises
        Fault UNSUPPORTED if none is left."""
        refusals: dict[tuple[str, Traits], Fault | None] = {}
        unable: set[str] = set()
        first: Fault | None = None
        for channel in routing.channels:
            if channel.family == routing.family:
                continue
            traits = self._traits(channel, routing.model)
            which = channel.family, traits
            if which not in refusals:
                translator = TRANSLATORS[routing.family, channel.family]
                refusals[which] = translator.refusal(request, traits)
            if (fault := refusals[which]) is not None:
                first = first or fault
                unable.add(channel.id)
        if first is None:
            return routing
        return self.without(routing, unable, first)

    def without(
        self, routing: RoutingRequest, unable: Collection[str], why: Fault
    ) -> RoutingRequest:
        """Return the routing request without these channels. Raises ``why`` if none is left."""
        out = frozenset(unable)
        key = id(routing.channels), out
        narrowed = self._remembered.get(key)
        if narrowed is None:
            left = tuple(channel for channel in routing.channels if channel.id not in out)
            if len(self._remembered) >= _MAX_REMEMBERED:
                self._remembered.clear()
            narrowed = self._remembered[key] = routing.channels, left
        if not narrowed[1]:
            raise why
        return msgspec.structs.replace(routing, channels=narrowed[1])

    def begin(
        self,
        request: Request,
        routing: RoutingRequest,
        candidate: Candidate,
        context: AnswerContext,
        *,
        user_id: str,
        max_output_tokens: int | None,
        count: bool = False,
        without: str = "",
    ) -> Steps[Translation]:
        """Make the translation for a candidate and a user, in steps. ``without``: the part that the
        upstream refused, "reasoning" or "stream_options". Raises Fault UNSUPPORTED, INVALID_FIELD,
        CHANNEL_MISCONFIGURED."""
        channel = candidate.channel
        vendor: Vendor = VENDORS[channel.vendor]
        target = Target(
            vendor=channel.vendor,
            model=channel.models[routing.model],
            traits=self._traits(channel, routing.model),
            max_output_tokens=max_output_tokens,
            stream_options=vendor.stream_options and without != "stream_options",
        )
        pair = routing.family, channel.family
        translator = TRANSLATORS.get(pair) or REFRAMERS[channel.family]
        return translator.begin(
            request,
            target,
            context,
            self._origin(candidate, user_id),
            count=count,
            without_reasoning=without == "reasoning",
        )

    def reframing(self, candidate: Candidate, context: AnswerContext, user_id: str) -> Translation:
        """Return a translation that rewrites an answer of the client's own family that came in
        another form than requested."""
        origin = self._origin(candidate, user_id)
        return Translation(REFRAMERS[candidate.channel.family], Encoded(b""), context, origin, ())

    def _origin(self, candidate: Candidate, user_id: str) -> Origin:
        """Return the origin of the opaque state in a candidate's answers: state belongs to an
        account and a user."""
        channel = candidate.channel
        fingerprint = channel.fingerprints[candidate.key] if channel.fingerprints else ""
        mark = mark_of(channel.id, fingerprint)
        return Origin(channel.family, mark, self._secret, user_id, self._older)

    def lacks_tools(self, request: Request, channel: Channel, model: str) -> bool:
        """Return whether the request has free-text tools that a channel's model does not accept."""
        if not any(tool.kind == "custom" for tool in request.tools):
            return False
        return not self._traits(channel, model).custom_tools

    def learn_echo(self, channel: Channel, model: str) -> bool:
        """Note that a channel's model requires the thoughts of earlier turns. Return whether that
        is new."""
        if self._traits(channel, model).reasoning_echo:
            return False
        if len(self._echoing) >= _MAX_REMEMBERED:
            self._echoing.clear()
        self._echoing.add((channel.id, channel.models[model]))
        return True

    def _traits(self, channel: Channel, model: str) -> Traits:
        """Return the traits of the channel's model, including those learnt from refusals."""
        traits = traits_at(channel, model)
        if (channel.id, channel.models[model]) in self._echoing:
            return msgspec.structs.replace(traits, reasoning_echo=True)
        return traits


def traits_at(channel: Channel, model: str) -> Traits:
    """Return the traits of the channel's model. Raises Fault CHANNEL_MISCONFIGURED."""
    try:
        return traits_of(channel.vendor, channel.family, channel.models[model], channel.options)
    except msgspec.ValidationError:
        raise Fault(Condition.CHANNEL_MISCONFIGURED) from None
