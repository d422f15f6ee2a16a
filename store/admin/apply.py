"""Administrative changes: whole documents and single edits, by the same code.

Each is one transaction, all or nothing: the rows, an audit row for every object with secrets
masked, and the change log that running gateways read. Blocking; for commands and the Hub.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import peewee

from store.admin import plan as planning
from store.admin.document import Document, Entry, Identity, label
from store.admin.edits import entry_of_texts, entry_of_values, faults_by_field, with_identity
from store.admin.kinds import plain
from store.admin.objects import Sealing, Stored, StoreState, Writer, find, load
from store.admin.plan import CREATE, REMOVE, PlanStep, Upstreams
from store.catalog import keys
from store.db import audit, changes, versions
from store.db.database import database_ms, first_row, snapshot_read, transaction
from store.db.tables.usage import UsageByKey
from store.db.tables.users import ApiKey, User
from store.hub import administrators
from store.values.errors import Conflict, Refused, refuse
from store.values.texts import DOTS

CATALOG_KINDS = frozenset({"model", "group", "channel"})
NOBODY = ""  # an id that no user has


@dataclass(frozen=True, slots=True)
class ObjectChange:
    """A changed object. `action` is create, update or remove."""

    kind: str
    name: str
    action: str


@dataclass(frozen=True, slots=True)
class MadeKey:
    """A created key. `secret` is None if it was given, since its owner already has it."""

    id: str
    user: str
    name: str
    secret: str | None = field(repr=False)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of an edit, or of its dry run, which creates no `keys`. `warnings` are about
    entries of a document that are valid but probably do not work as intended."""

    changes: list[ObjectChange]
    keys: list[MadeKey]
    warnings: list[str] = field(default_factory=list)


class Editor:
    """An editor of administered objects in the name of an actor.

    `upstreams` has the valid properties of channels. Edits are texts of the command line; their
    env: values are read from `environ` and file: values from the current folder. With `remote`, the
    actor uses HTTP and must not learn anything about this machine, and edits are values of a
    document.
    """

    def __init__(
        self,
        db: peewee.Database,
        sealing: Sealing,
        upstreams: Upstreams,
        actor: str,
        environ: Mapping[str, str] | None = None,
        *,
        remote: bool = False,
    ) -> None:
        self._db = db
        self._sealing = sealing
        self._upstreams = upstreams
        self._actor = actor
        self._environ = environ or {}
        self._remote = remote

    def apply(
        self,
        document: Document,
        *,
        prune: bool = False,
        dry_run: bool = False,
        faults: Sequence[str] = (),
        begun_on: Mapping[tuple[str, str], str] | None = None,
    ) -> Outcome:
        """Change the store to match the document. Idempotent. Raises Refused with all faults,
        including `faults` from reading the document. `begun_on`: the versions it is based on, by
        kind and name. Raises Outdated if others have changed one of these objects since."""
        warnings: list[str] = []

        def plan(state: StoreState) -> list[PlanStep]:
            try:
                steps = self._plan(state, document, prune=prune)
            except Refused as error:
                raise Refused([*faults, *error.faults]) from None
            refuse(faults)
            for step in steps:
                version = (begun_on or {}).get((step.kind, "/".join(step.identity)))
                if version is not None:
                    self._require_version(step, version)
            warnings[:] = planning.warnings_of(planning.final_fields(state, steps), document)
            return steps

        # First without the write lock, as in _carry_out_alone; this also finds faults early.
        planned = snapshot_read(self._db, lambda: plan(load(self._db)))
        outcome = Outcome(_changes(planned), []) if dry_run else self._carry_out(plan)
        return replace(outcome, warnings=warnings)

    def create(self, kind: str, name: str | None, edits: Mapping[str, Any]) -> Outcome:
        """Create an object. Raises Conflict if it exists, and Refused with the invalid fields.

        A key or a subscription also needs `user`, or a name written USER/NAME. If `name` is None,
        it is in the edits.
        """
        if name is not None:
            edits = with_identity(kind, name, edits)

        def plan(state: StoreState) -> list[PlanStep]:
            entry = self._entry(kind, edits, None)
            existing = state[kind].get(entry.identity)
            if existing is not None:
                remedy = " and is revoked; choose another name" if existing.revoked else ""
                raise Conflict(f"{label(kind, entry.identity)} exists{remedy}")
            self._refuse_used_secret(entry)
            return self._plan(state, [entry])

        owner = _named(edits.get("user", "")) if kind == "key" else None
        with faults_by_field():
            return self._carry_out_alone(plan, self._owner(kind, owner))

    def change(
        self, kind: str, name: str, edits: Mapping[str, Any], version: str | None = None
    ) -> Outcome:
        """Change fields of an object. `version`: the version of the object on which the edits are
        based. Raises Outdated if others have changed the object since, NotFound, and Refused as
        `create` does.

        For commands, `price.input` changes one price, `models.NAME` one name of a channel's map (no
        value: remove it). Other values replace the stored ones.
        """

        def plan(state: StoreState) -> list[PlanStep]:
            stored = find(state, kind, name)
            entry = self._entry(kind, edits, stored)
            if stored.revoked:
                raise Refused([f"{label(kind, stored.identity)} is revoked; that is final"])
            steps = self._plan(state, [entry])
            if version is not None and steps:
                self._require_version(steps[0], version)
            return steps

        owner = None
        if kind == "user":
            owner = _named(name)
        elif kind == "key" and "secret" not in edits:
            owner = ApiKey.select(ApiKey.user_id).where(ApiKey.id == name)
        with faults_by_field():
            return self._carry_out_alone(plan, self._owner(kind, owner))

    def _require_version(self, step: PlanStep, version: str) -> None:
        """Raise Outdated unless the object of a step has this version."""
        if step.stored is not None:
            named = (step.kind, "/".join(step.identity))
            fields = plain(step.kind, step.stored.fields)
            versions.require(self._db, named, version, fields, plain(step.kind, step.fields))

    def _entry(self, kind: str, edits: Mapping[str, Any], stored: Stored | None) -> Entry:
        if self._remote:
            return entry_of_values(kind, edits, stored)
        return entry_of_texts(kind, edits, stored, self._environ)

    def _owner(self, kind: str, query: Any) -> str | None:
        """Return the id of the user whose users, keys and subscriptions must be loaded, found by a
        query. NOBODY for objects that belong to no user and are neither renamed nor removed; None
        for all users."""
        if kind in CATALOG_KINDS:
            return NOBODY
        row = None if query is None else first_row(self._db, query)
        return None if row is None else str(row[0])

    def _carry_out_alone(
        self, plan: Callable[[StoreState], list[PlanStep]], owner_id: str | None
    ) -> Outcome:
        """Carry out a plan after making it once without the write lock, so that slow password
        hashes are ready before the lock blocks others."""
        snapshot_read(self._db, lambda: plan(load(self._db, owner_id)))
        return self._carry_out(plan, owner_id)

    def _refuse_used_secret(self, entry: Entry) -> None:
        """Raise Refused if an entry's secret is in use. The plan knows only the loaded secrets."""
        secret = entry.fields.get("secret")
        if secret is not None and keys.in_use(self._db, secret, self._sealing.peppers) is not None:
            raise Refused([entry.fault("secret", planning.IN_USE)])

    def set_enabled(self, kind: str, name: str, enabled: bool) -> Outcome:
        """Enable or disable an object. Does nothing if that is its state already. A channel that is
        enabled no longer drains. Raises NotFound, Refused."""
        edits = {"enabled": enabled}
        if enabled and kind == "channel":
            edits["draining"] = False
        return self._switch(kind, name, edits)

    def drain(self, name: str) -> Outcome:
        """Stop giving a channel new calls until it is enabled. Running calls continue. Raises
        NotFound."""
        return self._switch("channel", name, {"draining": True})

    def _switch(self, kind: str, name: str, edits: Mapping[str, bool]) -> Outcome:
        if self._remote:
            return self.change(kind, name, edits)
        return self.change(kind, name, {field: str(on).lower() for field, on in edits.items()})

    def remove(self, kind: str, name: str) -> Outcome:
        """Remove an object. The subscriptions of a user are removed with the user. Raises NotFound,
        and Refused while other objects refer to it."""

        def plan(state: StoreState) -> list[PlanStep]:
            stored = find(state, kind, name)
            steps = [
                PlanStep(REMOVE, item.kind, item.identity, item)
                for item in (*_subscriptions_of(state, stored), stored)
            ]
            faults: list[str] = []
            planning.judge(state, steps, self._upstreams, faults)
            refuse(faults)
            return steps

        return self._carry_out(plan)

    def _plan(
        self, state: StoreState, document: Document, *, prune: bool = False
    ) -> list[PlanStep]:
        at_ms, remote = database_ms(self._db), self._remote
        steps = planning.make_plan(
            state, document, self._sealing, self._upstreams, at_ms=at_ms, prune=prune, remote=remote
        )
        self._refuse_names(steps)
        if remote:
            planning.refuse_moves(steps)
        return steps

    def _refuse_names(self, steps: list[PlanStep]) -> None:
        """Raise Refused for a new user with a removed user's name, who would see that user's calls,
        and for a new name that cannot be in the address of a page."""
        faults = []
        for step in steps:
            if step.action == CREATE and step.identity[-1] in DOTS:
                faults.append(f"{step.named.where()}: name: must not be . or ..")
            if step.kind == "user" and step.action == CREATE:
                name = step.identity[0]
                called = UsageByKey.select(UsageByKey.user).where(UsageByKey.user == name)
                if first_row(self._db, called.limit(1)) is not None:
                    faults.append(
                        f"{step.named.where()}: calls of an earlier user of this name are recorded;"
                        " choose another name"
                    )
        refuse(faults)

    def _carry_out(
        self, plan: Callable[[StoreState], list[PlanStep]], owner_id: str | None = None
    ) -> Outcome:
        def work() -> Outcome:
            # Administrators are serialized, so that each decides on the current state.
            changes.lock(self._db)
            state = load(self._db, owner_id)
            steps = plan(state)
            if any(step.kind == "user" for step in steps):
                with administrators.keep_one(self._db):
                    return self._execute(state, steps)
            return self._execute(state, steps)

        return transaction(self._db, work, marked=True)

    def _execute(self, state: StoreState, steps: list[PlanStep]) -> Outcome:
        ids = {
            (kind, identity): stored.id
            for kind, objects in state.items()
            for identity, stored in objects.items()
        }
        writer = Writer(self._db, self._sealing, ids, self._actor, self._remote)
        refs: dict[str, list[str]] = {changes.CATALOG: [], changes.KEYS: []}
        keys_made = []
        for step in steps:
            object_id = self._write(writer, step)
            log = changes.CATALOG if step.kind in CATALOG_KINDS else changes.KEYS
            refs[log] += _refs(state, ids, step, object_id)
            if step.kind == "key" and step.action == CREATE:
                user, name = step.identity
                secret = step.fields["secret"] if step.made_secret else None
                keys_made.append(MadeKey(object_id, user, name, secret))
        for log, changed in refs.items():
            if changed:
                changes.bump(self._db, log, list(dict.fromkeys(changed)))
        return Outcome(_changes(steps), keys_made)

    def _write(self, writer: Writer, step: PlanStep) -> str:
        before = after = None
        if step.stored is None:
            object_id = writer.insert(step.kind, step.identity, step.fields)
            after = plain(step.kind, step.fields)
        elif step.action == REMOVE:
            object_id = step.stored.id
            writer.delete(step.stored)
            before = plain(step.kind, step.stored.fields)
        else:
            object_id = step.stored.id
            writer.update(step.stored, step.fields)
            old = {name: step.stored.fields[name] for name in step.fields}
            before, after = plain(step.kind, old), plain(step.kind, step.fields)
        name = "/".join(step.identity)
        audit.write(self._db, audit.Act(self._actor, step.action, step.kind, name, before, after))
        return object_id


def _named(user: object) -> Any:
    return User.select(User.id).where(User.name == user)


def _subscriptions_of(state: StoreState, owner: Stored) -> list[Stored]:
    if owner.kind != "user":
        return []
    return [item for item in state["subscription"].values() if item.identity[:1] == owner.identity]


def _refs(
    state: StoreState, ids: Mapping[tuple[str, Identity], str], step: PlanStep, object_id: str
) -> list[str]:
    """Return the ids under which a change is logged. Gateways know plans and subscriptions by
    users."""
    if step.kind == "subscription":
        return [ids["user", step.identity[:1]]]
    if step.kind == "plan":
        # New subscriptions have their own steps.
        stored = state["subscription"].values()
        return [item.row["user_id"] for item in stored if item.identity[1:] == step.identity]
    return [object_id]


def _changes(steps: list[PlanStep]) -> list[ObjectChange]:
    return [ObjectChange(step.kind, "/".join(step.identity), step.action) for step in steps]
