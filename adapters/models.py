"""The table of models: what an upstream's model can take, by vendor and the beginning of its name.

A row is a fact of the vendor's documentation. The longest prefix of the vendor wins; a channel's
``options`` override single traits. Imported by the registry, the relay and commands.
"""

from collections.abc import Mapping
from functools import lru_cache

import msgspec

from adapters.family.traits import Traits

# (vendor, "" for any; family; beginning of the upstream's name of the model) -> traits
TABLE: dict[tuple[str, str, str], Traits] = {}


def traits_of(
    vendor: str, family: str, model: str, options: Mapping[str, object] | None = None
) -> Traits:
    """What a model can take; ``options`` are a channel's. Raises msgspec.ValidationError for
    options that are none."""
    traits = _of_table(vendor, family, model)
    if not options:
        return traits
    return msgspec.convert(msgspec.to_builtins(traits) | dict(options), Traits)


@lru_cache(maxsize=1024)
def _of_table(vendor: str, family: str, model: str) -> Traits:
    """The row with the longest prefix; one of the vendor goes before one of any."""
    name = model.rpartition("/")[2]
    rows = [
        (len(prefix), bool(of), traits)
        for (of, spoken, prefix), traits in TABLE.items()
        if spoken == family and of in ("", vendor) and name.startswith(prefix)
    ]
    return max(rows, key=lambda row: row[:2])[2] if rows else Traits()
