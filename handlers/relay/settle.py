"""What a call costs: the token counts that are charged, within plausible bounds. Pure."""

from collections.abc import Iterable

from msgspec import Struct

from adapters.ir.usage import Usage
from handlers.relay.admit import DEFAULT_OUTPUT_BOUND_TOKENS
from handlers.relay.call import Call
from store.values.pricing import cost_nanos
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


class Counts(Struct, frozen=True):
    """Charged token counts, where they come from, and the vendor's report when it differs."""

    usage: Usage
    source: str  # reported | estimated | none
    reported: object = None


class Bill(Struct, frozen=True):
    """What was counted, and who pays."""

    counts: Counts
    cost_nanos: int = 0
    charges: tuple[Charge, ...] = ()


NOTHING = Counts(Usage(), "none")


def charged_counts(call: Call) -> Counts:
    """The counts to charge if the call ended now: delivered output and its input, or the input
    alone when the client left while the vendor was at work."""
    delivery = call.delivery
    if call.operation.free:
        return NOTHING
    if not delivery.relayed:
        if delivery.handed_over:
            return Counts(Usage(call.input_estimate_tokens), "estimated")
        return NOTHING
    usage = delivery.usage
    if usage is None:
        output = text_tokens(call, delivery.output_units)
        return Counts(Usage(call.input_estimate_tokens, output), "estimated", delivery.reported)
    bounded = _bounded(usage, call)
    if not delivery.whole:
        delivered = text_tokens(call, delivery.output_units)
        return _partial(bounded, usage, delivered, delivery.reported)
    return Counts(bounded, "reported", None if bounded == usage else delivery.reported)


def _partial(bounded: Usage, usage: Usage, delivered: int, reported: object) -> Counts:
    """Counts of a broken stream: its last report may be older than what was delivered since."""
    seen = bounded.output_tokens + bounded.reasoning_tokens
    if delivered <= seen:
        return Counts(bounded, "reported", None if bounded == usage else reported)
    grown = Usage(
        bounded.input_tokens,
        bounded.output_tokens + delivered - seen,
        bounded.cache_read_tokens,
        bounded.cache_write_tokens,
        bounded.cache_write_1h_tokens,
        bounded.reasoning_tokens,
    )
    return Counts(grown, "estimated", reported)


def text_tokens(call: Call, units: int) -> int:
    """Output tokens to charge for text that was counted here, as `units`.

    Beyond the bound that the client set it counts in part: a vendor that keeps the bound may count
    fewer tokens for the same text, and one that ignores it gives more than was asked for.
    """
    bound, peek = call.output_bound_tokens, call.peek
    if units <= bound:
        return units
    if peek is not None and peek.max_output_tokens is not None:
        units = max(bound, min(units // OVERCOUNT_FACTOR, IGNORED_BOUND_TOKENS * peek.choices))
    return min(units, _absurd_output(call))


def _absurd_output(call: Call) -> int:
    """More than any vendor gives in all the answers that the call asks for; 0 for stored things."""
    if call.model is None or call.peek is None:
        return 0
    return (call.model.max_output_tokens or ABSURD_OUTPUT_TOKENS) * call.peek.choices


def _plausible_output(call: Call) -> tuple[int, int]:
    """The most output tokens of a vendor's report that are charged: (without, with reasoning)."""
    absurd, peek = _absurd_output(call), call.peek
    if peek is None or peek.max_output_tokens is None:
        return absurd, absurd
    model = call.model
    if model is not None and model.max_output_tokens is not None:
        return absurd, absurd  # what the operator configured is better than a guess
    bound = call.output_bound_tokens
    most = bound + bound // OVERSHOOT_DIVISOR + OVERSHOOT_TOKENS * peek.choices
    # What was delivered is a fact: the vendor may not know the field with the bound.
    text = call.delivery.output_units
    text = text if call.delivery.whole else text_tokens(call, text)
    most = min(max(most, text), max(absurd, bound))
    assert call.attempt is not None
    beyond = call.attempt.pairing.upstream.reasoning_beyond_bound
    return most, max(most, absurd) if beyond else most


def _bounded(usage: Usage, call: Call) -> Usage:
    """`usage` with implausible counts cut."""
    outputs = usage.output_tokens + usage.reasoning_tokens
    inputs = (
        usage.input_tokens
        + usage.cache_read_tokens
        + usage.cache_write_tokens
        + usage.cache_write_1h_tokens
    )
    if outputs <= call.output_bound_tokens and inputs <= call.input_bound_tokens:
        return usage  # as nearly always
    assert call.model is not None
    input_bound = max(call.model.context_tokens or ABSURD_INPUT_TOKENS, call.input_bound_tokens)
    return _cut_usage(usage, input_bound, *_plausible_output(call))


def _cut_usage(usage: Usage, most_input: int, most_text: int, most_output: int) -> Usage:
    """`usage` with input, text and output (text and reasoning) of at most so many tokens."""
    inputs = (usage.input_tokens, usage.cache_read_tokens, usage.cache_write_tokens,
              usage.cache_write_1h_tokens)  # fmt: skip
    plain, read, written, written_1h = _cut(inputs, most_input)
    text = min(usage.output_tokens, most_text)
    output, reasoning = _cut((text, usage.reasoning_tokens), most_output)
    return Usage(plain, output, read, written, written_1h, reasoning)


def _cut(counts: Iterable[int], bound: int) -> list[int]:
    """The counts, cut from the right so that their sum keeps to `bound`."""
    out, left = [], bound
    for count in counts:
        out.append(min(count, left))
        left -= out[-1]
    return out


def tokens_of(counts: Counts) -> int:
    """All charged tokens, for the limits of tokens a minute."""
    usage = counts.usage
    return (
        usage.input_tokens
        + usage.output_tokens
        + usage.cache_read_tokens
        + usage.cache_write_tokens
        + usage.cache_write_1h_tokens
        + usage.reasoning_tokens
    )


def payable(call: Call, counts: Counts) -> tuple[Counts, int]:
    """(counts, nanos) to charge: a cost that no BIGINT holds is cut to the hold's bounds, which
    fit."""
    try:
        return counts, cost_of(call, counts)
    except OverflowError:
        most = call.output_bound_tokens
        usage = _cut_usage(counts.usage, call.input_bound_tokens, most, most)
        counts = Counts(usage, counts.source, call.delivery.reported)
        return counts, cost_of(call, counts)


def cost_of(call: Call, counts: Counts) -> int:
    """Nanos that the call costs: 0 unless something was delivered."""
    if counts.source == "none" or call.prices is None or call.group is None:
        return 0
    return cost_nanos(counts.usage, call.prices, call.group.multiplier_ppm)
