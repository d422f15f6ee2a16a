"""Edits of what the document of `apply` holds: users, groups, models, channels, plans, keys."""

from collections.abc import Mapping

import peewee

from adapters.options import OPTIONS, is_option
from adapters.registry import VENDORS
from store.admin.apply import Editor
from store.admin.objects import Sealing
from store.admin.plan import Upstreams

_UPSTREAMS = Upstreams(
    {name: vendor.families for name, vendor in VENDORS.items()}, OPTIONS, is_option
)


def editor(
    db: peewee.Database,
    sealing: Sealing,
    actor: str,
    environ: Mapping[str, str] | None = None,
    *,
    remote: bool = False,
) -> Editor:
    """What makes changes in the name of `actor`, as the audit log names it; `environ`: where
    values env:NAME of single edits are read from; `remote`: the actor asks over HTTP."""
    return Editor(db, sealing, _UPSTREAMS, actor, environ, remote=remote)
