"""Rules and destinations: what may be set, by whom, and which part of an address is shown."""

import pytest

from store.admin import secret_use
from store.alerts import destinations, kinds, rules
from store.alerts.rules import GATEWAY, OWNER
from store.db import audit
from store.values.cipher import Cipher
from store.values.errors import NotFound, Refused

HOOK = {"name": "ops", "kind": "webhook", "address": "https://hooks.example.com/sluice"}


@pytest.fixture
def ops(database, cipher):
    """Return the id of a webhook of the gateway."""
    return destinations.create(database, GATEWAY, HOOK, cipher, "tester")[0]


def test_a_rule_is_made_changed_and_removed(database, ops):
    fields = {"kind": "balance", "settings": {"below": "5.00"}, "destinations": [ops, OWNER]}
    rule_id = rules.create(database, GATEWAY, fields, "nadia")
    (rule,) = rules.listed(database, GATEWAY)
    assert rule.settings == {"below": "5", "names": []} and rule.state == "armed"
    rules.change(database, GATEWAY, rule_id, {"enabled": False}, "noor")
    shown = rules.public(rules.show(database, GATEWAY, rule_id))
    assert shown["state"] == "off" and shown["changed_by"] == "noor"
    assert shown["destinations"] == [ops, "owner"] and shown["again_minutes"] == 60
    assert rules.enabled(database) == []
    rules.remove(database, GATEWAY, rule_id, "noor")
    assert rules.listed(database, GATEWAY) == []
    acts = [
        row["action"] for row in audit.entries(database, 10, audit.AuditFilter(kind="alert rule"))
    ]
    assert acts == ["remove", "update", "create"]


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"kind": "weather"}, "kind"),
        ({"kind": "balance", "settings": {"below": "-1"}}, "below"),
        ({"kind": "errors", "settings": {"percent": 0}}, "percent"),
        ({"kind": "errors", "settings": {"minutes": 61}}, "minutes"),
        ({"kind": "spending", "settings": {"of": "team"}}, "of"),
        ({"kind": "key", "settings": {"below": "1"}}, "below"),
        (
            {"kind": "balance", "settings": {"names": ["x"] * 2 + list(map(str, range(60)))}},
            "names",
        ),
        ({"kind": "balance", "settings": []}, "settings"),
        ({"kind": "balance", "destinations": ["01NOBODY"]}, "destinations"),
        ({"kind": "balance", "again_minutes": True}, "again_minutes"),
        ({"kind": "balance", "enabled": 1}, "enabled"),
        ({"kind": "balance", "colour": "red"}, "colour"),
    ],
)
@pytest.mark.databases("sqlite")
def test_what_cannot_be_a_rule_names_its_field(database, fields, field):
    with pytest.raises(Refused) as refused:
        rules.create(database, GATEWAY, fields, "nadia")
    assert refused.value.field == field


@pytest.mark.databases("sqlite")
def test_members_have_rules_of_their_own_alone(database, users, cipher, ops):
    alice, bob = users["alice"], users["bob"]
    own = {"kind": "spending", "settings": {"of": "key", "above": "1"}}
    rule_id = rules.create(database, alice, own, "alice")
    for other in (bob, GATEWAY):
        with pytest.raises(NotFound):
            rules.show(database, other, rule_id)
    for fields in (
        *({"kind": kind} for kind, row in kinds.KINDS.items() if not row.own),
        {"kind": "spending", "settings": {"of": "gateway"}},
        {"kind": "balance", "destinations": [ops]},
    ):
        with pytest.raises(Refused):
            rules.create(database, alice, fields, "alice")
    with pytest.raises(Refused):
        mail = {"name": "m", "kind": "mail", "address": "victim@example.com"}
        destinations.create(database, alice, mail, cipher, "alice")


@pytest.mark.databases("sqlite")
def test_rules_and_destinations_are_bounded(database, users, cipher):
    for _ in range(rules.MAX_OWN_RULES):
        rules.create(database, users["bob"], {"kind": "key"}, "bob")
    for _ in range(destinations.MAX_OWN_DESTINATIONS):
        destinations.create(database, users["bob"], HOOK, cipher, "bob")
    with pytest.raises(Refused, match="20 rules"):
        rules.create(database, users["bob"], {"kind": "key"}, "bob")
    with pytest.raises(Refused, match="10 destinations"):
        destinations.create(database, users["bob"], HOOK, cipher, "bob")


@pytest.mark.parametrize(
    ("kind", "address", "chat", "masked"),
    [
        ("webhook", "https://h.example/sluice?token=abc", "", "https://h.example/sluice?••••"),
        ("slack", "https://hooks.slack.com/services/T02/B7K/s3", "",
         "https://hooks.slack.com/services/T02/B7K/••••"),
        ("feishu", "https://open.feishu.cn/open-apis/bot/v2/hook/s3", "",
         "https://open.feishu.cn/open-apis/bot/v2/hook/••••"),
        ("dingtalk", "https://oapi.dingtalk.com/robot/send?access_token=s3", "",
         "https://oapi.dingtalk.com/robot/••••?••••"),
        ("telegram", "7731234567:AAH-abcdefghijk", "-1002345", "bot 7731…, chat -1002…"),
        ("mail", "noc@example.com, a@example.com", "", "noc@example.com, a@example.com"),
    ],
)  # fmt: skip
@pytest.mark.databases("sqlite")
def test_addresses_are_sealed_and_masked(database, cipher, kind, address, chat, masked):
    fields = {"name": "n", "kind": kind, "address": address, "chat": chat}
    found, secret = destinations.create(database, GATEWAY, fields, cipher, "nadia")
    assert destinations.show(database, GATEWAY, found).masked == masked
    opened = destinations.address_of(database, found, cipher)
    assert opened.secret == secret and bool(secret) == (kind == "webhook")
    assert address in (opened.url, ", ".join(opened.mail)) or kind == "telegram"
    if kind == "telegram":
        assert opened.url == f"https://api.telegram.org/bot{address}/sendMessage"


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"address": "ftp://x.example"}, "address"),
        ({"address": "https://user:pw@x.example/"}, "address"),
        ({"address": "https://"}, "address"),
        ({"address": "https://x.example/\r\nX: y"}, "address"),
        ({"address": "https://x.example:99999/"}, "address"),
        ({"kind": "pager"}, "kind"),
        ({"name": " "}, "name"),
        ({"address": 7}, "address"),
        ({"kind": "telegram", "address": "7731234567:AAH-abcdefghijk"}, "chat"),
        ({"kind": "mail", "address": "a@b.example\r\nBcc: c@d.example"}, "address"),
        ({"kind": "mail", "address": " ".join(f"a{n}@b.example" for n in range(11))}, "address"),
    ],
)
@pytest.mark.databases("sqlite")
def test_what_cannot_be_a_destination_names_its_field(database, cipher, fields, field):
    with pytest.raises(Refused) as refused:
        destinations.create(database, GATEWAY, HOOK | fields, cipher, "nadia")
    assert refused.value.field == field


@pytest.mark.databases("sqlite")
def test_a_removed_destination_leaves_its_rules(database, ops):
    rule_id = rules.create(database, GATEWAY, {"kind": "key", "destinations": [ops]}, "nadia")
    destinations.remove(database, GATEWAY, ops, "nadia")
    assert rules.show(database, GATEWAY, rule_id).destinations == []
    with pytest.raises(NotFound):
        destinations.remove(database, GATEWAY, ops, "nadia")


def test_addresses_are_sealed_anew_with_the_newest_key(database, ops):
    """For a webhook with a secret, and one without."""
    slack = {"name": "s", "kind": "slack", "address": "https://hooks.slack.com/x"}
    old, new = Cipher(["cipher key of the tests"]), Cipher(["newest", "cipher key of the tests"])
    destinations.create(database, GATEWAY, slack, old, "tester")
    assert secret_use.sealed_use(database, new).older == 3
    assert secret_use.reseal(database, new, "tester", lambda done, total: None) == 3
    assert secret_use.sealed_use(database, Cipher(["newest"])).newest == 3
    opened = destinations.address_of(database, ops, Cipher(["newest"]))
    assert opened.url == HOOK["address"] and opened.secret
