"""aider edits files with an upstream of each family.

It offers no tools: the model writes its edits as text, and a command's output becomes part of the
conversation. So each round is a prompt with a plan of its own, typed on the standard input.
"""

import pytest

from tests.clients.session import LAST_WORDS
from tests.clients.world import AIDER, FAMILIES, secret_of
from tests.vendor.sessions import marker

FLAGS = (
    *("--model", "openai/gpt-4o", "--edit-format", "diff", "--map-tokens", "0", "--yes-always"),
    *("--no-git", "--no-check-update", "--no-analytics", "--no-show-model-warnings"),
    *("--no-show-release-notes", "--no-pretty", "--no-fancy-input", "--no-suggest-shell-commands"),
    "--no-detect-urls",
)


def edit(path, old, new):
    return f"{path}\n```\n<<<<<<< SEARCH\n{old}=======\n{new}>>>>>>> REPLACE\n```\n"


def prompts(workshop):
    """Return five rounds: two edits, a new file, and twice the output of a command."""
    changed = edit("notes.txt", "the word is kettle-17\n", "the word is teapot-42\n")
    again = edit("list.txt", "saucer-23\n", "saucer-24\n")
    made = edit("report.txt", "", "written-51\n")
    rounds = [
        (changed, ["kettle-17", "日本語", "saucer-23"]),
        (made, ["teapot-42"]),
        ("/run cat report.txt; printf counted-; expr 40 + 3", []),
        (again, ["written-51", "counted-43"]),
        ("/run cat list.txt; rm list.txt; printf removed-; expr 60 + 1", []),
        (LAST_WORDS, ["saucer-24", "removed-61"]),
    ]
    for said, expected in rounds:
        if said.startswith("/run"):
            yield said
        else:
            yield f"Please go on. {marker([{'say': said, 'expect': expected}])}"


@pytest.mark.parametrize("upstream", FAMILIES)
@pytest.mark.parametrize("flag", ["--stream", "--no-stream"])
def test_aider(world, workshop, upstream, flag):
    files = ["notes.txt", "list.txt"]
    settings = {
        "OPENAI_API_BASE": f"{world.base_url}/v1",
        "OPENAI_API_KEY": secret_of(upstream),
    }
    typed = "\n".join([*prompts(workshop), "/exit", ""])
    argv = [str(AIDER), *FLAGS, flag, *files]
    ran = world.run(argv, workshop.folder, workshop.home, typed, **settings)
    assert ran.code == 0, ran.err[-3000:]
    assert LAST_WORDS in ran.out, ran.out[-3000:] + ran.err[-3000:]
    workshop.check()
