"""LiteLLM's client, LangChain, pydantic-ai and the AI SDK edit files with an upstream of each
family.

A library's program plays all sessions of one of its families: whole answers and streams, with each
upstream.
"""

import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.clients.session import LAST_WORDS, Tools, Workshop
from tests.clients.world import FAMILIES, JS, NODE, PYTHON, secret_of

PROGRAMS = Path(__file__).parent / "programs"
LIBRARIES = {
    "litellm": [str(PYTHON), str(PROGRAMS / "litellm_session.py")],
    "langchain": [str(PYTHON), str(PROGRAMS / "langchain_session.py")],
    "pydantic-ai": [str(PYTHON), str(PROGRAMS / "pydantic_ai_session.py")],
    "ai-sdk": [str(NODE), str(JS / "ai.mjs")],
}
LACKS = {("litellm", "responses")}  # it has separate functions for that family
SPOKEN = [
    (library, api) for library in LIBRARIES for api in FAMILIES if (library, api) not in LACKS
]


@dataclass
class Played:
    workshop: Workshop
    came_to: dict


def tools(folder):
    return Tools(
        read=lambda path: ["read_file", {"path": path}],
        edit=lambda path, old, new: ["edit_file", {"path": path, "old": old, "new": new}],
        run=lambda line: ["run_command", {"command": line, "folder": str(folder)}],
        write=lambda path, text: ["write_file", {"path": path, "content": text}],
    )


@pytest.fixture(scope="module", params=SPOKEN, ids="-".join)
def played(request, world, tmp_path_factory):
    """Return the results of the sessions, by upstream and whether they were streamed."""
    library, api = request.param
    folder = tmp_path_factory.mktemp(f"{library}-{api}")
    workshops, sessions = {}, []
    for upstream in FAMILIES:
        for streamed in (False, True):
            own = folder / f"{upstream}-{streamed}"
            own.mkdir()
            workshop = workshops[upstream, streamed] = Workshop(own)
            prompt = workshop.plan(tools(workshop.folder))
            key = secret_of(upstream)
            sessions.append({"prompt": prompt, "streamed": streamed, "key": key})
    told = {"base_url": world.base_url, "api": api, "sessions": sessions}
    ran = world.run(LIBRARIES[library], folder, folder / "home", json.dumps(told))
    assert ran.code == 0, ran.err[-3000:]
    came_to = json.loads(ran.out.splitlines()[-1])
    found = zip(workshops.items(), came_to, strict=True)
    return {which: Played(workshop, came) for (which, workshop), came in found}


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("upstream", FAMILIES)
def test_session(played, upstream, streamed):
    one = played[upstream, streamed]
    assert "error" not in one.came_to, one.came_to["error"][-3000:]
    assert LAST_WORDS in one.came_to["text"]
    one.workshop.check()
