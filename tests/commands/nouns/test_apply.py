"""`apply` and `export` of documents."""

import json

from store.admin.kinds import KINDS
from tests.commands.conftest import UPSTREAM_KEY, document
from tools.docs.document import EXAMPLE


def test_a_document_is_applied_once(installation):
    first = installation.apply(document())
    names = {"model": "gpt-4.1", "group": "default", "channel": "main", "user": "alice"}
    created = {*names.items(), ("key", "alice/laptop")}
    changes = {(one["kind"], one["name"]) for one in first["changes"] if one["action"] == "create"}
    assert changes == created and len(first["changes"]) == len(created)
    [key] = first["keys"]
    assert (key["user"], key["name"], key["secret"][:7]) == ("alice", "laptop", "sk-slc-")
    assert installation.apply(document()) == {"changes": [], "keys": []}
    assert installation.ok("books", "verify")


def test_a_dry_run_says_what_would_be_and_writes_nothing(installation):
    doc = json.dumps(document())
    text = installation.ok("apply", "-", "--dry-run", stdin=doc)
    assert 'user "alice" would be created' in text and "sk-" not in text
    assert installation.json("apply", "--dry-run", "-", stdin=doc)["keys"] == []
    assert installation.run("export") == (0, "", "") and installation.json("export") == {}
    # the text form shows a generated secret once
    text = installation.ok("apply", "-", stdin=doc)
    assert 'channel "main" created' in text
    assert 'secret of key "alice/laptop", shown once: sk-slc-' in text
    assert installation.ok("apply", "-", stdin=doc) == "nothing to change\n"


def test_what_cannot_be_read_is_refused(installation, tmp_path):
    text = installation.refused("apply", "-", stdin="[[user")
    assert text.startswith("error: standard input: the document is not TOML: ")
    (tmp_path / "latin").write_bytes(b"# caf\xe9")
    for name, problem in (("latin", "is not UTF-8"), ("missing.toml", "missing.toml")):
        assert problem in installation.refused("apply", str(tmp_path / name))
    assert "FILE" in installation.misused("apply")


DOCUMENT = """\
[[model]]
name = "m"
[model.price]
input = "2"
output = "-3"

[[group]]
nme = "default"

[[group]]
name = "other"
models = ["m", "m2"]

[[channel]]
name = "main"
vendor = "opnai"
family = "chat_completions"
base_url = "https://api.example/v1"
keys = ["env:NO_SUCH_VARIABLE"]
groups = 3

[[key]]
user = "alice"
name = "laptop"
group = "othr"
[[ussr]]
"""


def test_every_fault_of_a_document_names_its_line(installation):
    path = installation.folder / "setup.toml"
    path.write_text(DOCUMENT)
    lines = installation.refused("apply", str(path)).splitlines()
    assert f'error: {path}:8: group #1: unknown field "nme"; did you mean "name"?' in lines
    places = {int(line.removeprefix(f"error: {path}:").partition(":")[0]) for line in lines}
    # an object with another fault is not also reported as missing
    assert places == {5, 7, 8, 12, 16, 18, 19, 20, 23, 25, 26}
    assert installation.json("export") == {}


def test_what_leads_nowhere_is_warned_of(filled):
    text = """
[[model]]
name = "gpt-5"
price = { input = "1", output = "1" }
[[group]]
name = "lonely"
[[channel]]
name = "bare"
vendor = "ollama"
family = "chat_completions"
base_url = "http://localhost:11434"
models = { "gpt-4.1" = "x" }
"""
    path = filled.folder / "more.toml"
    path.write_text(text)
    for options in (["--dry-run"], ["--json"], []):
        ended = filled.run("apply", str(path), *options)
        assert ended.code == 0
        assert [line.partition(": it ")[0] for line in ended.err.splitlines()] == [
            f'warning: {path}:2: model "gpt-5": no channel has it in its models: no call gets it',
            f'warning: {path}:5: group "lonely": no channel has it in its groups: its keys can'
            " call nothing",
            f'warning: {path}:7: channel "bare"',
        ]
    assert filled.run("apply", "-", stdin=json.dumps(document())).err == ""


def test_the_example_of_the_documentation_makes_what_it_says(installation, monkeypatch):
    path = installation.folder / "setup.toml"
    path.write_text(EXAMPLE)
    (installation.folder / "second.key").write_text("sk-second\n")
    for name in ("OPENAI_API_KEY", "OPENAI_ORGANIZATION", "ALICE_PASSWORD"):
        monkeypatch.setenv(name, f"value-of-{name}")
    made = installation.run("apply", str(path), "--json")
    assert made.code == 0
    # the only warning: a server at home requires no credential
    assert [line for line in made.err.splitlines() if "at-home" not in line] == []
    kinds = {change["kind"] for change in json.loads(made.out)["changes"]}
    assert kinds == set(KINDS)
    assert installation.json("apply", str(path))["changes"] == []
    (installation.folder / "second.key").write_text("sk-third\n")  # only `apply` reads it
    [change] = installation.json("apply", str(path))["changes"]
    assert (change["kind"], change["name"]) == ("channel", "openai-main")


def test_an_export_says_what_it_leaves_out(filled):
    assert filled.run("key", "revoke", "alice/laptop").code == 0
    ended = filled.run("export")
    head = [line for line in ended.out.splitlines() if line.startswith("#")]
    assert ended.out.startswith("# Left out") and UPSTREAM_KEY not in ended.out
    assert head[1:] == [
        "#   keys of channels: main",
        "#   balance of users: alice",
        "#   revoked keys: alice/laptop",
    ]
    ended = filled.run("export", "--json")
    assert json.loads(ended.out) and ended.err.splitlines() == [line[2:] for line in head]
