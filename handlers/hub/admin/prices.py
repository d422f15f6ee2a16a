"""Prices: the list of models with their rates as rows, the form of a model with its price history,
a table to edit the prices of many models, and the comparison with the catalogue.

No edit overwrites a price that its user has not seen. If somebody else has changed a row or a price
of the comparison in the meantime, the answer is a 409 and the page shows both prices.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from decimal import Decimal
from http import HTTPStatus
from typing import Any

import peewee

from handlers.hub.admin.objects import ObjectListPage, ObjectPage, load_page
from handlers.hub.admin.price_forms import has_price, priced_meters, rate_prices, rate_words
from handlers.hub.admin.price_import import change_prices
from handlers.hub.web.admin import AdminApi, AdminHandler, AdminPage, path_of
from handlers.hub.web.base import Failure, invalid
from handlers.hub.web.formats import UNKNOWN, conditions, price_word
from operations import catalogue, edits
from operations.draft_models import NEEDED, DraftModel, times
from operations.price_pull import (
    MAX_RISE_PERCENT,
    ListIndex,
    PriceDifference,
    Pull,
    Tick,
    Ticks,
    matching,
    pull,
)
from operations.price_sources import CURRENCY, ListedModel
from store.admin import listing
from store.admin.export import list_objects
from store.admin.listing import Paging
from store.db import versions
from store.db.database import in_snapshot
from store.values.errors import Refused

COLUMNS = ("input", "cache_read", "cache_write", "output")
MODEL_PREFIX = "model "


class PriceListPage(ObjectListPage):
    """/admin/models: the models with their rates, and usage without a price."""

    async def list_values(self, items: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
        names = [item["name"] for item in items]
        return {
            "since": await self.store(listing.priced_since, names) if names else {},
            "unpriced": await self.store(catalogue.unpriced_uses),
            "COLUMNS": COLUMNS,
            "rate_prices": rate_prices,
            "price_word": price_word,
            "uses_of": uses_of,
            "is_listed": self.site.settings.money.currency == CURRENCY,
        }


class ModelPage(ObjectPage):
    """The form of a stored model, with the history of its prices."""

    async def details(self, stored: Mapping[str, Any]) -> Mapping[str, Any]:
        history = await self.store(listing.price_history, stored["name"])
        return {"history": history, "meters": priced_meters(history), "rate_words": rate_words}


class PriceHistoryApi(AdminApi):
    """GET /api/admin/models/NAME/prices."""

    async def get(self, name: str) -> None:
        self.answer_list(await self.store(listing.price_history, name))


def uses_of(price: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return the prices that have no column."""
    return [
        (name, text)
        for name, text in price.items()
        if name not in COLUMNS and has_price(name, text)
    ]


# ---- prices of many models


@dataclass(frozen=True, slots=True)
class PriceLine:
    """A model in the table of prices. `stored`: its prices when the form was opened, at `version`;
    `texts`: the current contents of its cells; `listed`: the prices in the catalogue."""

    name: str
    version: str
    stored: Mapping[str, str]
    texts: Mapping[str, str]
    listed: Mapping[str, str]
    chosen: bool = False
    source: str | None = None

    @property
    def edited(self) -> dict[str, str | None]:
        """Return the cells that differ from what was stored. None: emptied."""
        return {
            cell: self.texts.get(cell) or None
            for cell in COLUMNS
            if not _same(self.texts.get(cell, ""), self.stored.get(cell, ""))
        }

    @property
    def missing(self) -> list[str]:
        """Return the empty cells that need a price."""
        return [cell for cell in NEEDED if not self.texts.get(cell)]


def _same(text: str, other: str) -> bool:
    try:
        return text == other or (bool(text and other) and Decimal(text) == Decimal(other))
    except ArithmeticError:
        return False


@in_snapshot
def load_lines(
    db: peewee.Database, paging: Paging, currency: str
) -> tuple[list[PriceLine], str | None]:
    """Read the models of a page as lines. Return them with the cursor of the next page."""
    part = load_page(db, "model", paging)
    names = [item["name"] for item in part.items]
    listed = listed_prices(db, names) if currency == CURRENCY else {}
    lines = []
    for item in part.items:
        stored = {cell: item["price"][cell] for cell in COLUMNS if cell in item["price"]}
        name = item["name"]
        version, source = versions.version_of(db, "model", name), item.get("price_source")
        list_price = listed.get(name, {})
        lines.append(PriceLine(name, version, stored, stored, list_price, source=source))
    return lines, part.next


def listed_prices(db: peewee.Database, names: Sequence[str]) -> dict[str, Mapping[str, str]]:
    """Return the catalogue's prices by the models' names here."""
    index, channels = ListIndex(catalogue.listed_models()), list_objects(db, "channel")
    matches = {name: matching(index, name, channels) for name in names}
    return {name: row.price for name, row in matches.items() if isinstance(row, ListedModel)}


class EditPricesPage(AdminPage):
    """A table to edit the prices of many models. Nothing is stored before Save, which stores all or
    none."""

    async def get(self) -> None:
        lines, following = await self._load()
        self._form(lines, following)

    async def _load(self) -> tuple[list[PriceLine], str | None]:
        currency = self.site.settings.money.currency
        return await self.store(load_lines, self.paging(), currency)

    async def post(self) -> None:
        stored, following = await self._load()
        lines = [self._submitted(line) for line in stored]
        do = self.get_body_argument("do", "save")
        try:
            if do != "save":
                self._form([self._acted(line, do) for line in lines], following)
                return
            rows = [self._row(line) for line in lines if line.edited]
            changes = await change_prices(self, rows, dry_run=False)
        except Failure as failure:
            self.set_status(failure.status_code)
            self._form(self._after(lines, stored, failure), following, failure)
            return
        self.done("done_prices", path_of("models"), count=len(changes))

    def _submitted(self, line: PriceLine) -> PriceLine:
        """Return a line as submitted, with the stored prices and version that its form was based
        on."""
        name = line.name
        version = self.get_body_argument(f"version.{name}", None)
        if version is None:
            return line
        texts = {cell: self.get_body_argument(f"{cell}.{name}", "") for cell in COLUMNS}
        before = {cell: self.get_body_argument(f"was.{cell}.{name}", "") for cell in COLUMNS}
        chosen = name in self.get_body_arguments("chosen")
        was = {cell: text for cell, text in before.items() if text}
        return PriceLine(name, version, was, texts, line.listed, chosen, line.source)

    def _acted(self, line: PriceLine, do: str) -> PriceLine:
        """Return a line after a button that acts on the chosen lines. Raises Failure."""
        if not line.chosen:
            return line
        texts = dict(line.texts)
        if do == "take":
            texts |= {cell: line.listed[cell] for cell in COLUMNS if cell in line.listed}
        elif do == "free":
            texts = {cell: "0" if cell in NEEDED else "" for cell in COLUMNS}
        else:
            model = DraftModel(line.name, line.name, prices=texts)
            factor = self.get_body_argument("factor", "")
            try:
                times(model, factor)
            except Refused as error:
                raise invalid("factor", str(error)) from None
            texts = model.prices
        return _replaced(line, texts)

    @staticmethod
    def _row(line: PriceLine) -> dict[str, Any]:
        """Return the changes of a line. Raises Failure."""
        if line.missing:
            raise invalid(None, f"{line.name}: {', '.join(line.missing)} is missing; 0 is free")
        return {"model": line.name, "version": line.version, **line.edited}

    @staticmethod
    def _after(
        lines: Sequence[PriceLine], stored: Sequence[PriceLine], failure: Failure
    ) -> list[PriceLine]:
        """Return the lines after a failure. A line that others have changed gets their prices,
        except in cells that were edited here."""
        outdated = versions.outdated_of(failure)
        name = outdated.named.removeprefix(MODEL_PREFIX) if outdated else ""
        return [
            _replaced(now, {**now.texts, **{c: t or "" for c, t in line.edited.items()}})
            if line.name == name
            else line
            for line, now in zip(lines, stored, strict=True)
        ]

    def _form(
        self,
        lines: Sequence[PriceLine],
        following: str | None,
        failure: Failure | None = None,
    ) -> None:
        outdated = versions.outdated_of(failure)
        self.show(
            "admin/prices_edit.html",
            lines=lines,
            paging=self.paging(),
            following=following,
            failure=failure,
            outdated=outdated,
            name=outdated.named.removeprefix(MODEL_PREFIX) if outdated else "",
            cells=COLUMNS,
            needed=NEEDED,
            back=path_of("models"),
            action=self.request.uri,
            is_listed=self.site.settings.money.currency == CURRENCY,
        )


def _replaced(line: PriceLine, texts: Mapping[str, str]) -> PriceLine:
    return PriceLine(
        line.name, line.version, line.stored, texts, line.listed, line.chosen, line.source
    )


# ---- the catalogue


async def compare(
    handler: AdminHandler, only: Sequence[str], ticks: Ticks | None, *, dry_run: bool
) -> Pull:
    """Compare the prices of models (`only` these) with the catalogue, and apply the ticked prices.
    Raises Failure."""
    currency = handler.site.settings.money.currency
    if currency != CURRENCY:
        message = f"the prices of the catalogue are in {CURRENCY}, money.currency is {currency}"
        raise invalid("from", message)
    actor, sealing = handler.me.user, handler.site.sealing

    def work(db: peewee.Database) -> Pull:
        editor = edits.editor(db, sealing, actor, remote=True)
        listed = catalogue.listed_models()
        source = catalogue.list_word()
        return pull(db, editor, listed, source, only=only, ticks=ticks, dry_run=dry_run)

    return await handler.store(work)


class ComparePricesPage(AdminPage):
    """The differences from the catalogue, each with a checkbox. A steep rise needs a second one."""

    async def get(self) -> None:
        await self._show(ticked=None)

    async def post(self) -> None:
        try:
            ticks = self._ticks()
            if not ticks:
                raise invalid(None, self.words["prices.none_ticked"])
            result = await compare(self, (), ticks, dry_run=False)
        except Failure as failure:
            self.set_status(failure.status_code)
            chosen = set(self.get_body_arguments("take"))
            await self._show(ticked=chosen, problem=self.in_words(failure.message))
            return
        count = len({difference.model for difference in result.changes})
        self.done("done_prices", path_of("models"), count=count)

    def _ticks(self) -> dict[Tick, bool]:
        """Return the ticked differences. Raises Failure if a steep rise lacks its second tick."""
        rises = set(self.get_body_arguments("rise"))
        ticks: dict[Tick, bool] = {}
        for text in self.get_body_arguments("take"):
            tick = tick_of(text)
            ticks[tick] = text in rises
            difference = PriceDifference(tick[0], "", tick[1], tick[2], tick[3] or None, tick[4])
            if difference.steep and text not in rises:
                problem = self.words["prices.rise_unconfirmed"]
                raise invalid(None, problem.format(model=tick[0], percent=MAX_RISE_PERCENT))
        return ticks

    async def _show(self, ticked: set[str] | None, problem: str = "") -> None:
        only = [name for name in self.get_query_arguments("model") if name]
        result = await compare(self, only, None, dry_run=True)
        self.show(
            "admin/prices_compare.html",
            result=result,
            problem=problem,
            ticked=ticked,
            rises=set(self.get_body_arguments("rise")),
            value_of=lambda difference: json.dumps(difference.key),
            percent_of=percent_of,
            rate_word=self._rate_word,
            reason_word=self.in_words,
            only=only,
            limit=MAX_RISE_PERCENT,
            back=path_of("models"),
        )

    def _rate_word(self, rate: str) -> str:
        """Return the conditions of a difference as text."""
        pairs = (part.partition("=")[::2] for part in rate.split(",") if part)
        when = {name: int(value) if value.isdigit() else value for name, value in pairs}
        return conditions(self.words, when) or self.words["usage.plain_rate"]


def percent_of(difference: PriceDifference) -> str:
    """Return the change of a price in percent."""
    if difference.before is None or not Decimal(difference.before):
        return UNKNOWN
    old = Decimal(difference.before)
    percent = (Decimal(difference.after) - old) * 100 / old
    return f"{percent:+.0f}".replace("-", "−")


def tick_of(text: str) -> Tick:
    """Return a submitted tick. Raises Failure."""
    try:
        model, rate, meter, before, after = json.loads(text)
        Decimal(before or 0), Decimal(after)
    except (ValueError, TypeError, ArithmeticError):
        raise invalid("take", "take must be a difference of the comparison") from None
    return (str(model), str(rate), str(meter), str(before), str(after))


class ComparePricesApi(AdminApi):
    """GET and POST /api/admin/prices/compare."""

    async def get(self) -> None:
        only = [name for name in self.get_query_arguments("model") if name]
        self._answer(await compare(self, only, None, dry_run=True))

    async def post(self) -> None:
        body = self.fields("take", "dry_run")
        rows = body.get("take")
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise invalid("take", "take must be a list of objects: model, meter, before, after …")
        ticks: dict[Tick, bool] = {}
        for row in rows:
            values = [row.get(name) for name in ("model", "rate", "meter", "before", "after")]
            texts = [value or "" for value in values]
            ticks[tick_of(json.dumps(texts, default=str))] = self.flag(row, "accept_rise")
        result = await compare(self, (), ticks, dry_run=self.flag(body, "dry_run"))
        if not self.flag(body, "dry_run") and not result.changes:
            raise invalid("take", "none of these can be taken: steep rises need accept_rise")
        self._answer(result)

    def _answer(self, result: Pull) -> None:
        differences = [
            {**asdict(difference), "steep": difference.steep} for difference in result.differences
        ]
        self.answer(
            {
                "source": result.source,
                "differences": differences,
                "unmatched": dict(result.unmatched),
            },
            HTTPStatus.OK,
        )
