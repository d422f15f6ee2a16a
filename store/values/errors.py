"""What can go wrong in the store, in the store's own words.

Every public function of store/ raises only these (and ValueError for impossible arguments).
Driver errors are turned into them in one place, `database.classify`. Status codes and wire
envelopes are the business of handlers. Anyone may import this module; it imports nothing.
"""

from collections.abc import Sequence


class StoreError(Exception):
    """The store did not do what was asked; the message says the fact and, if known, the cure."""


class StoreUnavailable(StoreError):
    """The database cannot be reached or used now; nothing of the transaction has happened."""


class ReadOnly(StoreUnavailable):
    """The database's server takes no writes now, so none was sent; reads go on."""


class OutcomeUnknown(StoreUnavailable):
    """The connection ended during COMMIT: the transaction may or may not have happened."""


class Conflict(StoreError):
    """A row with the same identity is already there."""


class NotFound(StoreError):
    """No object of that kind has that name or id."""


class Refused(StoreError):
    """Input that was not accepted: `faults` holds every reason, one sentence each. `fields`: for
    each fault the field it is about, "" for none; empty when that is not known."""

    def __init__(self, faults: Sequence[str], fields: Sequence[str] = ()) -> None:
        super().__init__("; ".join(faults))
        self.faults = list(faults)
        self.fields = list(fields)

    @property
    def field(self) -> str | None:
        """Return the first field that a fault is about, if any is known."""
        return next(filter(None, self.fields), None)


def refuse(faults: Sequence[str]) -> None:
    """Raise Refused if there are faults."""
    if faults:
        raise Refused(faults)
