"""The cost of a call: the token counts that are charged, within plausible bounds. Pure."""

from collections.abc import Iterable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from adapters.endpoints.endpoint import Endpoint
from adapters.family.counts import MAX_USES
from handlers.relay.admit import DEFAULT_OUTPUT_BOUND_TOKENS, is_text_alone
from handlers.relay.call import Admitted, Call, Delivery, Offer
from store.catalog.catalog import Channel
from store.values.features import FEATURES
from store.values.meters import METERS, TOKEN_METERS, USE_METERS
from store.values.pricing import (
    MAX_BIGINT,
    PPM_PER_ONE,
    Prices,
    Rate,
    cost_nanos,
    format_fractions,
    nanos_up,
    parse_fractions,
)
from store.values.usage import NOT_REPORTED, SIDES, TOKEN_COUNTS, Served, Usage, more_counts
from store.values.usage_record import NO_RECEIPT, Charge, OtherCost, Receipt

# Beyond any model. A vendor may count more than the gateway's bound of the request (its own
# prompts, tools, media), so lower counts are believed while the model's window is not configured.
ABSURD_INPUT_TOKENS = 10_000_000
ABSURD_OUTPUT_TOKENS = 1_000_000
OVERREPORT_FACTOR = 16  # a vendor may report this many times the model's output: hidden reasoning
WINDOW_DIVISOR = 16  # windows are configured in round numbers: 1,000,000 for 1,048,576
# Vendors exceed a client's bound a little, to end a turn or a tool call.
OVERSHOOT_DIVISOR = 8  # one token more for this many
OVERSHOOT_TOKENS = 64
OVERCOUNT_FACTOR = 2  # the gateway may count this many times a vendor's tokens for the same text
# Vendors add their own prompts to a request that is only text.
OVERCLAIM_FACTOR = 4
OVERCLAIM_TOKENS = 10_000
IGNORED_BOUND_TOKENS = DEFAULT_OUTPUT_BOUND_TOKENS  # charged per answer beyond a client's bound


class Counts(Struct, frozen=True, gc=False):
    """Charged token counts, their source, and the vendor's report if it differs."""

    usage: Usage
    source: str  # reported | estimated | none
    reported: object = None


class Bill(Struct, gc=False):
    """The charged counts, their cost and the charges to its payers. `upstream_nanos`: the call's
    cost for the operator, before any multiplier; None: unknown."""

    counts: Counts
    cost_nanos: int = 0
    charges: tuple[Charge, ...] = ()
    receipt: Receipt = NO_RECEIPT
    upstream_nanos: int | None = None


NOTHING = Counts(Usage(), "none")
INPUTS = tuple(name for name in TOKEN_METERS if METERS[name].side not in ("output", "reasoning"))
OUTPUTS = (*(name for name in TOKEN_METERS if METERS[name].side == "output"), "reasoning")
"""The meters of input and of output, in the order in which they are charged within a bound."""
UNCACHED_INPUTS = tuple(name for name in INPUTS if METERS[name].side != "cache_read")
_HOSTED = frozenset(feature.meter for feature in FEATURES.values()) & frozenset(USE_METERS)


def charged_counts(call: Call, delivery: Delivery) -> Counts:
    """Return the counts to charge if the call ended with this delivery: input and delivered output,
    or the input alone if the client left while the vendor was working."""
    admitted = call.admitted
    if admitted is None or call.head.operation.free:
        return NOTHING
    if not delivery.relayed:
        if delivery.handed_over:
            return Counts(_unreported(call, admitted, 0), "estimated")
        return NOTHING
    usage = delivery.usage
    if usage is not None and usage.more:
        usage = _billed_by_call(usage, call)
    if usage is None:
        charged = _unreported(call, admitted, text_tokens(admitted, delivery.output_units))
        return Counts(charged, "estimated", delivery.reported)
    bounded = _bounded(usage, call, admitted, delivery)
    if not delivery.whole:
        delivered = text_tokens(admitted, delivery.output_units)
        return _partial(bounded, usage, delivered, delivery.reported)
    return Counts(bounded, "reported", None if bounded == usage else delivery.reported)


def _unreported(call: Call, admitted: Admitted, units: int) -> Usage:
    """Return the counts to charge if the vendor reported none. `units`: the answer's tokens."""
    operation, inputs = call.head.operation, admitted.input_estimate_tokens
    if not operation.row:
        return Usage(inputs, units)
    assert isinstance(operation, Endpoint) and admitted.offer is not None
    return operation.unreported(admitted.peek, inputs, units, admitted.offer.prices.has_price)


def _partial(bounded: Usage, usage: Usage, delivered: int, reported: object) -> Counts:
    """Return the counts of a broken stream, more of which may have been delivered since its last
    report."""
    seen = bounded.outputs
    if delivered <= seen:
        return Counts(bounded, "reported", None if bounded == usage else reported)
    grown = replace(bounded, output_tokens=bounded.output_tokens + delivered - seen)
    return Counts(grown, "estimated", reported)


def text_tokens(admitted: Admitted, units: int) -> int:
    """Return the output tokens to charge for text that the gateway counted as `units`. Beyond the
    client's bound only a part counts: a vendor that keeps the bound may count fewer tokens for the
    same text, and one that ignores it delivers more than was requested."""
    bound, peek = admitted.output_bound_tokens, admitted.peek
    if units <= bound:
        return units
    if peek.max_output_tokens is not None:
        units = max(bound, min(units // OVERCOUNT_FACTOR, IGNORED_BOUND_TOKENS * peek.choices))
    return min(units, _absurd_output(admitted))


def _absurd_output(admitted: Admitted) -> int:
    """Return an upper bound of the output of all answers of a call; 0 for stored responses."""
    offer = admitted.offer
    if offer is None:
        return 0
    return (offer.model.max_output_tokens or ABSURD_OUTPUT_TOKENS) * admitted.peek.choices


def _most_reported(admitted: Admitted) -> int:
    """Return the most output tokens that are believed in a report on all answers of a call."""
    offer = admitted.offer
    most = offer.model.max_output_tokens if offer is not None else None
    return _absurd_output(admitted) * (OVERREPORT_FACTOR if most is not None else 1)


def _plausible_output(call: Call, admitted: Admitted, delivery: Delivery) -> tuple[int, int]:
    """Return the most output tokens of a vendor's report that are charged, as (without reasoning,
    with reasoning)."""
    absurd, peek, offer = _most_reported(admitted), admitted.peek, admitted.offer
    if peek.max_output_tokens is None:
        return absurd, absurd
    if offer is not None and offer.model.max_output_tokens is not None:
        return absurd, absurd  # the operator's configuration is better than a guess
    bound = admitted.output_bound_tokens
    most = bound + bound // OVERSHOOT_DIVISOR + OVERSHOOT_TOKENS * peek.choices
    # Delivered text always counts: the vendor may not know the field with the bound.
    text = delivery.output_units
    text = text if delivery.whole else text_tokens(admitted, text)
    most = min(max(most, text), max(absurd, bound))
    assert call.attempt is not None
    beyond = call.attempt.pairing.upstream.reasoning_beyond_bound
    return most, max(most, absurd) if beyond else most


def _billed_by_call(usage: Usage, call: Call) -> Usage:
    """Return `usage` with a single search if the channel's vendor bills grounded calls rather than
    their queries."""
    assert call.attempt is not None
    if call.attempt.candidate.channel.options.get("grounding") != "call":
        return usage
    pairs = ((name, 1 if name == "web_search" else count) for name, count in usage.more)
    return replace(usage, more=tuple(pairs))


def _bounded(usage: Usage, call: Call, admitted: Admitted, delivery: Delivery) -> Usage:
    """Return `usage` with implausible counts reduced."""
    if usage.more or usage.extras is not None:
        usage = _bounded_rest(usage, call, admitted)
    within = usage.outputs <= admitted.output_bound_tokens
    if within and usage.inputs <= admitted.input_bound_tokens:
        return usage  # the usual case
    if (most := _text_bound(call, admitted)) is not None:
        counts = usage.meters  # cache reads are excluded, since they cost little
        _cut(counts, UNCACHED_INPUTS, most)
        usage = _with_counts(usage, counts)
    return _cut_usage(
        usage, _plausible_input(admitted), *_plausible_output(call, admitted, delivery)
    )


def _bounded_rest(usage: Usage, call: Call, admitted: Admitted) -> Usage:
    """Return `usage` with implausible counts of hosted tools and of other models reduced."""
    for name, count in usage.more:
        if count > MAX_USES and name in _HOSTED:
            pairs = ((name, min(n, MAX_USES) if name in _HOSTED else n) for name, n in usage.more)
            usage = replace(usage, more=tuple(pairs))
            break
    if usage.extras is None or not usage.extras.other_models:
        return usage
    most = _text_bound(call, admitted) or ABSURD_INPUT_TOKENS
    outputs = (ABSURD_OUTPUT_TOKENS, ABSURD_OUTPUT_TOKENS)
    models = [
        replace(other, usage=_cut_usage(other.usage, most, *outputs))
        for other in usage.extras.other_models
    ]
    return replace(usage, extras=replace(usage.extras, other_models=tuple(models)))


def _text_bound(call: Call, admitted: Admitted) -> int | None:
    """Return the most input tokens of a request that is only text; None for any other."""
    if is_text_alone(call) if call.text_alone is None else call.text_alone:
        return OVERCLAIM_FACTOR * admitted.input_bound_tokens + OVERCLAIM_TOKENS
    return None


def _plausible_input(admitted: Admitted) -> int:
    """Return the most input tokens of a vendor's report that are charged. As for the output, the
    operator's configuration is better than a guess."""
    bound = admitted.input_bound_tokens
    assert admitted.offer is not None
    window = admitted.offer.model.context_tokens
    return max(window + window // WINDOW_DIVISOR if window else ABSURD_INPUT_TOKENS, bound)


def _cut_usage(usage: Usage, most_input: int, most_text: int, most_output: int) -> Usage:
    """Return `usage` with input, text and output (text and reasoning) reduced to these bounds."""
    counts = usage.meters
    _cut(counts, INPUTS, most_input)
    _cut(counts, OUTPUTS[:-1], most_text)
    _cut(counts, OUTPUTS, most_output)
    return _with_counts(usage, counts)


def _with_counts(usage: Usage, counts: Mapping[str, int]) -> Usage:
    """Return `usage` with these counts of its meters."""
    fields = {name: counts.get(side, 0) for name, side in zip(TOKEN_COUNTS, SIDES, strict=True)}
    more = {name: counts[name] for name, _ in usage.more}
    return replace(usage, **fields, more=more_counts(more))


def _cut(counts: dict[str, int], meters: Iterable[str], bound: int) -> None:
    """Reduce the counts of the meters, the last ones first, so that their sum is at most
    `bound`."""
    for name in meters:
        if name in counts:
            counts[name] = min(counts[name], bound)
            bound -= counts[name]


def tokens_of(counts: Counts) -> int:
    """Return the sum of charged tokens, for the limits of tokens per minute."""
    return counts.usage.inputs + counts.usage.outputs


def bill_of(call: Call, delivery: Delivery, counts: Counts, *, in_usd: bool = False) -> Bill:
    """Return counts and cost of a call that ended with this delivery, without charges. If the cost
    exceeds a BIGINT, it is that of text within the hold's bounds at the plain rate, which fits; the
    vendor's report is kept beside it. `in_usd`: the account currency is the one in which vendors
    report their own cost."""
    admitted = call.admitted
    offer = admitted.offer if admitted is not None else None
    if counts.source == "none" or admitted is None or offer is None:
        return Bill(counts)
    try:
        usage, prices = counts.usage, offer.prices
        if not (
            prices.rates
            or usage.more
            or usage.extras is not None
            or delivery.served is not NOT_REPORTED
            or (call.attempt is not None and call.attempt.candidate.channel.has_cost)
        ):  # the usual case
            return Bill(counts, cost_nanos(usage, prices.plain, offer.group.multiplier_ppm))
        return _priced(call, offer, delivery, counts, in_usd=in_usd)
    except OverflowError:
        most = admitted.output_bound_tokens
        usage = _cut_usage(counts.usage, admitted.input_bound_tokens, most, most)
        usage = replace(usage, more=(), extras=None)
        cost = cost_nanos(usage, offer.prices.plain, offer.group.multiplier_ppm)
        return Bill(Counts(usage, counts.source, delivery.reported), cost)


def receipt_so_far(call: Call, served: Served, units: int) -> Receipt:
    """Return the receipt of a stream that ends now: charged for its estimated input and its output
    so far, at the rate of the conditions that were served."""
    admitted = call.admitted
    if admitted is None or admitted.offer is None or call.head.operation.free:
        return NO_RECEIPT
    prices = admitted.offer.prices
    if not prices.rates and served is NOT_REPORTED:
        return NO_RECEIPT
    usage = _unreported(call, admitted, text_tokens(admitted, units))
    return _receipt(prices, prices.rate_for(usage, served), usage, served)


def _priced(call: Call, offer: Offer, delivery: Delivery, counts: Counts, *, in_usd: bool) -> Bill:
    prices, usage, served = offer.prices, counts.usage, delivery.served
    rate, added = prices.rate_for(usage, served), 0
    receipt = _receipt(prices, rate, usage, served)
    if usage.extras is not None:
        costs, unpriced = _other_costs(call, usage, served)
        added = sum(parse_fractions(other.cost) for other in costs)
        receipt = replace(receipt, unpriced=(*receipt.unpriced, *unpriced), other_models=costs)
        counts = Counts(usage.bare(), counts.source, counts.reported)
    cost = cost_nanos(usage, rate, offer.group.multiplier_ppm, added)
    attempt, upstream_nanos = call.attempt, None
    if attempt is not None and (attempt.candidate.channel.has_cost or usage.extras is not None):
        channel, fractions = attempt.candidate.channel, rate.cost(usage) + added
        if in_usd and usage.extras is not None:
            upstream_nanos = usage.extras.vendor_nanos
        if upstream_nanos is None:
            upstream_nanos = _upstream_nanos(offer, channel, usage, fractions, receipt.other_models)
        if upstream_nanos is not None and upstream_nanos > MAX_BIGINT:
            upstream_nanos = None
    return Bill(counts, cost, (), receipt, upstream_nanos)


def _upstream_nanos(
    offer: Offer, channel: Channel, usage: Usage, fractions: int, others: Iterable[OtherCost]
) -> int | None:
    """Return a call's cost for the operator by the cost fields of its channel; None if they do not
    cover it. `fractions`: its cost before the multiplier, including other models inside it."""
    factor_ppm, rate = channel.cost_factor_ppm, channel.cost.get(offer.model.name)
    if rate is None:
        return None if factor_ppm is None else nanos_up(fractions, factor_ppm)
    plain = offer.prices.plain
    uses = sum(n * plain.fractions(name) for name, n in usage.more if name not in rate.prices)
    cost = rate.cost(usage) + uses
    for other in others:
        own_rate = channel.cost.get(other.model)
        if own_rate is not None:
            cost += own_rate.cost(other.usage) - own_rate.call
        elif factor_ppm is not None:
            cost += parse_fractions(other.cost) * factor_ppm // PPM_PER_ONE
        else:
            return None
    return nanos_up(cost)


def _receipt(prices: Prices, rate: Rate, usage: Usage, served: Served) -> Receipt:
    text = rate.text if rate is not prices.plain else None
    unpriced = prices.unpriced_conditions(served)
    if usage.more:
        unpriced = (*[pair for pair in usage.more if pair[0] in rate.unpriced], *unpriced)
    return Receipt(text, served, unpriced)


def _other_costs(
    call: Call, usage: Usage, served: Served
) -> tuple[tuple[OtherCost, ...], list[tuple[str, int]]]:
    """Return the costs of other models inside a call, each at its own rate, and the features of
    models without a price."""
    costs: list[OtherCost] = []
    unpriced: list[tuple[str, int]] = []
    if usage.extras is None or not usage.extras.other_models:
        return (), unpriced
    assert call.attempt is not None
    head, channel = call.head, call.attempt.candidate.channel
    publics = {upstream: public for public, upstream in channel.models.items()}
    for other in usage.extras.other_models:
        name = publics.get(other.model, other.model)
        model = head.snapshot.models.get(name)
        prices = model.prices_at(head.arrival.started_ms) if model is not None else None
        fractions = 0
        if prices is None:
            unpriced.append((other.feature, 1))
        else:
            rate = prices.rate_for(other.usage, served)
            fractions = rate.cost(other.usage) - rate.call
        costs.append(OtherCost(name, other.usage.bare(), format_fractions(fractions)))
    return tuple(costs), unpriced
