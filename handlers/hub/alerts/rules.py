"""Alert rules: the form with its preview, enabling and disabling, and the JSON API."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from handlers.hub.alerts.owner import AlertApi, AlertPage
from handlers.hub.web.base import Failure, invalid, or_refused
from store.alerts import destinations, evaluation, kinds, preview, rules
from store.alerts.preview import Preview
from store.alerts.rules import OWNER, Rule
from store.db.versions import Outdated, outdated_of
from store.values.errors import Refused

AGAIN_CHOICES = (60, 360, 1440)
"""The form's choices for the minutes between two messages about the same object."""


def setting_values(kind: str, texts: Mapping[str, str]) -> dict[str, Any]:
    """Return the submitted settings of a kind, unchecked."""
    values: dict[str, Any] = {}
    for name in kinds.KINDS[kind].settings:
        if name == "names":
            parts = texts.get(name, "").replace("\n", ",").split(",")
            values[name] = [part.strip() for part in parts if part.strip()]
        elif texts.get(name, ""):
            values[name] = texts[name].strip()
    return values


class RuleForm(AlertPage):
    """The form of a new or existing rule."""

    async def get(self, rule_id: str = "") -> None:
        rule = await self._stored(rule_id)
        kind = self.get_query_argument("kind", "") or (rule.kind if rule else kinds.BALANCE)
        offered = self._offered()
        kind = kind if kind in offered else offered[0]
        stored = rule if rule is not None and rule.kind == kind else None
        if stored is not None:
            fields: dict[str, Any] = rules.public(stored)
        else:
            settings = {name: row.default for name, row in kinds.KINDS[kind].settings.items()}
            fields = {"settings": settings, "again_minutes": kinds.AGAIN_MINUTES}
            fields["destinations"] = list(rule.destinations) if rule else None
        fields["version"] = await self.store(rules.version_of, rule_id) if rule else ""
        await self._show(rule_id, kind, fields, {})

    @or_refused
    async def post(self, rule_id: str = "") -> None:
        deed = self.get_body_argument("do", "save")
        fields = self._fields()
        if deed == "preview":
            await self._show(rule_id, fields["kind"], fields, {})
            return
        version = fields.pop("version") or None
        owner_id, actor = self.owner_id, self.me.user
        if deed == "test":
            count = await self.store(self._send_test, fields)
            self.done("done_rule_test", count=count)
        elif rule_id:
            await self.store(rules.change, owner_id, rule_id, fields, actor, version=version)
            self.done("done_rule_saved")
        else:
            await self.store(rules.create, owner_id, fields, actor)
            self.done("done_rule_made")

    async def refuse(self, failure: Failure, rule_id: str = "") -> None:
        """Render the form with its problems."""
        problems = failure.problems or {failure.field or "": failure.message}
        fields = self._fields()
        if outdated := outdated_of(failure):
            fields |= {**outdated.merged, "version": outdated.last.id}
            problems = {}
        await self._show(rule_id, fields["kind"], fields, problems, outdated)

    async def _stored(self, rule_id: str) -> Rule | None:
        return await self.store(rules.show, self.owner_id, rule_id) if rule_id else None

    def _offered(self) -> list[str]:
        own = bool(self.owner_id)
        return [name for name, row in kinds.KINDS.items() if row.own or not own]

    def _fields(self) -> dict[str, Any]:
        argument = self.get_body_argument
        kind = argument("kind", "")
        if kind not in self._offered():
            raise invalid("kind", f"kind must be one of {', '.join(self._offered())}")
        names = ("below", "state", "minutes", "percent", "calls", "above", "window", "of", "names")
        settings = setting_values(kind, {name: argument(name, "") for name in names})
        again = argument("again", "")
        return {
            "kind": kind,
            "settings": settings,
            "destinations": self.get_body_arguments("to"),
            "again_minutes": int(again) if again in map(str, AGAIN_CHOICES) else AGAIN_CHOICES[0],
            "version": argument("version", ""),
        }

    def _send_test(self, db: Any, fields: Mapping[str, Any]) -> int:
        kind, owner_id = fields["kind"], self.owner_id
        settings = kinds.checked(kind, fields["settings"], own=bool(owner_id))
        to = fields["destinations"]
        sample = Rule("", owner_id, kind, settings, to, 0, False, 0, "", None)
        return evaluation.send_test(db, sample, self.me.user_id)

    async def _show(
        self,
        rule_id: str,
        kind: str,
        fields: Mapping[str, Any],
        problems: Mapping[str, str],
        outdated: Outdated | None = None,
    ) -> None:
        owner_id = self.owner_id
        settings = kinds.KINDS[kind].settings
        inputs = {name: _text(fields["settings"].get(name, "")) for name in settings}
        past: Preview | None = None
        try:
            checked = kinds.checked(kind, fields["settings"], own=bool(owner_id))
            past = await self.store(preview.preview, owner_id, kind, checked)
        except Refused as refused:
            problems = {**dict(zip(refused.fields, refused.faults, strict=False)), **problems}
        problems = {name: self.in_words(text) for name, text in problems.items()}
        places = await self.store(destinations.listed, owner_id)
        chosen = fields["destinations"]
        if chosen is None:
            chosen = [place.id for place in places] or [OWNER]
        spender = ("user", "key") if owner_id else ("gateway", "user", "key", "group")
        beside = {*inputs, "kind", "destinations", "again_minutes"}
        self.show_alerts(
            "rule",
            rule_id=rule_id,
            version=fields["version"],
            outdated=outdated,
            kind=kind,
            offered=self._offered(),
            inputs=inputs,
            problems=problems,
            above=[text for name, text in problems.items() if name not in beside],
            places=places,
            chosen=chosen,
            owners_mail=bool(owner_id) or kinds.KINDS[kind].own,
            windowed=kinds.KINDS[kind].windowed,
            spenders=spender,
            again=fields["again_minutes"],
            AGAIN_CHOICES=AGAIN_CHOICES,
            preview=past,
        )


def _text(value: Any) -> str:
    return ", ".join(value) if isinstance(value, list) else str(value)


class SwitchRuleForm(AlertPage):
    """Enables and disables a rule."""

    async def get(self, rule_id: str, action: str) -> None:
        self.redirect(self.path(), status=HTTPStatus.SEE_OTHER)

    async def post(self, rule_id: str, action: str) -> None:
        fields = {"enabled": action == "enable"}
        await self.store(rules.change, self.owner_id, rule_id, fields, self.me.user)
        back = "disable" if action == "enable" else "enable"
        word = "done_rule_on" if action == "enable" else "done_rule_off"
        self.say(self.words[f"alerts.{word}"], self.path(f"/rules/{rule_id}/{back}"))
        self.redirect(self.path(), status=HTTPStatus.SEE_OTHER)


class RemoveRuleForm(AlertPage):
    """The question before a rule is removed."""

    async def get(self, rule_id: str) -> None:
        rule = await self.store(rules.show, self.owner_id, rule_id)
        action = self.path(f"/rules/{rule_id}/remove")
        self.show_alerts("remove", name=self.sentence(rule), what="rule", action=action)

    async def post(self, rule_id: str) -> None:
        rule = await self.store(rules.show, self.owner_id, rule_id)
        await self.store(rules.remove, self.owner_id, rule_id, self.me.user)
        self.done("done_removed", name=self.sentence(rule))


class RulesApi(AlertApi):
    """GET and POST /api/alerts/rules."""

    async def get(self) -> None:
        rows = await self.store(rules.listed, self.owner_id)
        self.answer_list([rules.public(row) for row in rows])

    async def post(self) -> None:
        rule_id = await self.store(rules.create, self.owner_id, self.body(), self.me.user)
        row = await self.store(rules.show, self.owner_id, rule_id)
        self.answer(rules.public(row), HTTPStatus.CREATED)


class RuleApi(AlertApi):
    """GET, PATCH and DELETE /api/alerts/rules/ID."""

    async def get(self, rule_id: str) -> None:
        rule = await self.store(rules.show, self.owner_id, rule_id)
        version = await self.store(rules.version_of, rule_id)
        self.answer({**rules.public(rule), "version": version})

    async def patch(self, rule_id: str) -> None:
        version = self.version_in(fields := self.body())
        await self.store(
            rules.change, self.owner_id, rule_id, fields, self.me.user, version=version
        )
        await self.get(rule_id)

    async def delete(self, rule_id: str) -> None:
        await self.store(rules.remove, self.owner_id, rule_id, self.me.user)
        self.answer_nothing()


class PreviewApi(AlertApi):
    """POST /api/alerts/preview: the preview of a kind with its settings. Changes nothing."""

    change_scope = "read"

    async def post(self) -> None:
        body, owner_id = self.body(), self.owner_id
        kind, settings = body.get("kind"), body.get("settings", {})
        if not isinstance(kind, str) or not isinstance(settings, dict):
            raise invalid("kind", "kind must be a string, settings an object")

        def work(db: Any) -> Preview | None:
            checked = kinds.checked(kind, settings, own=bool(owner_id))
            return preview.preview(db, owner_id, kind, checked)

        self.answer(preview.to_public(await self.store(work)))
