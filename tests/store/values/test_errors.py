"""The store's own errors."""

from store.values import errors


def test_refused_holds_every_fault():
    refused = errors.Refused(("one", "two"))
    assert refused.faults == ["one", "two"]
    assert str(refused) == "one; two"


def test_an_unknown_outcome_is_an_unavailable_store():
    assert issubclass(errors.OutcomeUnknown, errors.StoreUnavailable)
    for name in ("StoreUnavailable", "Conflict", "NotFound", "Refused"):
        assert issubclass(getattr(errors, name), errors.StoreError)
