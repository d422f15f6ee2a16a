"""Stored responses while MariaDB is away: their users go on, and nobody else sees them."""

import pytest

from tests.support.dialects import RESPONSES, check_refusal
from tests.support.gateway import Gateway
from tests.support.two_users import (
    NOBODYS,
    PATH,
    TRIES,
    begun,
    call,
    check_hidden,
    check_shown,
    content,
    create,
)
from tests.support.upstream import ScriptedUpstream


@pytest.mark.parametrize(("how", "unknown"), [("killed", "refuse"), ("frozen", "pass")])
def test_while_mariadb_is_away(breakable_mariadb, tmp_path, how, unknown):
    settings = {
        "server.workers": 2,
        "store.url": breakable_mariadb.fresh_url(user="gateway"),
        "routing.unknown_responses": unknown,
    }
    with ScriptedUpstream() as vendor:
        gateway = Gateway(tmp_path, settings)
        try:
            gateway.apply(content(vendor))
            gateway.start()
            before = create(gateway)
            for user in ("owner", "other"):  # so that both workers know both keys
                for _ in range(2 * TRIES):
                    create(gateway, user=user)
            breakable_mariadb.kill() if how == "killed" else breakable_mariadb.freeze()
            name = create(gateway)
            with begun(gateway) as streamed:
                for mine in (before, name, streamed):
                    check_hidden(gateway, vendor, mine, times=1)
            for mine in (before, name):
                check_shown(gateway, mine)
            answer = call(gateway, "GET", f"{PATH}/{NOBODYS}", user="other")
            check_refusal(answer, RESPONSES, "E38", retry_after="1")
            breakable_mariadb.restore()
            check_hidden(gateway, vendor, name, times=1)
            check_shown(gateway, name)
        finally:
            breakable_mariadb.restore()
            gateway.close()
