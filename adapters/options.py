"""The options of a channel: the traits of its models that an operator may set, and their values.

For those who check them before they are stored (``operations.edits``); ``models`` reads
them. Made from the shape of a trait, so that there is one list of them.
"""

from collections.abc import Mapping
from typing import Any, Literal, get_args, get_origin, get_type_hints

import msgspec

from adapters.family.traits import Traits


def _form(kind: Any) -> str:
    """What a trait must be, in words."""
    if get_origin(kind) is tuple:
        return f"a list of at least one, each {_form(get_args(kind)[0])}"
    if get_origin(kind) is Literal:
        return f"one of {', '.join(get_args(kind))}"
    return {bool: "true or false", int: "a whole number above 0"}[kind]


OPTIONS: Mapping[str, str] = {name: _form(kind) for name, kind in get_type_hints(Traits).items()}
"""The options of a channel, each with what it must be, in words."""


def is_option(name: str, value: object) -> bool:
    """Whether an option of a channel may have this value."""
    try:
        msgspec.convert({name: value}, Traits)
    except msgspec.ValidationError:
        return False
    if name not in OPTIONS or value == []:
        return False
    return not isinstance(value, int) or value is False or value > 0
