"""Writes conf/catalogue.toml from the data inside two packages, as facts with source and date.

    pip download genai-prices litellm --no-deps -d DIR
    python -m tools.catalogue DIR --date 2026-11-28

LiteLLM's list says which models there are, their bounds and rates; an entry that genai-prices
contradicts in the price of input or output is left out, and what only genai-prices has is added.
Both lists are under the MIT licence.
"""

import argparse
import datetime
import json
import re
import sys
import zipfile
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

from conf.values import toml
from operations.catalogue import CATALOGUE_FILE
from operations.price_lists import installed_list
from operations.price_sources import ListedModel, read_list, vendor_word
from store.values.meters import METERS

PROVIDERS = (
    *("openai", "anthropic", "gemini", "deepseek", "mistral", "xai", "moonshot", "zai"),
    *("dashscope", "minimax", "groq", "cerebras"),
)
VENDORS = tuple(map(vendor_word, PROVIDERS))
MODES = ("chat", "responses")
STAYS_DAYS = 30  # a model that its vendor removes must stay this long
LEAST_CONTEXT = 8192
LITELLM_DATA = "litellm/model_prices_and_context_window_backup.json"

# fine-tuned, experimental, not for chat, or no longer listed by the vendor's own API
LEFT_OUT = re.compile(
    r"ft:|.*container|.*(experimental|-beta|-gv2|exp-\d|learnlm|lyria|-tts|audio|gemini-gemma)"
    r"|deepseek-(coder|r1|v3)$|mistral-(tiny|small)$|codestral-mamba|pixtral|open-mistral"
    r"|mistral-(vibe|code)-|gpt-daybreak|gpt-[34]($|-|\.5)|llama-3\.1-70b|qwen-turbo-2024|moonshot-v1"
)
DATED = re.compile(r"-(20\d\d-\d\d-\d\d|20\d{6}|\d{4})(?=$|-)")

HEAD = """\
# Current models of the big vendors: context, longest output, prices and rates, as facts. Written by
# tools/catalogue.py from the data of the packages that `source` names (both MIT licence), read on
# `date`. Prices in USD, for a million tokens or a use. Vendors change them: ./sluice model prices
# pull compares. Prices by the hour are those of the dearest hour; batch prices are left out.
"""


def main() -> None:
    """Write the file, and print how many models of each vendor it has."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--date", type=datetime.date.fromisoformat, required=True)
    arguments = parser.parse_args()
    [litellm_wheel] = arguments.folder.glob("litellm-*.whl")
    [genai_wheel] = arguments.folder.glob("genai_prices-*.whl")
    sys.path.insert(0, str(genai_wheel))
    chosen = choose(_litellm(litellm_wheel, arguments.date), arguments.date)
    by_genai = {
        (model.vendor, name): model
        for model in read_list("genai-prices", installed_list(), arguments.date)
        for name in (model.name, *model.aliases)
    }
    words = [f"litellm {_version(litellm_wheel)}", f"genai-prices {_version(genai_wheel)}"]
    tables, counts = [], defaultdict(int)
    for model in without_twins(chosen):
        checked = by_genai.get((model.vendor, model.name))
        if checked is not None and not _agree(model, checked):
            print(f"left out, the lists differ: {model.key} {model.price} {checked.price}")
            continue
        source = ", ".join(words[: 2 if checked else 1])
        tables.append(_table(joined(model, checked), source, arguments.date))
        counts[model.vendor] += 1
    CATALOGUE_FILE.write_text("\n".join((HEAD, *tables)), encoding="utf-8")
    print(len(tables), dict(counts))


def _version(wheel: Path) -> str:
    return wheel.name.split("-")[1]


def _litellm(wheel: Path, date: datetime.date) -> list[ListedModel]:
    with zipfile.ZipFile(wheel) as archive:
        content: dict[str, Any] = json.loads(archive.read(LITELLM_DATA), parse_float=Decimal)
    current = {
        key: fields
        for key, fields in content.items()
        if fields.get("litellm_provider") in PROVIDERS and fields.get("mode") in MODES
    }
    return read_list("litellm", current, date)


def choose(models: Iterable[ListedModel], date: datetime.date) -> list[ListedModel]:
    """Return the current models with prices and bounds, each once."""
    last = (date + datetime.timedelta(days=STAYS_DAYS)).isoformat()
    chosen = {
        (model.vendor, model.name): model
        for model in models
        if not LEFT_OUT.match(model.name)
        and (not model.ends or model.ends > last)
        and all(Decimal(model.price.get(meter, 0)) for meter in ("input", "output"))
        and (model.context_tokens or 0) >= LEAST_CONTEXT
        and model.max_output_tokens
    }
    return sorted(chosen.values(), key=lambda m: (VENDORS.index(m.vendor), m.name))


def without_twins(models: list[ListedModel]) -> list[ListedModel]:
    """Return the models without those whose name only adds a date or -latest to another one's."""

    def stem(model: ListedModel) -> str:
        return DATED.sub("", model.name).removesuffix("-latest")

    groups: defaultdict[tuple[str, str], list[ListedModel]] = defaultdict(list)
    for model in models:
        groups[model.vendor, stem(model)].append(model)
    best = (
        min(group, key=lambda m: (bool(DATED.search(m.name)), len(m.name)))
        for group in groups.values()
    )
    return list(best)


def _agree(model: ListedModel, checked: ListedModel) -> bool:
    return all(model.price[meter] == checked.price.get(meter) for meter in ("input", "output"))


def joined(model: ListedModel, checked: ListedModel | None) -> ListedModel:
    """Return a model from both lists, with the prices of both (genai-prices' where they differ,
    since it names its sources), and the longer list of rates."""
    price, rate, context = dict(model.price), list(model.rate), model.context_tokens
    if checked is not None:
        price |= checked.price
        rate = list(checked.rate if len(checked.rate) >= len(rate) else rate)
        context = max(context or 0, checked.context_tokens or 0)
    price = _own(price)
    rates = [{"when": row["when"], **_own(row)} for row in rate]
    return replace(model, price=price, rate=rates, context_tokens=context)


def _own(prices: Mapping[str, Any]) -> dict[str, str]:
    """Return the prices in order, without zeros and without those that the chain gives anyway."""
    own: dict[str, str] = {}
    chained: dict[str | None, str | None] = {}
    for name, meter in METERS.items():
        text = prices.get(name)
        if text is not None and Decimal(text):
            if text != chained.get(meter.falls_to) or meter.unpriced:
                own[name] = text
            chained[name] = text
        else:
            chained[name] = chained.get(meter.falls_to)
    return {"factor": prices["factor"]} if "factor" in prices else own


def _table(model: ListedModel, source: str, date: datetime.date) -> str:
    fields = {
        "name": model.name,
        "vendor": model.vendor,
        "context_tokens": model.context_tokens,
        "max_output_tokens": model.max_output_tokens,
        "source": source,
        "date": date.isoformat(),
    }
    lines = ["[[model]]", *(f"{name} = {toml(value)}" for name, value in fields.items())]
    lines.append(f"price = {_inline(model.price)}")
    if model.rate:
        lines += ["rate = [", *(f"  {_inline(rate)}," for rate in model.rate), "]"]
    return "\n".join(lines) + "\n"


def _inline(table: Mapping[str, Any]) -> str:
    parts = (
        f"{name} = {_inline(value) if isinstance(value, Mapping) else toml(value)}"
        for name, value in table.items()
    )
    return f"{{ {', '.join(parts)} }}"


if __name__ == "__main__":
    main()
