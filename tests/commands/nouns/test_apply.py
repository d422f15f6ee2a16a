"""`apply` and `export`: documents in and out."""

import json
import re

from store.admin.kinds import KINDS
from tests.commands.conftest import UPSTREAM_KEY, Installation, document
from tools.docs.document import EXAMPLE


def test_a_document_is_applied_once(installation):
    first = installation.apply(document())
    changes = {(change["kind"], change["name"], change["action"]) for change in first["changes"]}
    names = {"model": "gpt-4.1", "group": "default", "channel": "main", "user": "alice"}
    created = [*names.items(), ("key", "alice/laptop")]
    assert changes == {(kind, name, "create") for kind, name in created}
    [key] = first["keys"]
    assert key["user"] == "alice" and key["name"] == "laptop"
    assert key["secret"].startswith("sk-slc-")
    exported = installation.json("export")
    assert installation.apply(document()) == {"changes": [], "keys": []}
    assert installation.json("export") == exported
    assert installation.json("wallet", "show", "--user", "alice")["balance"] == "10"
    assert installation.run("books", "verify").code == 0


def test_an_export_applied_elsewhere_makes_the_same(filled, tmp_path, capsys, monkeypatch):
    text = re.sub(r"^#.*\n", "", filled.ok("export"), flags=re.M)
    assert json.loads(filled.ok("export", "--json"))["user"][0]["name"] == "alice"
    assert UPSTREAM_KEY not in text and "balance" not in text
    folder = tmp_path / "other"
    other = Installation(folder, f"sqlite:///{folder}/o.db", capsys, monkeypatch)
    (folder / "doc.toml").write_text(text)
    other.ok("apply", str(folder / "doc.toml"))
    assert re.sub(r"^#.*\n", "", other.ok("export"), flags=re.M) == text


def test_a_dry_run_says_what_would_be_and_writes_nothing(installation):
    doc = json.dumps(document())
    text = installation.ok("apply", "-", "--dry-run", stdin=doc)
    assert 'user "alice" would be created' in text and "sk-" not in text
    made = installation.json("apply", "--dry-run", "-", stdin=doc)
    assert len(made["changes"]) == 5 and made["keys"] == []
    assert installation.json("export") == {}
    assert installation.run("export") == (0, "", "")
    # the text form shows a made secret once
    text = installation.ok("apply", "-", stdin=doc)
    assert 'channel "main" created' in text
    assert 'secret of key "alice/laptop", shown once: sk-slc-' in text
    assert installation.ok("apply", "-", stdin=doc) == "nothing to change\n"


def test_what_cannot_be_read_is_refused(installation, tmp_path):
    text = installation.refused("apply", "-", stdin="[[user")
    assert text.startswith("error: standard input: the document is not TOML: ")
    for name, content, problem in (
        ("list", b'user = "a"', 'error: {path}: section "user" must be a list'),
        ("json", b'{"user": [{"name": "a", "role": "x"}]}', 'error: {path}: user "a": role: '),
        ("latin", b"# caf\xe9", "is not UTF-8"),
        ("missing.toml", None, "missing.toml"),
    ):
        path = tmp_path / name
        if content is not None:
            path.write_bytes(content)
        assert problem.format(path=path) in installation.refused("apply", str(path))
    assert "FILE" in installation.misused("apply")


def test_prune_removes_what_is_not_named(filled):
    small = {k: v for k, v in document().items() if k in ("model", "group")}
    assert filled.apply(small)["changes"] == []
    text = filled.ok("apply", "-", "--prune", stdin=json.dumps(small))
    assert 'user "alice" removed' in text and 'channel "main" removed' in text
    assert set(filled.json("export")) == {"model", "group"}


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
    found = {}
    for line in installation.refused("apply", str(path)).splitlines():
        place, _, text = line.removeprefix(f"error: {path}:").partition(": ")
        found.setdefault(int(place), []).append(text)
    expected = {
        5: 'model "m": price: output',
        8: 'unknown field "nme"; did you mean "name"?',
        7: "group #1: name is missing",
        12: 'models: there is no model "m2"; did you mean "m"?',
        16: 'vendor: there is no vendor "opnai"',
        18: "must not end in a version path",
        19: "the environment has no variable NO_SUCH_VARIABLE",
        20: "groups: must be a list",
        23: 'user: there is no user "alice"',
        25: 'group: there is no group "othr"; did you mean "other"?',
        26: 'unknown section "ussr"; did you mean "user"?',
    }
    for line, message in expected.items():
        assert any(message in text for text in found.pop(line, [])), (line, message)
    assert not found  # what has a fault already is not said to be missing, too
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
    # the one remark: a server at home asks for no credential
    assert [line for line in made.err.splitlines() if "at-home" not in line] == []
    kinds = {change["kind"] for change in json.loads(made.out)["changes"]}
    assert kinds == set(KINDS)
    assert installation.json("apply", str(path))["changes"] == []
    (installation.folder / "second.key").write_text("sk-third\n")  # read by apply alone
    [change] = installation.json("apply", str(path))["changes"]
    assert (change["kind"], change["name"]) == ("channel", "openai-main")


def test_an_export_says_what_it_leaves_out(filled):
    assert filled.run("key", "revoke", "alice/laptop").code == 0
    ended = filled.run("export")
    head = [line for line in ended.out.splitlines() if line.startswith("#")]
    assert ended.out.startswith("# Left out")
    assert head[1:] == [
        "#   keys of channels: main",
        "#   balance of users: alice",
        "#   revoked keys: alice/laptop",
    ]
    ended = filled.run("export", "--json")
    assert json.loads(ended.out) and ended.err.splitlines() == [line[2:] for line in head]
