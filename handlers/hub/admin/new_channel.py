"""A new channel in three steps: vendor and key, models and prices, tests and saving.

All steps edit one draft of the session (operations/channel_draft.py). Each form changes the draft
and redirects to the next step, so that Back works and nothing is lost. The first run has the same
steps in a page of its own.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from http import HTTPStatus
from typing import Any
from urllib.parse import urlencode

import peewee

from adapters.models import OPTIONS
from adapters.registry import VENDORS
from adapters.vendor_cards import CARDS
from handlers.hub.admin.object_forms import (
    ADVANCED,
    MAX_OPTIONS,
    FormContents,
    document_values,
    form_fields,
    vendor_label,
)
from handlers.hub.admin.price_forms import rate_words
from handlers.hub.web.admin import AdminHandler, AdminPage, path_of
from handlers.hub.web.base import MAX_DIGITS, Failure, invalid
from operations import channel_draft, channel_test
from operations.channel_draft import MAX_CHOSEN, PAYS, Draft
from operations.channel_test import MODELS_AT_ONCE, ChannelTest
from operations.draft_models import (
    CELLS,
    CHAT,
    NEEDED,
    DraftModel,
    factor_text,
    problems,
    times,
)
from store.admin import listing
from store.admin.kinds import DEFAULT_GROUP
from store.admin.listing import Paging
from store.hub import drafts
from store.values.fields import Instant

PLACE = "/admin/channels/new"
ACCOUNT, MODELS, TESTS = STEPS = (1, 2, 3)
FILTERS = ("all", "chosen", "new", "unpriced")
NO_LIST = (HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED, HTTPStatus.NOT_IMPLEMENTED)
_NOT_ASKED = {"draining", "cost", "cost_factor", "ca_file"}
REMOVABLE: Mapping[str, Any] = {"extra_headers": {}, "proxy": None}
"""Secrets that a checkbox removes from a draft, with their value after that."""
_FIELDS = ("name", "vendor", "family", "base_url", "keys", "groups")
_SEPARATORS = str.maketrans(",;\r\n\t", "     ")


# ---- shared by pages and endpoints


async def load(handler: AdminHandler) -> Draft | None:
    """Return the draft of the session or token, or None."""
    cipher = handler.site.sealing.cipher
    return await handler.store(channel_draft.load, cipher, handler.me.session_id)


async def edit(handler: AdminHandler, change: Callable[[peewee.Database, Draft], None]) -> Draft:
    """Change the draft. Raises Failure; 404 without a draft."""
    cipher, owner = handler.site.sealing.cipher, handler.me.session_id

    def work(db: peewee.Database) -> Draft:
        def changed(draft: Draft | None) -> None:
            if draft is not None:
                change(db, draft)

        return channel_draft.edit(db, cipher, owner, changed)

    return await handler.store(work)


async def set_account(handler: AdminHandler, values: Mapping[str, Any]) -> Draft:
    """Set the account's fields in the draft. Creates the draft if there is none. Raises Failure."""
    sealing, me = handler.site.sealing, handler.me

    def work(db: peewee.Database) -> Draft:
        before = channel_draft.load(db, sealing.cipher, me.session_id)
        after = channel_draft.check_account(db, sealing, me.user, before, values)
        return channel_draft.edit(db, sealing.cipher, me.session_id, lambda stored: after)

    return await handler.store(work)


async def list_models(handler: AdminHandler) -> Draft:
    """List the vendor's models and add them to the draft. Raises Failure."""
    draft = await needed(handler)
    channel = await handler.store(lambda db: channel_draft.channel_of(draft))
    answer = await channel_test.list_upstream_models(channel, handler.site.settings.upstream)
    currency = handler.site.settings.money.currency

    def take(db: peewee.Database, draft: Draft) -> None:
        draft.status, draft.error = answer.status, answer.error
        if answer.error is None:
            by_hand = [m.upstream for m in draft.chosen if m.upstream not in answer.names]
            channel_draft.take_names(db, draft, [*answer.names, *by_hand], currency)

    return await edit(handler, take)


async def test_models(
    handler: AdminHandler, names: Sequence[str], *, stream: bool = True
) -> list[ChannelTest]:
    """Test models of the draft, MODELS_AT_ONCE at a time. Each result is stored when it arrives.
    Raises Failure."""
    if len(names) > MAX_CHOSEN:
        raise invalid("models", f"at most {MAX_CHOSEN} models at once: each is a real call")
    draft = await needed(handler)
    targets = await handler.store(
        lambda db: [channel_draft.target_of(draft, name, stream=stream) for name in names]
    )
    gate = asyncio.Semaphore(MODELS_AT_ONCE)

    async def test(target: Any) -> ChannelTest:
        async with gate:
            result = await channel_test.call(target, handler.site.settings.upstream)
        plain, upstream = channel_test.to_plain(result), result.upstream_model
        await edit(
            handler,
            lambda db, draft: channel_draft.note_test(draft, upstream, plain, result.usage),
        )
        outcome = {"model": result.model, "status": result.status, "error": result.error}
        await handler.note("test", "channel", result.channel, **outcome)
        return result

    return list(await asyncio.gather(*map(test, targets)))


async def save(handler: AdminHandler, *, enabled: bool) -> str:
    """Create the channel, delete the draft, and return the channel's name. Raises Failure."""
    draft, sealing, me = await needed(handler), handler.site.sealing, handler.me

    def work(db: peewee.Database) -> str:
        name = channel_draft.make(db, sealing, me.user, draft, enabled=enabled)
        drafts.drop(db, me.session_id)
        return name

    return await handler.store(work)


async def needed(handler: AdminHandler) -> Draft:
    """Return the draft of the session or token. Raises Failure 404 without one."""
    draft = await load(handler)
    if draft is None:
        raise Failure(HTTPStatus.NOT_FOUND, "not_found", "there is no draft of a channel")
    return draft


def take_end(draft: Draft, texts: Mapping[str, str]) -> None:
    """Copy costs, priority and weight into the draft. Raises Failure."""
    draft.pay = texts.get("pay", draft.pay)
    if draft.pay not in PAYS:
        raise invalid("pay", f"pay must be one of {', '.join(PAYS)}")
    draft.factor = _factor(texts.get("cost_factor", draft.factor).strip())
    for name in ("priority", "weight"):
        text = texts.get(name, str(getattr(draft, name))).strip()
        if not text.removeprefix("-").isdecimal() or len(text) > MAX_DIGITS:
            raise invalid(name, f"{name} must be a whole number")
        setattr(draft, name, int(text))


def _factor(text: str) -> str:
    try:
        return factor_text(text)
    except ValueError as error:
        raise invalid("cost_factor", f"cost_factor: {error}") from None


# ---- the pages


class ChannelWizard(AdminPage):
    """The three steps. `first_run`: this is the first channel, which needs a working model.
    `action`: the target of the forms."""

    first_run = False
    action = PLACE

    def step_path(self, step: int, **query: str) -> str:
        """Return the path of a step."""
        return f"{PLACE}?{urlencode({'step': step, **query})}"

    def end_path(self, name: str) -> str:
        """Return the path to redirect to after saving; without a name, after cancelling."""
        return path_of("channels", name)

    async def render_step(self, values: Mapping[str, Any]) -> None:
        """Render a page around the step."""
        self.show("admin/new_channel.html", **values)

    async def show_step(self, step: int, failure: Failure | None = None) -> None:
        """Render a step: the first without a draft, the second if no models are chosen."""
        draft = await load(self)
        if draft is None or (not draft.models and draft.error is None and not draft.status):
            step = ACCOUNT
        elif step == TESTS and not draft.chosen and not any(model.test for model in draft.models):
            step = MODELS
        if failure is not None:
            self.set_status(failure.status_code)
        values: dict[str, Any] = {
            "step": step,
            "draft": draft,
            "failure": failure,
            "first": self.first_run,
            "step_path": self.step_path,
            "action": self.action,
            "cancel": self.end_path(""),
            "label_of": partial(vendor_label, self.words),
            "option_names": ", ".join(OPTIONS),
            "rate_words": rate_words,
            "ms": Instant().parse,
        }
        values |= await (self._account, self._models, self._tests)[step - 1](draft, failure)
        await self.render_step(values)

    async def take_step(self) -> None:
        """Perform the action of the pressed button and redirect, or show the step with the
        problem."""
        do = self.get_body_argument("do", "")
        try:
            await self._take(do)
        except Failure as failure:
            if failure.status_code == HTTPStatus.NOT_FOUND:  # there is no draft any more
                self.redirect(self.step_path(ACCOUNT), status=HTTPStatus.SEE_OTHER)
                return
            await self.show_step(step_of(do), failure)

    async def _take(self, do: str) -> None:
        if do == "cancel":
            await self.store(drafts.drop, self.me.session_id)
            self.redirect(self.end_path(""), status=HTTPStatus.SEE_OTHER)
        elif do in ("list", "names"):
            await self._take_account(do)
        elif do in ("run", "save", "save_off") or do.startswith("again="):
            await self._take_tests(do)
        else:
            await self._take_models(do)

    # ---- step 1

    async def _account(self, draft: Draft | None, failure: Failure | None) -> dict[str, Any]:
        submitted = self.submitted() if failure is not None else None
        stored = draft.channel if draft is not None else {}
        vendor = self.get_argument("vendor", stored.get("vendor") or "openai")
        problems = self.problems_of(failure, (*_FIELDS, *ADVANCED["channel"])) if failure else {}
        defaults = {name: value for name, value in stored.items() if name not in ("proxy",)}
        contents = FormContents(defaults=defaults, submitted=submitted, problems=problems)
        fields = form_fields("channel", contents)
        groups = (await self.store(listing.list_page, "group", Paging(MAX_OPTIONS))).items
        texts = {
            name: (submitted.get(name) or [""])[0] if submitted else str(stored.get(name, ""))
            for name in ("name", "family", "base_url")
        }
        vendor = vendor if vendor in VENDORS else "openai"
        chosen = submitted.get("groups", []) if submitted else stored.get("groups")
        return {
            "vendors": channel_draft.vendors(),
            "vendor": vendor,
            "texts": texts,
            "proposed": await self.store(_unused_name, vendor),
            "groups": groups or [{"name": DEFAULT_GROUP, "multiplier": "1"}],
            "chosen_groups": [DEFAULT_GROUP] if chosen is None else chosen,
            "advanced": [f for f in fields if f.advanced and f.name not in _NOT_ASKED],
            "problems": problems,
            "list_failed": failure is None and draft is not None and self._list_failed(draft),
            "secrets": {n: len(stored.get(n) or ()) for n in channel_draft.SECRETS},
            "removable": [name for name in REMOVABLE if stored.get(name)],
        }

    @staticmethod
    def _list_failed(draft: Draft) -> bool:
        return draft.error is not None and draft.status not in NO_LIST and not draft.models

    async def _take_account(self, do: str) -> None:
        submitted = {name: list(values) for name, values in self.submitted().items()}
        vendor = (submitted.get("vendor") or [""])[0]
        if vendor in VENDORS:
            families = next(v.families for v in channel_draft.vendors() if v.name == vendor)
            for name, text in (("base_url", CARDS[vendor].base_url), ("family", families[0])):
                if not (submitted.get(name) or [""])[0].strip():
                    submitted[name] = [text]
            if submitted["family"][0] not in families:
                submitted["family"] = [families[0]]
            if not (submitted.get("name") or [""])[0].strip():
                submitted["name"] = [await self.store(_unused_name, vendor)]
        values = document_values("channel", submitted, new=True)
        for name in ("models", "enabled", "draining", "priority", "weight", "cost"):
            values.pop(name, None)
        for name in REMOVABLE:
            if name in submitted.get("remove", ()) and not values.get(name):
                values[name] = REMOVABLE[name]
        if vendor == "demo" and not values.get("keys"):
            values["keys"] = ["demo"]
        await set_account(self, values)
        if do == "list":
            draft = await list_models(self)
            if self._list_failed(draft):
                self.redirect(self.step_path(ACCOUNT), status=HTTPStatus.SEE_OTHER)
                return
        else:
            await edit(self, _without_list)
        self.redirect(self.step_path(MODELS), status=HTTPStatus.SEE_OTHER)

    # ---- step 2

    async def _models(self, draft: Draft | None, failure: Failure | None) -> dict[str, Any]:
        assert draft is not None
        existing = await self.store(channel_draft.existing_names, draft)
        own = await self.store(_own_prices, [m.name for m in draft.models if m.name in existing])
        show, search = (self.get_argument(name, "") for name in ("show", "search"))
        wrong = problems(draft.chosen, existing)
        parts = {
            "all": draft.models,
            "chosen": draft.chosen,
            "new": [model for model in draft.models if model.name not in existing],
            "unpriced": [m for m in draft.models if m.name not in existing and not m.prices],
        }
        rows = parts[show if show in FILTERS else "all"]
        return {
            "parts": parts,
            "show": show if show in FILTERS else "all",
            "search": search,
            "rows": [m for m in rows if search.lower() in f"{m.upstream} {m.name}".lower()],
            "existing": existing,
            "own": own,
            "wrong": wrong,
            "cells": CELLS,
            "has_endpoint": channel_draft.has_endpoint,
        }

    async def _take_models(self, do: str) -> None:
        submitted, currency = self.submitted(), self.site.settings.money.currency
        argument = self.get_body_argument
        factor, added = argument("factor", ""), argument("added", "").translate(_SEPARATORS).split()

        def change(db: peewee.Database, draft: Draft) -> None:
            _take_rows(draft, submitted)
            existing = channel_draft.existing_names(db, draft)
            if do == "add" and added:
                present = [model.upstream for model in draft.models]
                channel_draft.take_names(db, draft, [*present, *added], currency)
                for model in draft.models:
                    model.chosen |= model.upstream in added
            _act(draft, do, factor, existing)

        draft = await edit(self, change)
        if do == "back":
            self.redirect(self.step_path(ACCOUNT), status=HTTPStatus.SEE_OTHER)
            return
        query = {name: argument(name, "") for name in ("show", "search") if argument(name, "")}
        if do.startswith("show="):
            query["show"] = do.partition("=")[2]
        if do == "test":
            existing = await self.store(channel_draft.existing_names, draft)
            if draft.chosen and not problems(draft.chosen, existing):
                self.redirect(self.step_path(TESTS), status=HTTPStatus.SEE_OTHER)
                return
            query = {}
        self.redirect(self.step_path(MODELS, **query), status=HTTPStatus.SEE_OTHER)

    # ---- step 3

    async def _tests(self, draft: Draft | None, failure: Failure | None) -> dict[str, Any]:
        assert draft is not None
        tested = [model for model in draft.models if model.chosen or model.test]
        groups, serving = await self.store(_places_of, draft, [model.name for model in tested])
        return {
            "tested": tested,
            "untested": [m for m in draft.chosen if m.test is None and m.kind == CHAT],
            "working": [model for model in tested if model.works],
            "failed": [model for model in tested if model.test and not model.works],
            "margins": [
                (
                    group["name"],
                    group["multiplier"],
                    channel_draft.margin(draft, group["multiplier"]),
                )
                for group in groups
            ],
            "serving": serving,
            "cells": CELLS,
            "problems": self.problems_of(failure, ("cost_factor", "priority", "weight", "models"))
            if failure
            else {},
        }

    async def _take_tests(self, do: str) -> None:
        submitted = self.submitted()
        texts = {name: values[0] for name, values in submitted.items()}

        def change(db: peewee.Database, draft: Draft) -> None:
            for model in draft.models:
                if model.upstream in submitted.get("row", ()):
                    model.chosen = model.upstream in submitted.get("chosen", ())
                    cells = {c: texts.get(f"cost.{model.upstream}.{c}", "").strip() for c in CELLS}
                    model.cost = {cell: text for cell, text in cells.items() if text}
            take_end(draft, texts)

        draft = await edit(self, change)
        if do in ("save", "save_off"):
            if self.first_run and not any(model.works for model in draft.chosen):
                raise invalid("models", self.words["new_channel.needs_answer"])
            name = await save(self, enabled=do == "save")
            self.done("done_made", self.end_path(name), name=name)
            return
        chosen = sorted((m for m in draft.chosen if m.kind == CHAT), key=lambda m: bool(m.test))
        names = [model.upstream for model in chosen]  # untested models first
        if do.startswith("again="):
            names = [do.partition("=")[2]]
        await test_models(self, names[:MAX_CHOSEN])
        self.redirect(self.step_path(TESTS), status=HTTPStatus.SEE_OTHER)


class NewChannelPage(ChannelWizard):
    """GET and POST /admin/channels/new."""

    async def get(self) -> None:
        step = self.get_query_argument("step", "")
        await self.show_step(int(step) if step in map(str, STEPS) else ACCOUNT)

    async def post(self) -> None:
        await self.take_step()


def step_of(do: str) -> int:
    """Return the step whose form has the button."""
    if do in ("list", "names"):
        return ACCOUNT
    return TESTS if do in ("run", "save", "save_off") or do.startswith("again=") else MODELS


def _unused_name(db: peewee.Database, vendor: str) -> str:
    names = [vendor, *(f"{vendor}-{number}" for number in range(2, MAX_CHOSEN))]
    used = listing.existing(db, "channel", names)
    return next((name for name in names if name not in used), vendor)


def _without_list(db: peewee.Database, draft: Draft) -> None:
    draft.status, draft.error = int(HTTPStatus.NOT_FOUND), draft.error or "no list was requested"


def _own_prices(db: peewee.Database, names: Sequence[str]) -> dict[str, Mapping[str, str]]:
    return {name: listing.show_one(db, "model", name)["price"] for name in names}


def _places_of(
    db: peewee.Database, draft: Draft, names: Sequence[str]
) -> tuple[list[dict[str, Any]], dict[str, list[dict[str, Any]]]]:
    """Return the groups of a draft and, by model, the other enabled channels that serve it."""
    limit = Paging(MAX_OPTIONS)
    chosen = draft.channel.get("groups", [DEFAULT_GROUP])
    groups = [g for g in listing.list_page(db, "group", limit).items if g["name"] in chosen]
    groups = groups or [{"name": DEFAULT_GROUP, "multiplier": "1"}]  # created on save
    channels = listing.list_page(db, "channel", limit).items
    serving = {
        name: [c for c in channels if c["enabled"] and name in c["models"]] for name in names
    }
    return groups, {name: rows for name, rows in serving.items() if rows}


def _take_rows(draft: Draft, submitted: Mapping[str, Sequence[str]]) -> None:
    """Copy the submitted rows into the draft: checkboxes, names and prices."""
    rows, chosen = set(submitted.get("row", ())), set(submitted.get("chosen", ()))
    for model in draft.models:
        if model.upstream not in rows:
            continue
        model.chosen = model.upstream in chosen
        if names := submitted.get(f"name.{model.upstream}"):
            model.name = names[0].strip()
        for cell in CELLS:
            if texts := submitted.get(f"{cell}.{model.upstream}"):
                model.prices[cell] = texts[0].strip()
        model.prices = {cell: text for cell, text in model.prices.items() if text}


def _act(draft: Draft, do: str, factor: str, existing: set[str]) -> None:
    """Perform the action of a button above the table on the chosen models. Raises Refused."""
    if do == "choose":
        for model in draft.models:
            priced = model.prices or model.name in existing
            model.chosen |= bool(priced and model.kind == CHAT)
    acts: Mapping[str, Callable[[DraftModel], None]] = {
        "take": DraftModel.take_list,
        "free": lambda model: model.prices.update(dict.fromkeys(NEEDED, "0")),
        "times": lambda model: times(model, factor),
    }
    if act := acts.get(do):
        for model in draft.chosen:
            if model.name not in existing:
                act(model)
