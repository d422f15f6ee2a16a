"""The changes of a document: compares it with the store and checks every reference. Warns about
entries that probably do not work as intended. Refuses to send a channel's secrets elsewhere.

Pure: no database, nothing is written. `apply.py` loads the state and carries a plan out.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlsplit

from store.admin.document import Document, Entry, Identity, label
from store.admin.kinds import DEFAULT_GROUP, KINDS, REQUIRED
from store.admin.objects import Sealing, Stored, StoreState
from store.values.errors import refuse
from store.values.ids import DAY_MS
from store.values.key_secrets import digests, make_secret
from store.values.passwords import FAULTS, fault_of
from store.values.texts import nearest, version_at_end
from store.values.times import MAX_INSTANT_MS

CREATE = "create"
UPDATE = "update"
REMOVE = "remove"

EVERYTHING = "*"
IN_USE = "it is in use by another key"
_PORTS = {"http": 80, "https": 443}

Vendors = Mapping[str, frozenset[str]]
"""Vendor name -> the families that its upstreams speak."""


@dataclass(frozen=True, slots=True)
class Upstreams:
    """The properties of channels that the wire formats define: vendors, and the `options` of a
    channel, each with a description of its values, and a function that checks a value (name,
    value). `any_version`: the vendors whose base URL may have a version."""

    vendors: Vendors
    options: Mapping[str, str] = field(default_factory=dict)
    fits: Callable[[str, object], bool] = lambda name, value: True
    any_version: frozenset[str] = frozenset()


FinalFields = dict[tuple[str, Identity], Mapping[str, Any]]
"""The fields of every object, by kind and identity."""


@dataclass(frozen=True, slots=True)
class PlanStep:
    """A change. `fields` are written (for a new object: all of them), `stored` is the object
    before."""

    action: str
    kind: str
    identity: Identity
    stored: Stored | None = None
    fields: Mapping[str, Any] = field(default_factory=dict, repr=False)
    made_secret: bool = False
    entry: Entry | None = None

    @property
    def named(self) -> Entry:
        """Return the entry, or one that only has the object's name, for faults."""
        return self.entry or Entry(self.kind, self.identity, {})


def make_plan(
    state: StoreState,
    document: Document,
    sealing: Sealing,
    upstreams: Upstreams,
    *,
    at_ms: int,
    prune: bool = False,
    remote: bool = False,
) -> list[PlanStep]:
    """Return the steps from the state to the document, removals first. Raises Refused with all
    faults.

    `prune`: remove everything that is not in the document, except revoked keys of remaining users.
    `at_ms`: the current time, which is the start of new subscriptions without one, and decides
    which prices are in force. `remote`: the request came over HTTP. Otherwise a proxy that was set
    over HTTP is written again even if it is the same.
    """
    faults: list[str] = []
    steps = _removals(state, document) if prune else []
    for entry in document:
        entry = _in_force(entry, at_ms)
        step = _step(state[entry.kind].get(entry.identity), entry, sealing, faults, remote=remote)
        if step is not None:
            steps.append(step)
    final = final_fields(state, steps)
    steps = [_timed(step, final, at_ms, faults) for step in steps]
    judge(state, steps, upstreams, faults)
    _judge_secrets(state, steps, sealing, faults)
    refuse(faults)
    return steps


def judge(
    state: StoreState, steps: list[PlanStep], upstreams: Upstreams, faults: list[str]
) -> None:
    """Add a fault for each dangling reference that the steps would leave, and for each invalid
    upstream."""
    final = final_fields(state, steps)
    removed = {(step.kind, step.identity) for step in steps if step.action == REMOVE}
    touched = {(step.kind, step.identity): step for step in steps if step.action != REMOVE}
    names: dict[str, list[str]] = {kind: [] for kind in KINDS}
    for kind, identity in final:
        names[kind].append(identity[-1])
    for (kind, identity), fields in final.items():
        step = touched.get((kind, identity))
        for where, target, name in _references(kind, identity, fields):
            goal = (target, (name,))
            if goal in final:
                continue
            if goal in removed:
                user = label(kind, identity)
                faults.append(f"{label(*goal)} cannot be removed: {user} refers to it")
            elif step is not None and where not in step.named.bad:
                hint = nearest(name, names[target])
                faults.append(step.named.fault(where, f'there is no {target} "{name}"{hint}'))
    for step in touched.values():
        if step.kind == "channel":
            _judge_vendor(step, final[step.kind, step.identity], upstreams, faults)
            _judge_options(step, upstreams, faults)


def _in_force(entry: Entry, at_ms: int) -> Entry:
    """Return the entry with the price to which its changes have led by now. Future changes remain
    changes, so that a document may be applied again after their time has come."""
    changes = entry.fields.get("price_changes", ())
    past = [change for change in changes if change[0] <= at_ms]
    if not past:
        return entry
    fields = {**entry.fields, "price_changes": list(changes[len(past) :])}
    _, fields["price"], fields["rate"] = past[-1]
    fields["price_source"] = None
    return replace(entry, fields=fields)


def _removals(state: StoreState, document: Document) -> list[PlanStep]:
    named = {(entry.kind, entry.identity) for entry in document}
    return [
        PlanStep(REMOVE, kind, identity, stored)
        for kind in reversed(list(KINDS))
        for identity, stored in state[kind].items()
        if (kind, identity) not in named and not stored.revoked
    ]


def _step(
    stored: Stored | None, entry: Entry, sealing: Sealing, faults: list[str], *, remote: bool
) -> PlanStep | None:
    if stored is None:
        return _creation(entry, sealing, faults)
    if stored.revoked:
        # Revoking is permanent: a document that still names the key does not restore it.
        return None
    specs = KINDS[entry.kind].fields
    new_fields = {name: value for name, value in entry.fields.items() if not specs[name].once}
    changed = {
        name: value
        for name, value in new_fields.items()
        if not sealing.same(name, stored.fields[name], value)
        or (name == "proxy" and stored.row.get("proxy_guarded") and not remote)
    }
    if not changed:
        return None
    of_prices = {"price", "rate"} & changed.keys() and "price_source" not in new_fields
    if of_prices and stored.fields.get("price_source"):
        changed["price_source"] = None  # they are no longer from that list
    _seal_password(entry, changed, sealing, faults)
    return PlanStep(UPDATE, entry.kind, entry.identity, stored, changed, entry=entry)


def _creation(entry: Entry, sealing: Sealing, faults: list[str]) -> PlanStep:
    fields: dict[str, Any] = {}
    for name, spec in KINDS[entry.kind].fields.items():
        if name in entry.fields:
            fields[name] = entry.fields[name]
        elif spec.default is not REQUIRED:
            fields[name] = spec.default
        elif name not in entry.bad:
            faults.append(f"{entry.where(name)}: {name} is missing")
    _seal_password(entry, fields, sealing, faults)
    is_made = entry.kind == "key" and fields["secret"] is None
    if is_made:
        fields["secret"] = make_secret()
    return PlanStep(CREATE, entry.kind, entry.identity, None, fields, is_made, entry)


def _timed(step: PlanStep, final: FinalFields, at_ms: int, faults: list[str]) -> PlanStep:
    """Return the step of a subscription with both times, which are checked. Return other steps
    unchanged."""
    if step.kind != "subscription" or step.action == REMOVE:
        return step
    key = (step.kind, step.identity)
    starts_ms, expires_ms = final[key]["starts_at"], final[key]["expires_at"]
    plan = final.get(("plan", step.identity[1:]))
    if starts_ms is None:
        starts_ms = at_ms
    if expires_ms is None and plan is not None:
        # Fixed now: later changes of the plan affect only later subscriptions.
        expires_ms = starts_ms + plan["days"] * DAY_MS
    if expires_ms is None:
        return step  # There is no such plan, which is a fault of its own.
    if expires_ms <= starts_ms:
        faults.append(step.named.fault("expires_at", "must be later than starts_at"))
    if expires_ms > MAX_INSTANT_MS:
        faults.append(step.named.fault("expires_at", "would lie beyond the year 9999; give it"))
    if step.action != CREATE:
        return step
    return replace(step, fields={**step.fields, "starts_at": starts_ms, "expires_at": expires_ms})


def _seal_password(
    entry: Entry, fields: dict[str, Any], sealing: Sealing, faults: list[str]
) -> None:
    password = fields.get("password")
    if password is None:
        return
    fault = fault_of(password, entry.identity[-1])
    if fault:
        faults.append(entry.fault("password", FAULTS[fault]))
    else:
        fields["password"] = sealing.password_hash(password)


def final_fields(state: StoreState, steps: list[PlanStep]) -> FinalFields:
    """Return the fields of every object after the steps, without revoked keys, which refer to
    nothing."""
    final: FinalFields = {
        (kind, identity): stored.fields
        for kind, objects in state.items()
        for identity, stored in objects.items()
        if not stored.revoked
    }
    for step in steps:
        key = (step.kind, step.identity)
        if step.action == REMOVE:
            final.pop(key, None)
        else:
            final[key] = {**final.get(key, {}), **step.fields}
    return final


def _references(
    kind: str, identity: Identity, fields: Mapping[str, Any]
) -> Iterator[tuple[str, str, str]]:
    """Yield (field, kind, name) for everything that an object refers to."""
    if kind == "key":
        yield "user", "user", identity[0]
        yield "group", "group", fields["group"]
    if kind == "subscription":
        user, plan = identity
        yield "user", "user", user
        yield "plan", "plan", plan
    if kind == "channel":
        for group in fields["groups"]:
            yield "groups", "group", group
    if kind == "user":
        for group in fields["groups"]:
            if group != DEFAULT_GROUP:  # the group of all users need not exist
                yield "groups", "group", group
    if kind in ("channel", "group", "key"):
        for model in fields["models"]:
            if model != "*":
                yield "models", "model", model


def _judge_vendor(
    step: PlanStep, fields: Mapping[str, Any], upstreams: Upstreams, faults: list[str]
) -> None:
    vendors, vendor, family = upstreams.vendors, fields.get("vendor"), fields.get("family")
    if vendor not in upstreams.any_version and (
        message := version_at_end(fields.get("base_url", ""))
    ):
        faults.append(step.named.fault("base_url", message))
    if vendor is None or family is None:
        # Missing in a new channel, which is already a fault.
        return
    if vendor not in vendors:
        message = f'there is no vendor "{vendor}" (known: {", ".join(vendors)})'
        faults.append(step.named.fault("vendor", message + nearest(vendor, vendors)))
    elif family not in vendors[vendor]:
        spoken = ", ".join(sorted(vendors[vendor]))
        message = f"channels of vendor {vendor} speak {spoken}, not {family}"
        faults.append(step.named.fault("family", message))


def _judge_options(step: PlanStep, upstreams: Upstreams, faults: list[str]) -> None:
    for name, value in step.fields.get("options", {}).items():
        field_name, form = f"options.{name}", upstreams.options.get(name)
        if form is None:
            message = f'there is no option "{name}" (known: {", ".join(upstreams.options)})'
            faults.append(step.named.fault(field_name, message + nearest(name, upstreams.options)))
        elif not upstreams.fits(name, value):
            faults.append(step.named.fault(field_name, f"{name} must be {form}"))


def _judge_secrets(
    state: StoreState, steps: list[PlanStep], sealing: Sealing, faults: list[str]
) -> None:
    removed = {step.identity for step in steps if step.kind == "key" and step.action == REMOVE}
    owners = {
        mark: identity
        for identity, stored in state["key"].items()
        if identity not in removed
        for mark in stored.fields["secret"]
    }
    for step in steps:
        if step.kind != "key" or "secret" not in step.fields:
            continue
        marks = digests(step.fields["secret"], sealing.peppers)
        if any(owners.get(mark, step.identity) != step.identity for mark in marks):
            faults.append(step.named.fault("secret", IN_USE))
        owners |= dict.fromkeys(marks, step.identity)


def warnings_of(final: FinalFields, document: Document) -> list[str]:
    """Return a sentence for each group and model in the document without a channel, and each
    channel in it without keys or with everything shared. `final` is the final contents of the
    store."""
    channels = [fields for (kind, _), fields in final.items() if kind == "channel"]
    grouped = {group for fields in channels for group in fields["groups"]}
    served = {model for fields in channels for model in fields["models"]}
    warnings = []
    for entry in document:
        fields = final.get((entry.kind, entry.identity))
        if fields is None:  # a revoked key
            continue
        name = entry.identity[-1]
        if entry.kind == "group" and name not in grouped:
            warnings.append(
                f"{entry.where()}: no channel has it in its groups: its keys can call nothing"
            )
        if entry.kind == "model" and name not in served:
            warnings.append(f"{entry.where()}: no channel has it in its models: no call gets it")
        if entry.kind == "channel" and not fields["keys"]:
            warnings.append(
                f"{entry.where()}: it has no keys: calls go out without a credential, which is"
                " right only for a server that asks for none"
            )
        if entry.kind == "channel" and EVERYTHING in fields["shared_ids"]:
            warnings.append(
                f"{entry.where()}: its shared_ids are all ids: every user of its groups can use"
                " whatever its account keeps"
            )
        for of_models, what in (("cost", "cost is"), ("model_times", "model_times are")):
            if entry.kind == "channel" and (unused := fields[of_models].keys() - fields["models"]):
                names = ", ".join(sorted(unused))
                warnings.append(
                    f"{entry.where()}: its {what} of models that it does not have: {names}"
                )
    return warnings


def refuse_moves(steps: Sequence[PlanStep]) -> None:
    """Raise Refused, for the field `keys`, if a change over HTTP sends a channel's requests
    elsewhere without giving its keys and headers again, if it has some.

    A person who may change channels in the Hub or by its API may use upstream keys, but not read
    them. A new origin of `base_url`, another `proxy` or other trusted certificates would reveal the
    keys to the server that answers there. Commands run where the keys can be read anyway.
    """
    faults = []
    for step in steps:
        if step.kind != "channel" or step.action != UPDATE or step.entry is None:
            continue
        assert step.stored is not None
        moved = list(_moved(step))
        not_given = [
            name
            for name in ("keys", "extra_headers")
            if step.stored.fields[name] and name not in step.entry.fields
        ]
        if moved and not_given:
            fields, again = " and ".join(moved), " and ".join(not_given)
            message = f"{fields} would send stored secrets to another place; give {again} again"
            faults.append(step.named.fault("keys", message))
    refuse(faults)


def _moved(step: PlanStep) -> Iterator[str]:
    """Yield the changed fields that determine where requests go, or who may answer them."""
    assert step.stored is not None
    for name in ("base_url", "proxy", "ca_file"):
        if name not in step.fields:
            continue
        before, after = step.stored.fields[name], step.fields[name]
        if name == "ca_file" or origin_of(before) != origin_of(after):
            yield name


def origin_of(url: str | None) -> Any:
    """Return scheme, host and port. A login, sealed or not, is not part of it."""
    if url is None:
        return None
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or _PORTS.get(parts.scheme)
