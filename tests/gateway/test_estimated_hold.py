"""The cheap bound of the input does not refuse a call that the wallet can pay."""

from decimal import Decimal

import pytest

from tests.support.client import exchange
from tests.support.dialects import ALL, ask, check_refusal, credentials, path_of
from tests.support.documents import channel
from tests.support.wallets import Wallets, joined, owners, secret_of

MODEL = "read-only"
# The bound is a token for 2 bytes, the estimate one for about 4; a token costs 0.001.
WORDS = "the quick brown fox jumps over the lazy dog " * 500
ENOUGH, TOO_LITTLE = "8", "3"


@pytest.fixture(scope="module")
def gateway(launch, vendor):
    made = {
        "model": [{"name": MODEL, "price": {"input": "1000", "output": "0"}}],
        "group": [{"name": "all"}],
        "channel": [channel(f, f, vendor.url, {MODEL: "demo-small"}) for f in ALL],
    }
    rich, poor = ([f"{kind}-{family}" for family in ALL] for kind in ("rich", "poor"))
    return launch(joined(made, owners(rich, ENOUGH), owners(poor, TOO_LITTLE)))


def post(gateway, family, owner):
    body = ask(family, MODEL, WORDS)
    return exchange(
        gateway.port, "POST", path_of(family, MODEL), credentials(family, secret_of(owner)), body
    )


@pytest.mark.parametrize("family", ALL)
def test_it_is_counted_better_before_a_refusal(gateway, family):
    assert len(WORDS) // 2 * Decimal("0.001") > Decimal(ENOUGH)
    answer = post(gateway, family, f"rich-{family}")
    assert answer.status == 200, answer.body
    wallets = Wallets(gateway)
    wallets.check(f"rich-{family}", ENOUGH, [gateway.record(answer.call_id)])
    wallets.close()


@pytest.mark.parametrize("family", ALL)
def test_too_little_is_too_little(gateway, family):
    check_refusal(post(gateway, family, f"poor-{family}"), family, "E18")
