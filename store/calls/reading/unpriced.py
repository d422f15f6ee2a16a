"""Recent uses without a price, of models whose price is still missing.

Records name each meter and feature that had no price, and the roll-up usage_by_rate has their sums
by day. Meters that have a price by now and models that were removed are left out, since there is
nothing to do about them. For `status` and the Hub, whose operators set the prices.
"""

from collections import Counter
from dataclasses import dataclass

import peewee
from peewee import fn

from store.catalog.catalog import load_models
from store.db.database import database_ms, in_snapshot, select_rows
from store.db.tables.usage import UsageByRate as Sums
from store.values.features import is_priced
from store.values.ids import DAY_MS, day_at

RECENT_DAYS = 7
MAX_SHOWN = 100  # the most used ones


@dataclass(frozen=True, slots=True)
class UnpricedUse:
    """The number of uses of a model's meter or feature (`tier.priority`) without a price."""

    model: str
    meter: str
    count: int


@in_snapshot
def recent_unpriced(db: peewee.Database) -> list[UnpricedUse]:
    """Return the uses of the last RECENT_DAYS whose price is still missing, the most used first."""
    at_ms = database_ms(db)
    uses = fn.SUM(Sums.uses)
    recent = (Sums.day > day_at(at_ms - RECENT_DAYS * DAY_MS)) & (Sums.meter != "")
    query = Sums.select(Sums.model, Sums.meter, uses).where(recent).group_by(Sums.model, Sums.meter)
    counts = Counter({(model, meter): int(count) for model, meter, count in select_rows(db, query)})
    if not counts:  # the usual case
        return []
    prices = {model.name: model.prices_at(at_ms) for model in load_models(db)}
    missing = (
        UnpricedUse(model, meter, count)
        for (model, meter), count in counts.most_common()
        if (held := prices.get(model)) is not None and not is_priced(meter, held)
    )
    return list(missing)[:MAX_SHOWN]
