"""Asks of a request: what it wants beyond text and functions, as far as money and rights need it.

A family's ``client.peek`` fills them in; most requests have ``NOTHING_ASKED``. Imported by the
families and the relay.
"""

from adapters.json.jsonio import Struct
from store.values.usage import NOT_REPORTED, Served


class Ask(Struct, frozen=True, gc=False):
    """A feature (``store.values.features``) that a request asks for, and the path of the field.

    ``word``: the value as the client wrote it, of tiers and the like. ``droppable``: a hosted tool
    that is not forced, so that a translation can leave it out.
    """

    feature: str
    path: str
    word: str = ""
    droppable: bool = False


class Asks(Struct, frozen=True, gc=False):
    """All that a request asks for.

    ``conditions``: of service, empty for the vendor's default (also of a tier ``auto``).
    ``uses``: meters of hosted tools, each with the most uses that the request allows. ``outputs``:
    meters of other modalities that the answer may have. ``models``: path and public name of other
    models that may work inside the call.
    """

    features: tuple[Ask, ...] = ()
    conditions: Served = NOT_REPORTED
    uses: tuple[tuple[str, int], ...] = ()
    outputs: tuple[str, ...] = ()
    models: tuple[tuple[str, str], ...] = ()


NOTHING_ASKED = Asks()
USES_WITHOUT_BOUND = 5
"""Uses of a hosted tool that a hold takes when the request sets no bound."""
