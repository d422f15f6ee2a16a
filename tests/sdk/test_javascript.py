"""The official JavaScript SDKs with a real gateway and a scripted vendor.

The scripts in js/ make the calls, one process for each SDK, and print the results. The first run
installs the SDKs beside them, in the versions of package-lock.json. Without Node, or if they
cannot be installed, the tests are skipped with the reason, even with CI=true: the Python SDKs,
which every machine has, cover the same and more.
"""

import fcntl
import hashlib
import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.sdk.world import FAMILIES, MODELS_OF_ALICE, counts_of
from tests.vendor.endpoints import SOUND

FOLDER = Path(__file__).parent / "js"
NODE_MIN = 20
INSTALL_TIMEOUT_S = 120
RUN_TIMEOUT_S = 60
FRAIL_EACH = 4
INSTALL = (
    *("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"),
    # Fail fast if no registry can be reached.
    *("--prefer-offline", "--fetch-retries=1", "--fetch-retry-mintimeout=1000"),
)
SCRIPTS = {
    "chat_completions": "openai.mjs",
    "responses": "openai.mjs",
    "messages": "anthropic.mjs",
    "generate_content": "genai.mjs",
    "generate_content v1": "genai.mjs",
}
# step: the exception in each script, as (class, status)
RAISED = {
    step: dict(zip(("openai.mjs", "anthropic.mjs", "genai.mjs"), raised, strict=True))
    for step, raised in {
        "badKey": (("AuthenticationError", 401), ("AuthenticationError", 401), ("ApiError", 401)),
        "noModel": (("NotFoundError", 404), ("NotFoundError", 404), ("ApiError", 404)),
        "noMoney": (("RateLimitError", 429), ("PaymentRequiredError", 402), ("ApiError", 402)),
        "failing": (("InternalServerError", 503), ("OverloadedError", 529), ("ApiError", 503)),
        "broken": (("APIError", None), ("APIError", None), ("ApiError", 503)),
    }.items()
}
every_family = pytest.mark.parametrize("family", SCRIPTS)


@pytest.fixture(scope="module")
def installed():
    """Install the SDKs; skip the tests if that is not possible."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("node and npm are not installed")
    version = subprocess.run(
        ["node", "--version"], capture_output=True, text=True, check=True
    ).stdout.strip()
    if int(version.lstrip("v").partition(".")[0]) < NODE_MIN:
        pytest.skip(f"node {version} is older than {NODE_MIN}")
    lock = FOLDER / "package-lock.json"
    wanted = hashlib.sha256(lock.read_bytes()).hexdigest()
    stamp = FOLDER / "node_modules" / ".installed"
    with lock.open() as guard:  # other test runs install into the same folder
        fcntl.flock(guard, fcntl.LOCK_EX)
        if not stamp.is_file() or stamp.read_text() != wanted:
            install()
            stamp.write_text(wanted)


def install():
    try:
        done = subprocess.run(
            INSTALL,
            cwd=FOLDER,
            check=False,
            capture_output=True,
            text=True,
            timeout=INSTALL_TIMEOUT_S,
        )
    except subprocess.TimeoutExpired:
        pytest.skip(f"npm ci did not end within {INSTALL_TIMEOUT_S} s")
    # A lock file that does not match is a fault of the repository; an unreachable registry is not.
    assert "EUSAGE" not in done.stderr and "EINTEGRITY" not in done.stderr, done.stderr
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if line.startswith("npm error")]
        pytest.skip(f"npm ci failed: {' '.join(lines[:3])}")


@pytest.fixture(scope="module")
def done(world, installed):
    """Return the result of each step, by family."""
    told = {
        "baseUrl": world.base_url,
        "keys": {**world.keys, "nobodys": "a-key-that-nobody-made"},
        "frail": {family: [world.frail(family) for _ in range(FRAIL_EACH)] for family in FAMILIES},
    }
    found = {}
    for script in dict.fromkeys((*SCRIPTS.values(), "endpoints.mjs")):
        ran = subprocess.run(
            ["node", script],
            cwd=FOLDER,
            input=json.dumps(told),
            check=False,
            capture_output=True,
            text=True,
            timeout=RUN_TIMEOUT_S,
        )
        assert ran.returncode == 0, ran.stderr[-3000:]
        found |= json.loads(ran.stdout)
    return found


@every_family
def test_text(done, world, family):
    answer = done[family]["text"]
    assert "You wrote: “hello”" in answer["text"]
    assert answer["model"] == "tea"
    record = world.gateway.record(answer["callId"])
    assert counts_of(record) == answer["usage"]


@every_family
def test_stream(done, family):
    streamed = done[family]["stream"]
    assert streamed["text"] == done[family]["text"]["text"]
    assert streamed["usage"] == done[family]["text"]["usage"]
    assert streamed["pieces"] > 3


@every_family
def test_tools_in_parallel(done, family):
    tools = done[family]["tools"]
    assert tools["names"] == ["get_weather", "get_tide"]
    assert tools["inputs"] == [{"harbour": "demo"}] * 2
    assert "the tool results have arrived" in tools["after"]


@every_family
def test_structured_output(done, family):
    assert done[family]["structured"] == {"name": "demo", "cups": 7}


@every_family
def test_models(done, family):
    assert done[family]["models"] == MODELS_OF_ALICE


@every_family
def test_count(done, family):
    if "count" not in done[family]:
        assert SCRIPTS[family] == "openai.mjs"
        return
    counted = done[family]["count"]
    tokens = counted.get("input_tokens", counted.get("totalTokens"))
    assert tokens == done[family]["text"]["usage"]["input"]


@every_family
@pytest.mark.parametrize("step", RAISED)
def test_raises(done, family, step):
    error = done[family][step]
    assert (error["raised"], error.get("status")) == RAISED[step][SCRIPTS[family]]
    assert step != "broken" or error["shown"].startswith("0 1 2 ")


def test_the_endpoints_beside_chat(done):
    kinds = [f"image_generation.{kind}" for kind in ("partial_image", "completed")]
    assert done["endpoints"] == {
        "embeddings": [[0, 0.125, 0.25], [0.125, 0.25, 0.375]],
        "completions": ["once upon a time"] * 2,
        "moderations": False,
        "images": [2, 1, *kinds],
        "speech": len(SOUND),
        "transcriptions": [
            "heard 3000000 bytes",
            *("transcript.text.delta", "transcript.text.done"),
        ],
    }
