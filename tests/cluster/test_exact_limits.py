"""400 calls at once on two gateways: Redis admits exactly as many as the limit allows."""

import asyncio
import json
import os
import time

import pytest

from tests.support.documents import CREDIT
from tests.support.gateway import HOST
from tests.support.installation import Installation
from tests.support.wallets import owners, secret_of

ROUNDS, CALLS, RPM = 10, 400, 60
FIRST = 1  # a round that creates connections and threads


@pytest.fixture(scope="module")
def site(galera_session, tmp_path_factory):
    galera_session.restore()
    callers = owners([f"round{n}" for n in range(FIRST + ROUNDS)], CREDIT, rpm=RPM)
    made = Installation(tmp_path_factory.mktemp("site"), galera_session, callers)
    yield made
    made.close()


async def ask(port, secret):
    """Make one call; return its status and the time of its response head."""
    reader, writer = await asyncio.open_connection(HOST, port)
    body = json.dumps({"model": "tea", "messages": [{"role": "user", "content": "tea"}]})
    writer.write(
        f"POST /v1/chat/completions HTTP/1.1\r\nHost: gateway.example\r\nConnection: close\r\n"
        f"Authorization: Bearer {secret}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n{body}".encode()
    )
    head = await reader.readuntil(b"\r\n\r\n")
    at_s = time.monotonic()
    await reader.read()
    writer.close()
    return int(head.split()[1]), at_s


def test_a_limit_is_exact_over_two_gateways(site):
    ports = [gateway.port for gateway in site.gateways]

    async def all_at_once(secret):
        return await asyncio.gather(*(ask(ports[n % 2], secret) for n in range(CALLS)))

    rows = []
    for number in range(FIRST + ROUNDS):
        seen = asyncio.run(all_at_once(secret_of(f"round{number}")))
        if number < FIRST:
            continue
        assert {status for status, _ in seen} == {200, 429}
        times = [at_s for _, at_s in seen]
        passed = [status for status, _ in seen].count(200)
        rows.append((passed, RPM + int(max(times) - min(times))))
    print(f"\nlet through, to be let through: {rows}; load average {os.getloadavg()[0]:.1f}")
    assert all(abs(passed - allowed) <= 1 for passed, allowed in rows), rows
