"""Public lists of prices, read into one form: the model of the document of `apply`.

Four lists: genai-prices (MIT, github.com/pydantic/genai-prices), LiteLLM's
model_prices_and_context_window.json (MIT), models.dev (MIT) and OpenRouter's list of models. Pure:
parsed JSON in, values out; numbers are Decimal. Batch prices are left out, since no call through a
gateway is a batch. Of prices by the hour of the day the highest is read.
"""

import datetime
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from typing import Any

from store.values.errors import Refused

CURRENCY = "USD"
"""The currency of all lists."""
MILLION = Decimal(10**6)
THOUSAND = Decimal(10**3)
NANO = Decimal("1e-9")
MAX_PRICE = Decimal(10**6)

Amounts = dict[str, Decimal]
"""Prices by meter, for a million tokens or for one use."""
Conditions = tuple[tuple[str, Any], ...]
"""The conditions of a rate in order: `(("tier", "flex"), ("input_over", 272000))`."""

VENDORS = {
    **dict.fromkeys(("gemini", "gemini-chat"), "google"),
    "x-ai": "xai",
    "moonshotai": "moonshot",
    **dict.fromkeys(("zai", "z-ai"), "zhipu"),
    **dict.fromkeys(("dashscope", "qwen"), "alibaba"),
    "mistralai": "mistral",
    "azure-openai": "azure",
}
"""Other words of lists and of our channels for a vendor."""

_MAKERS = (
    ("openai", r"gpt-|chatgpt-|o\d|codex"),
    ("anthropic", r"claude-"),
    ("google", r"gemini-|gemma-"),
    ("deepseek", r"deepseek"),
    (
        "mistral",
        r"(open-)?(mistral|mixtral)|ministral|codestral|devstral|magistral|pixtral|voxtral",
    ),
    ("xai", r"grok-"),
    ("moonshot", r"kimi-|moonshot-"),
    ("zhipu", r"glm-"),
    ("alibaba", r"qwen|qwq|qvq"),
    ("minimax", r"minimax-|abab"),
    ("meta", r"llama|meta-llama"),
)
_MAKER = re.compile("|".join(f"(?P<{maker}>{names})" for maker, names in _MAKERS), re.I)

_TEXTS_OF_MODALITIES = (
    *("input_audio", "input_image", "input_video", "cache_read_audio"),
    *("output_audio", "output_image"),
)


@dataclass(frozen=True, slots=True)
class ListedModel:
    """A model of a list.

    `key` is its name there; `vendor` and `name` are the vendor whose API offers it and its name
    there; `price` and `rate` are as in the document. `ends`: the day on which the vendor removes
    it, as YYYY-MM-DD, empty if the list has none.
    """

    key: str
    vendor: str
    name: str
    price: Mapping[str, str]
    rate: Sequence[Mapping[str, Any]] = ()
    context_tokens: int | None = None
    max_output_tokens: int | None = None
    ends: str = ""
    aliases: Sequence[str] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class PriceSource:
    """A list: its reader, and the address from which it is fetched on request."""

    read: Callable[[Any, datetime.date], Iterator[ListedModel]]
    url: str


def maker_of(name: str) -> str:
    """Return the maker of a model, by the beginning of its name; empty if the name has no known
    maker."""
    match = _MAKER.match(name.rpartition("/")[2])
    return str(match.lastgroup) if match else ""


def vendor_word(word: str) -> str:
    """Return our word for a vendor that lists and channels call differently."""
    word = word.lower()
    return VENDORS.get(word, word)


def read_list(source: str, content: object, today: datetime.date) -> list[ListedModel]:
    """Return the models of a list that have a price. Raises Refused if it has another form."""
    try:
        return [model for model in SOURCES[source].read(content, today) if model.price]
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise Refused([f"not a list of {source}: {type(error).__name__}: {error}"]) from None


# ---- what the four share


def _amount(value: object, times: Decimal = Decimal(1)) -> Decimal | None:
    """Return a price in units of the document, or None if the value is no price."""
    if isinstance(value, bool) or not isinstance(value, (str, int, float, Decimal)):
        return None
    try:
        amount = Decimal(str(value)) * times
        return amount.quantize(NANO) if 0 <= amount <= MAX_PRICE else None
    except InvalidOperation:
        return None


def _amounts(pairs: Iterable[tuple[str, object]], times: Decimal = Decimal(1)) -> Amounts:
    amounts = {meter: _amount(value, times) for meter, value in pairs}
    return {meter: amount for meter, amount in amounts.items() if amount is not None}


def _text(amount: Decimal) -> str:
    return format(amount.normalize(), "f")


def _price(amounts: Amounts) -> dict[str, str]:
    return {meter: _text(amount) for meter, amount in amounts.items()}


def _rates(
    plain: Amounts, variants: Mapping[Conditions, Amounts], inherited: Iterable[str]
) -> list[dict[str, Any]]:
    """Return the list of rates. A variant needs a price of text. What it lacks of `inherited` and
    of text is taken from the plain rate. Rates that equal the plain one are left out."""
    rates = []
    for conditions, amounts in variants.items():
        if not {"input", "output"} & amounts.keys():
            continue
        names = ("input", "output", *inherited)
        whole = {**{name: plain[name] for name in names if name in plain}, **amounts}
        if not whole.get("input") or not whole.get("output"):
            continue
        if any(plain.get(meter) != amount for meter, amount in whole.items()):
            rates.append({"when": dict(conditions), **_price(whole)})
    return rates


def _multiplied(
    rates: Sequence[Mapping[str, Any]], factors: Mapping[Conditions, Decimal]
) -> list[dict[str, Any]]:
    """Return the rates, and each also with the factors of the vendor, which multiply all tokens. If
    two factors apply, there is a rate with their product."""
    result = [dict(rate) for rate in rates]
    for conditions, factor in factors.items():
        for rate in [{"when": {}, "factor": "1"}, *result]:
            when = {**rate["when"], **dict(conditions)}
            prices = {n: _text(Decimal(p) * factor) for n, p in rate.items() if n != "when"}
            result.append({"when": when, **prices})
    return result


def _whole_number(value: object) -> int | None:
    if isinstance(value, (int, float, Decimal)) and not isinstance(value, bool) and value >= 1:
        return int(value)
    return None


# ---- LiteLLM: a field is a stem, perhaps the length of the input, perhaps a tier

_LITELLM_TOKENS = {
    "input_cost_per_token": "input",
    "output_cost_per_token": "output",
    "cache_read_input_token_cost": "cache_read",
    "cache_creation_input_token_cost": "cache_write",
    "cache_creation_input_token_cost_above_1hr": "cache_write_1h",
    "cache_creation_input_token_cost_above_12hr": "cache_write_1h",
    "output_cost_per_reasoning_token": "reasoning",
    "input_cost_per_audio_token": "input_audio",
    "input_cost_per_image_token": "input_image",
    "input_cost_per_video_token": "input_video",
    "cache_read_input_audio_token_cost": "cache_read_audio",
    "output_cost_per_audio_token": "output_audio",
    "output_cost_per_image_token": "output_image",
}
# (field, meter, uses that the price covers, modes of models that are billed like this; empty: all)
_LITELLM_USES: tuple[tuple[str, str, int, tuple[str, ...]], ...] = (
    ("google_maps_grounding_cost_per_query", "maps", 1, ()),
    ("file_search_cost_per_1k_calls", "file_search", 1000, ()),
    ("code_interpreter_cost_per_session", "code_interpreter", 1, ()),
    ("input_cost_per_request", "call", 1, ()),
    ("ocr_cost_per_page", "page", 1, ("ocr",)),
    ("output_cost_per_image", "image", 1, ("image_generation", "image_edit")),
    ("input_cost_per_second", "audio_second", 1, ("audio_transcription",)),
    ("input_cost_per_character", "character", 1, ("audio_speech",)),
    ("input_cost_per_query", "search_unit", 1, ("rerank",)),
)
_LITELLM_FIELD = re.compile(
    rf"({'|'.join(sorted(_LITELLM_TOKENS, key=len, reverse=True))})"
    r"(?:_above_(\d+)k_tokens)?(?:_(priority|flex|ultrafast|balanced))?"
)
_LITELLM_FACTORS: dict[str, Conditions] = {"us": (("geo", "us"),), "fast": (("speed", "fast"),)}


def _litellm(content: Any, today: datetime.date) -> Iterator[ListedModel]:
    for key, fields in content.items():
        provider = fields.get("litellm_provider", "")
        if key != "sample_spec" and provider:
            yield _litellm_model(key, provider, fields)


def _litellm_model(key: str, provider: str, fields: Mapping[str, Any]) -> ListedModel:
    variants: dict[Conditions, Amounts] = {(): {}}
    for name, value in fields.items():
        match = _LITELLM_FIELD.fullmatch(name)
        if match is not None and (amount := _amount(value, MILLION)) is not None:
            stem, over, tier = match.groups()
            conditions: Conditions = (("tier", tier),) if tier else ()
            conditions += (("input_over", int(over) * 1000),) if over else ()
            variants.setdefault(conditions, {})[_LITELLM_TOKENS[stem]] = amount
    for number, step in enumerate(fields.get("tiered_pricing") or ()):
        if "range" not in step:
            continue
        pairs = [(meter, step.get(stem)) for stem, meter in _LITELLM_TOKENS.items()]
        over_tokens: Conditions = (("input_over", int(step["range"][0])),) if number else ()
        variants.setdefault(over_tokens, {}).update(_amounts(pairs, MILLION))
    plain = variants.pop(())
    rates = _multiplied(_rates(plain, variants, _TEXTS_OF_MODALITIES), _litellm_factors(fields))
    platform, _, name = key.partition("/")
    own = name and platform in (provider, provider.partition("-")[0])
    return ListedModel(
        key,
        vendor_word(platform if own else provider),
        name if own else key,
        _price(plain | _litellm_uses(fields)),
        rates,
        _whole_number(fields.get("max_input_tokens")),
        _whole_number(fields.get("max_output_tokens")),
        str(fields.get("deprecation_date") or ""),
    )


def _litellm_uses(fields: Mapping[str, Any]) -> Amounts:
    uses: Amounts = {}
    for name, meter, number, modes in _LITELLM_USES:
        amount = _amount(fields.get(name), Decimal(1) / number)
        if amount is not None and (not modes or fields.get("mode") in modes):
            uses[meter] = amount
    searches = fields.get("search_context_cost_per_query")
    if isinstance(searches, dict):
        sizes = (searches.get(f"search_context_size_{size}") for size in ("medium", "low", "high"))
        prices = [amount for amount in map(_amount, sizes) if amount is not None]
        uses |= {"web_search": prices[0]} if prices else {}
    return uses


def _litellm_factors(fields: Mapping[str, Any]) -> dict[Conditions, Decimal]:
    """Return the factors by which a vendor multiplies token prices, as Anthropic does for a
    region."""
    entry = fields.get("provider_specific_entry")
    factors = {
        conditions: _amount(entry.get(word)) if isinstance(entry, dict) else None
        for word, conditions in _LITELLM_FACTORS.items()
    }
    return {conditions: factor for conditions, factor in factors.items() if factor}


# ---- genai-prices: a price may have steps by length, conditions by day, variants by tier

_GENAI_METERS: dict[str, tuple[str, Decimal]] = {
    "input_mtok": ("input", Decimal(1)),
    "output_mtok": ("output", Decimal(1)),
    "cache_read_mtok": ("cache_read", Decimal(1)),
    "cache_write_mtok": ("cache_write", Decimal(1)),
    "cache_write_1h_mtok": ("cache_write_1h", Decimal(1)),
    "output_reasoning_mtok": ("reasoning", Decimal(1)),
    "input_audio_mtok": ("input_audio", Decimal(1)),
    "input_image_mtok": ("input_image", Decimal(1)),
    "input_video_mtok": ("input_video", Decimal(1)),
    "cache_audio_read_mtok": ("cache_read_audio", Decimal(1)),
    "output_audio_mtok": ("output_audio", Decimal(1)),
    "output_image_mtok": ("output_image", Decimal(1)),
    "requests_kcount": ("call", 1 / THOUSAND),
    "web_searches_kcount": ("web_search", 1 / THOUSAND),
    "storage_searches_kcount": ("file_search", 1 / THOUSAND),
    "code_executions_kcount": ("code_interpreter", 1 / THOUSAND),
    "input_document_kpages": ("page", 1 / THOUSAND),
    "rerank_searches_kcount": ("search_unit", 1 / THOUSAND),
    "input_mchars": ("character", 1 / MILLION),
    "audio_hours": ("audio_second", 1 / Decimal(3600)),
    "input_audio_hours": ("audio_second", 1 / Decimal(3600)),
}
_GENAI_CONDITIONS = {"service_tier": "tier", "speed": "speed"}
_TOKEN_METERS = tuple(meter for meter, times in _GENAI_METERS.values() if times == 1)


def _genai(content: Any, today: datetime.date) -> Iterator[ListedModel]:
    for provider in content:
        for model in provider["models"]:
            yield _genai_model(vendor_word(provider["id"]), model, today)


def _genai_model(vendor: str, model: Mapping[str, Any], today: datetime.date) -> ListedModel:
    prices = _genai_prices(model["prices"], today)
    variants = _genai_steps(prices, ())
    plain = variants.pop((), {})
    for variant in model.get("price_variants") or ():
        when = variant["when"]
        if _has_begun(variant, today) and set(when) <= _GENAI_CONDITIONS.keys():
            words = {_GENAI_CONDITIONS[name]: word for name, word in when.items()}
            if words.get("tier") in ("default", "fast"):  # `fast` is the same as `priority`
                continue
            for conditions, amounts in _genai_steps(
                variant["prices"], tuple(words.items())
            ).items():
                variants.setdefault(conditions, amounts)
    return ListedModel(
        model["id"],
        vendor,
        model["id"],
        _price(plain),
        _rates(plain, variants, _TOKEN_METERS),
        _whole_number(model.get("context_window")),
        ends="deprecated" if model.get("deprecated") else "",
        aliases=tuple(_equal_names(model.get("match") or {})),
    )


def _genai_prices(prices: Any, today: datetime.date) -> Mapping[str, Any]:
    """Return the prices in force today: the last that have begun, at the most expensive hour."""
    if isinstance(prices, Mapping):
        return prices
    by_hour = [entry for entry in prices if "start_time" in (entry.get("constraint") or {})]
    by_day = [entry for entry in prices if entry not in by_hour and _has_begun(entry, today)]
    holding = [entry["prices"] for entry in (*(by_day or prices)[-1:], *by_hour)]
    return max(holding, key=lambda held: _base(held.get("output_mtok")) or 0)


def _has_begun(priced: Mapping[str, Any], today: datetime.date) -> bool:
    begin = (priced.get("constraint") or {}).get("start_date")
    return begin is None or str(begin) <= today.isoformat()


def _base(price: object) -> Decimal | None:
    return _amount(price.get("base") if isinstance(price, Mapping) else price)


def _genai_steps(prices: Mapping[str, Any], conditions: Conditions) -> dict[Conditions, Amounts]:
    """Return the amounts of each length of input. A price without a step there has its last one."""
    starts = {
        step["start"]
        for name, price in prices.items()
        if name in _GENAI_METERS and isinstance(price, Mapping)
        for step in price.get("tiers", ())
    }
    steps: dict[Conditions, Amounts] = {}
    for start in (0, *sorted(starts)):
        amounts: Amounts = {}
        for name, (meter, times) in _GENAI_METERS.items():
            price = prices.get(name)
            if isinstance(price, Mapping):
                reached = [step["price"] for step in price["tiers"] if step["start"] <= start]
                price = reached[-1] if reached else price["base"]
            if (amount := _amount(price, times)) is not None:
                amounts[meter] = amount
        steps[(*conditions, *((("input_over", start),) if start else ()))] = amounts
    tokens = {
        step: {m: a for m, a in row.items() if m in _TOKEN_METERS} for step, row in steps.items()
    }
    return {step: row if step == () else tokens[step] for step, row in steps.items()}


def _equal_names(match: Mapping[str, Any]) -> Iterator[str]:
    if isinstance(match.get("equals"), str):
        yield match["equals"]
    for clause in match.get("or") or match.get("or_") or ():
        yield from _equal_names(clause)


# ---- models.dev: prices for a million tokens, by provider

_MODELS_DEV_METERS = (
    *("input", "output", "cache_read", "cache_write", "reasoning", "input_audio", "output_audio"),
)
_MODELS_DEV_OVER = re.compile(r"context_over_(\d+)k")


def _models_dev(content: Any, today: datetime.date) -> Iterator[ListedModel]:
    for provider, offer in content.items():
        for name, model in offer["models"].items():
            cost = model.get("cost") or {}
            plain = _amounts((meter, cost.get(meter)) for meter in _MODELS_DEV_METERS)
            variants: dict[Conditions, Amounts] = {}
            steps = [
                (int(m[1]) * 1000, cost[f]) for f in cost if (m := _MODELS_DEV_OVER.fullmatch(f))
            ]
            steps += [(int(step["tier"]["size"]), step) for step in cost.get("tiers") or ()]
            for over, step in steps:
                amounts = _amounts((meter, step.get(meter)) for meter in _MODELS_DEV_METERS)
                variants[("input_over", over),] = amounts
            limit = model.get("limit") or {}
            yield ListedModel(
                f"{provider}/{name}",
                vendor_word(provider),
                name,
                _price(plain),
                _rates(plain, variants, _TEXTS_OF_MODALITIES),
                _whole_number(limit.get("context")),
                _whole_number(limit.get("output")),
                "deprecated" if model.get("status") == "deprecated" else "",
            )


# ---- OpenRouter: prices for one token or use, as text

_OPENROUTER_METERS = {
    "prompt": ("input", MILLION),
    "completion": ("output", MILLION),
    "input_cache_read": ("cache_read", MILLION),
    "input_cache_write": ("cache_write", MILLION),
    "input_cache_write_1h": ("cache_write_1h", MILLION),
    "internal_reasoning": ("reasoning", MILLION),
    "audio": ("input_audio", MILLION),
    "input_audio_cache": ("cache_read_audio", MILLION),
    "audio_output": ("output_audio", MILLION),
    "image_token": ("input_image", MILLION),
    "request": ("call", Decimal(1)),
    "web_search": ("web_search", Decimal(1)),
}


def _openrouter(content: Any, today: datetime.date) -> Iterator[ListedModel]:
    for model in content["data"]:
        pricing = model.get("pricing") or {}
        plain = _openrouter_amounts(pricing)
        variants: dict[Conditions, Amounts] = {}
        for override in pricing.get("overrides") or ():
            least = _whole_number(override.get("min_prompt_tokens"))
            if least is not None and "utc_start" not in override:
                variants[("input_over", least - 1),] = _openrouter_amounts(override)
        vendor, _, name = model["id"].partition("/")
        yield ListedModel(
            model["id"],
            vendor_word(vendor),
            name,
            _price(plain),
            _rates(plain, variants, _TOKEN_METERS),
            _whole_number(model.get("context_length")),
            _whole_number((model.get("top_provider") or {}).get("max_completion_tokens")),
        )


def _openrouter_amounts(pricing: Mapping[str, Any]) -> Amounts:
    amounts: Amounts = {}
    for name, (meter, times) in _OPENROUTER_METERS.items():
        amount = _amount(pricing.get(name), times)
        # "0" means not charged separately, except for text
        if amount or (amount is not None and meter in ("input", "output")):
            amounts[meter] = amount
    return amounts


SOURCES: Mapping[str, PriceSource] = {
    "genai-prices": PriceSource(
        _genai, "https://raw.githubusercontent.com/pydantic/genai-prices/main/prices/data.json"
    ),
    "litellm": PriceSource(
        _litellm,
        "https://raw.githubusercontent.com/BerriAI/litellm/main/model_prices_and_context_window.json",
    ),
    "models.dev": PriceSource(_models_dev, "https://models.dev/api.json"),
    "openrouter": PriceSource(_openrouter, "https://openrouter.ai/api/v1/models"),
}
