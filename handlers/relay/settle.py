"""The cost of a call: the token counts that are charged, within plausible bounds. Pure."""

from collections.abc import Iterable

from msgspec import Struct
from msgspec.structs import replace

from handlers.relay.admit import DEFAULT_OUTPUT_BOUND_TOKENS
from handlers.relay.call import Admitted, Call, Delivery
from store.values.pricing import cost_nanos
from store.values.usage import Usage
from store.values.usage_record import Charge

# No model takes or gives so much. A vendor may count more than our bound of the request (its own
# prompts, tools, media), so nothing less is absurd while the model's window is not configured.
ABSURD_INPUT_TOKENS = 10_000_000
ABSURD_OUTPUT_TOKENS = 1_000_000
# Vendors go beyond a client's bound a little: to end a turn or a tool call.
OVERSHOOT_DIVISOR = 8  # one token more for so many
OVERSHOOT_TOKENS = 64
OVERCOUNT_FACTOR = 2  # a vendor may count so many times our tokens of the same text
IGNORED_BOUND_TOKENS = DEFAULT_OUTPUT_BOUND_TOKENS  # of one answer beyond the client's bound


class Counts(Struct, frozen=True, gc=False):
    """Charged token counts, where they come from, and the vendor's report when it differs."""

    usage: Usage
    source: str  # reported | estimated | none
    reported: object = None


class Bill(Struct, frozen=True, gc=False):
    """The charged counts, their cost and who pays."""

    counts: Counts
    cost_nanos: int = 0
    charges: tuple[Charge, ...] = ()


NOTHING = Counts(Usage(), "none")


def charged_counts(call: Call, delivery: Delivery) -> Counts:
    """Return the counts to charge if the call ended with this delivery: delivered output and its
    input, or the input alone when the client left while the vendor was at work."""
    admitted = call.admitted
    if admitted is None or call.head.operation.free:
        return NOTHING
    if not delivery.relayed:
        if delivery.handed_over:
            return Counts(Usage(admitted.input_estimate_tokens), "estimated")
        return NOTHING
    usage = delivery.usage
    if usage is None:
        output = text_tokens(admitted, delivery.output_units)
        charged = Usage(admitted.input_estimate_tokens, output)
        return Counts(charged, "estimated", delivery.reported)
    bounded = _bounded(usage, call, admitted, delivery)
    if not delivery.whole:
        delivered = text_tokens(admitted, delivery.output_units)
        return _partial(bounded, usage, delivered, delivery.reported)
    return Counts(bounded, "reported", None if bounded == usage else delivery.reported)


def _partial(bounded: Usage, usage: Usage, delivered: int, reported: object) -> Counts:
    """Return the counts of a broken stream: its last report may be older than what was delivered
    since."""
    seen = bounded.outputs
    if delivered <= seen:
        return Counts(bounded, "reported", None if bounded == usage else reported)
    grown = replace(bounded, output_tokens=bounded.output_tokens + delivered - seen)
    return Counts(grown, "estimated", reported)


def text_tokens(admitted: Admitted, units: int) -> int:
    """Return the output tokens to charge for text that was counted here, as `units`. Beyond the
    bound that the client set it counts in part: a vendor that keeps the bound may count fewer
    tokens for the same text, and one that ignores it gives more than was requested."""
    bound, peek = admitted.output_bound_tokens, admitted.peek
    if units <= bound:
        return units
    if peek.max_output_tokens is not None:
        units = max(bound, min(units // OVERCOUNT_FACTOR, IGNORED_BOUND_TOKENS * peek.choices))
    return min(units, _absurd_output(admitted))


def _absurd_output(admitted: Admitted) -> int:
    """Return more than any vendor gives in all the answers of a call; 0 for stored things."""
    offer = admitted.offer
    if offer is None:
        return 0
    return (offer.model.max_output_tokens or ABSURD_OUTPUT_TOKENS) * admitted.peek.choices


def _plausible_output(call: Call, admitted: Admitted, delivery: Delivery) -> tuple[int, int]:
    """Return the most output tokens of a vendor's report that are charged: (without, with
    reasoning)."""
    absurd, peek, offer = _absurd_output(admitted), admitted.peek, admitted.offer
    if peek.max_output_tokens is None:
        return absurd, absurd
    if offer is not None and offer.model.max_output_tokens is not None:
        return absurd, absurd  # what the operator configured is better than a guess
    bound = admitted.output_bound_tokens
    most = bound + bound // OVERSHOOT_DIVISOR + OVERSHOOT_TOKENS * peek.choices
    # What was delivered is a fact: the vendor may not know the field with the bound.
    text = delivery.output_units
    text = text if delivery.whole else text_tokens(admitted, text)
    most = min(max(most, text), max(absurd, bound))
    assert call.attempt is not None
    beyond = call.attempt.pairing.upstream.reasoning_beyond_bound
    return most, max(most, absurd) if beyond else most


def _bounded(usage: Usage, call: Call, admitted: Admitted, delivery: Delivery) -> Usage:
    """Return `usage` with implausible counts cut."""
    within = usage.outputs <= admitted.output_bound_tokens
    if within and usage.inputs <= admitted.input_bound_tokens:
        return usage  # as nearly always
    assert admitted.offer is not None
    context_tokens = admitted.offer.model.context_tokens
    input_bound = max(context_tokens or ABSURD_INPUT_TOKENS, admitted.input_bound_tokens)
    return _cut_usage(usage, input_bound, *_plausible_output(call, admitted, delivery))


def _cut_usage(usage: Usage, most_input: int, most_text: int, most_output: int) -> Usage:
    """Return `usage` with input, text and output (text and reasoning) of at most so many tokens."""
    inputs = (usage.input_tokens, usage.cache_read_tokens, usage.cache_write_tokens,
              usage.cache_write_1h_tokens)  # fmt: skip
    plain, read, written, written_1h = _cut(inputs, most_input)
    text = min(usage.output_tokens, most_text)
    output, reasoning = _cut((text, usage.reasoning_tokens), most_output)
    return Usage(plain, output, read, written, written_1h, reasoning)


def _cut(counts: Iterable[int], bound: int) -> list[int]:
    """Return the counts, cut from the right so that their sum keeps to `bound`."""
    out, left = [], bound
    for count in counts:
        out.append(min(count, left))
        left -= out[-1]
    return out


def tokens_of(counts: Counts) -> int:
    """Return all charged tokens, for the limits of tokens a minute."""
    return counts.usage.inputs + counts.usage.outputs


def payable(admitted: Admitted, counts: Counts, reported: object) -> tuple[Counts, int]:
    """Return (counts, nanos) to charge: a cost that no BIGINT holds is cut to the hold's bounds,
    which fit, with the vendor's report beside it."""
    try:
        return counts, cost_of(admitted, counts)
    except OverflowError:
        most = admitted.output_bound_tokens
        usage = _cut_usage(counts.usage, admitted.input_bound_tokens, most, most)
        counts = Counts(usage, counts.source, reported)
        return counts, cost_of(admitted, counts)


def cost_of(admitted: Admitted, counts: Counts) -> int:
    """Return the nanos that the call costs: 0 unless something was delivered."""
    offer = admitted.offer
    if counts.source == "none" or offer is None:
        return 0
    return cost_nanos(counts.usage, offer.prices, offer.group.multiplier_ppm)
