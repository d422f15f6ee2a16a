"""The errors of the store, in its own terms.

Every public function of store/ raises only these (and ValueError for impossible arguments). Driver
errors are translated to them in one place, `database.classify`. Status codes and wire envelopes
belong to handlers. Anyone may import this module; it imports nothing.
"""

from collections.abc import Sequence


class StoreError(Exception):
    """A failure of the store. The message states the fact and, if known, the remedy."""


class StoreUnavailable(StoreError):
    """A database that cannot be reached or used now. Nothing of the transaction was committed."""


class ReadOnly(StoreUnavailable):
    """A database server that takes no writes now, so none was sent. Reads still work."""


class OutcomeUnknown(StoreUnavailable):
    """A connection lost during COMMIT: the transaction may or may not have been committed."""


class Conflict(StoreError):
    """A conflict with an existing row of the same identity."""


class NotFound(StoreError):
    """A name or id that no object of the kind has."""


class Refused(StoreError):
    """Input that was not accepted. `faults` has every reason, one sentence each. `fields` has the
    field of each fault, "" for none; it is empty if the fields are not known."""

    def __init__(self, faults: Sequence[str], fields: Sequence[str] = ()) -> None:
        super().__init__("; ".join(faults))
        self.faults = list(faults)
        self.fields = list(fields)

    @property
    def field(self) -> str | None:
        """Return the first field that has a fault, if any is known."""
        return next(filter(None, self.fields), None)


def refuse(faults: Sequence[str]) -> None:
    """Raise Refused if there are faults."""
    if faults:
        raise Refused(faults)
