"""The table of kinds: defaults are valid for their types, and secrets stay masked."""

import pytest

from store.admin.kinds import KINDS, REQUIRED
from store.db.audit import SECRET_FIELDS
from store.values.fields import Optional


@pytest.mark.parametrize("kind", KINDS)
def test_defaults_are_valid_and_can_be_shown(kind):
    assert KINDS[kind].fields
    for name, field in KINDS[kind].fields.items():
        if field.default is REQUIRED:
            continue
        if field.default is None and not isinstance(field.type, Optional):
            assert name in ("secret", "starts_at", "expires_at")  # filled in by plan.py
            continue
        assert field.type.parse(field.type.plain(field.default)) == field.default, name


def test_secret_fields_are_those_that_the_audit_log_masks():
    secret = {n for kind in KINDS.values() for n, field in kind.fields.items() if field.secret}
    assert secret == SECRET_FIELDS


def test_shared_ids_are_ids_or_beginnings_of_ids():
    shared = KINDS["channel"].fields["shared_ids"].type
    kept = ["vs_*", "file-abc", "cachedContents/*", "*"]
    assert shared.parse(kept) == kept
    for wrong in ("", "a b", "a,b", "a*b", "**", "é", "x" * 257):
        with pytest.raises(ValueError, match="visible ASCII"):
            shared.parse([wrong])


def test_features_of_a_group_are_words_of_the_list():
    features = KINDS["group"].fields["features"].type
    assert features.parse(features.from_text("*,-web_search")) == ["*", "-web_search"]
    assert features.parse([]) == []
    with pytest.raises(ValueError, match='element 2 there is no feature "web_serach"; did you'):
        features.parse(["*", "-web_serach"])
