"""Uses without a price: only recent ones, and only while there is no price."""

import pytest

from store.calls.reading import unpriced
from store.calls.reading.unpriced import RECENT_DAYS, UnpricedUse, recent_unpriced
from store.db.database import database_ms
from store.db.tables.usage import UsageByRate
from store.values.ids import DAY_MS, day_at


@pytest.fixture
def used(database, applied):
    """Return used(model, meter, uses, days ago, rate), which adds to the roll-up."""
    now_ms = database_ms(database)

    def add(model, meter, uses=1, days=0, rate=""):
        day = day_at(now_ms - days * DAY_MS)
        row = {"day": day, "model": model, "rate": rate, "meter": meter, "uses": uses, "calls": 1}
        UsageByRate.insert(row).execute(database)

    return add


def test_nothing_was_used(database, used):
    used("gpt-4.1", "", uses=0)  # the calls themselves
    assert recent_unpriced(database) == []


def test_uses_of_the_last_days_by_model_and_meter(database, used, monkeypatch):
    used("gpt-4.1", "web_search", 2)
    used("gpt-4.1", "web_search", 3, days=1)
    used("gpt-4.1", "web_search", 4, rate="tier=flex")
    used("gpt-4.1", "tier.priority", 5)
    used("claude", "geo", 1, days=RECENT_DAYS - 1)
    used("claude", "maps", 9, days=RECENT_DAYS)
    used("gone", "maps", 9)
    expected = [("gpt-4.1", "web_search", 9), ("gpt-4.1", "tier.priority", 5), ("claude", "geo", 1)]
    assert recent_unpriced(database) == [UnpricedUse(*row) for row in expected]
    monkeypatch.setattr(unpriced, "MAX_SHOWN", 2)
    assert len(recent_unpriced(database)) == 2


@pytest.mark.parametrize(("meter", "prices", "rates", "quiet"), [
    ("web_search", {"web_search": "0.01"}, [], True),
    ("web_search", {"web_fetch": "0.01"}, [], False),
    ("code_interpreter", {"code_interpreter": "0.03"}, [], True),
    ("output_image", {"output_image": "40"}, [], True),
    ("tier.priority", {}, [{"when": {"tier": "priority"}, "factor": "2"}], True),
    ("tier.priority", {}, [{"when": {"tier": "flex"}, "factor": "0.5"}], False),
    ("geo", {}, [{"when": {"geo": "us"}, "factor": "1.1"}], True),
    ("advisor", {"web_search": "0.01"}, [], False),
])  # fmt: skip
def test_what_has_a_price_by_now_is_quiet(
    remote_editor, database, used, meter, prices, rates, quiet
):
    used("gpt-4.1", meter)
    assert len(recent_unpriced(database)) == 1
    price = {"input": "2", "output": "8", **prices}
    remote_editor.change("model", "gpt-4.1", {"price": price, "rate": rates})
    assert recent_unpriced(database) == ([] if quiet else [UnpricedUse("gpt-4.1", meter, 1)])
