"""docs/troubleshooting.md: what it describes happens, and its commands run as printed there."""

import contextlib
import re
import shlex
from pathlib import Path

import pytest

from commands.nouns.usage_filters import ERROR_CODES
from tests.support.client import exchange, wait_until
from tests.support.dialects import CHAT, PATHS, ask, credentials
from tests.support.documents import PRICE
from tests.support.documents import document as usual
from tests.support.echo import GOOD, Echo, answer_of
from tests.support.gateway import Gateway

PAGE = (Path(__file__).resolve().parents[2] / "docs/troubleshooting.md").read_text()
COMMANDS = re.findall(r"^    \./sluice (.+)$", PAGE, re.MULTILINE)
QUOTA = "You exceeded your current quota, please check your plan and billing details."
MODELS = ("gpt-4.1", "gpt-4.1-mini", "llama")


def openai(status, message, code):
    return answer_of(status, {"error": {"message": message, "type": code, "code": code}})


@pytest.fixture(scope="module")
def scene(tmp_path_factory):
    """Yield the gateway of the page, and the ids of its calls by model."""
    with contextlib.ExitStack() as stack:

        def channel(name, answer, models, **more):
            upstream = stack.enter_context(contextlib.closing(Echo()))
            upstream.answer = answer
            return {"name": name, "vendor": "openai", "family": CHAT, "base_url": upstream.url,
                    "keys": [f"sk-of-{name}"], "models": models, **more}  # fmt: skip

        gateway = Gateway(tmp_path_factory.mktemp("scene"))
        stack.callback(gateway.close)
        document = usual(MODELS, [])
        document["channel"] = [
            channel("openai-main", openai(429, QUOTA, "insufficient_quota"),
                    {"gpt-4.1": "gpt-4.1-2025-04-14"}, priority=1),
            channel("openai-spare", GOOD, {"gpt-4.1": "gpt-4.1-2025-04-14"}),
            channel("openai-old", openai(401, "Incorrect API key provided: sk-of-openai-old",
                                         "invalid_api_key"), {"gpt-4.1-mini": "gpt-4.1-mini"}),
            channel("own-llama", GOOD, {"llama": "llama3"}, vendor="openai-compatible")
            | {"base_url": "http://llama.internal.invalid"},
        ]  # fmt: skip
        document["group"] = [{"name": "default"}]
        document["model"] = [{"name": name, "price": PRICE} for name in MODELS]
        document["user"][0]["name"] = "alice"
        document["key"][0] |= {"user": "alice", "name": "laptop", "group": "default"}
        gateway.apply(document)
        gateway.start()
        ids = {model: call(gateway, model) for model in (*MODELS, "gpt-4")}
        gateway.follow()
        for one in ids.values():
            gateway.record(one)
        yield gateway, ids


def call(gateway, model):
    headers = credentials(CHAT)
    return exchange(gateway.port, "POST", PATHS[CHAT], headers, ask(CHAT, model)).call_id


def test_the_page_names_every_code():
    rows = "\n".join(line for line in PAGE.splitlines() if line.startswith("| `"))
    assert [code for code in ERROR_CODES if f"`{code}`" not in rows] == []


@pytest.mark.parametrize("command", COMMANDS)
def test_its_commands_run_as_pasted(scene, command):
    gateway, ids = scene
    words = [ids["gpt-4.1-mini"] if re.fullmatch("01[0-9A-Z]{24}", word) else word
             for word in shlex.split(command)]  # fmt: skip
    said = gateway.run(*words, code=1 if words[:2] == ["channel", "test"] else 0)
    # The lines shown on the page match the start of those printed.
    shown = PAGE.partition(f"    ./sluice {command}\n\n")[2].splitlines()
    for line in shown:
        if not line.startswith("    ") and line:
            break
        if line.strip():
            assert line.split()[0] in said.split() or "01" in line, (line, said)


def test_show_says_why_the_vendor_refused(scene):
    gateway, ids = scene
    said = gateway.run("usage", "show", ids["gpt-4.1-mini"])
    assert "openai-old  401" in said
    assert "Incorrect API key provided: *** (invalid_api_key)" in said
    said = gateway.run("usage", "show", ids["gpt-4.1"])
    assert f"the vendor's quota is used up: {QUOTA} (insufficient_quota)" in said
    assert "openai-spare  200" in said and "× multiplier 1, rounded up = " in said
    assert "Could not resolve host: ***\n" in gateway.run("usage", "show", ids["llama"])


def test_the_log_says_the_same_once(scene):
    gateway, ids = scene
    assert wait_until(lambda: ids["gpt-4"] in gateway.log())
    lines = [line for line in gateway.log().splitlines() if "channel fails: " in line]
    assert len(lines) == 3
    assert any(ids["llama"] in line and "channel=own-llama" in line for line in lines)
