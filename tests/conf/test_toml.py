"""TOML of every form: the lines of keys, values that are read back, changes of single values."""

import os
import tomllib

import pytest

from conf.configuration import sample_text
from conf.toml_edits import entry_lines, key_lines, replace_file, with_value
from conf.values import toml

TEXT = '''\
# a comment with [server] and port = 1
top = 1
a.b = 2

[server]   # the relay
port = 1
"quoted key" = 2
text = """
not = a key
[nor.a.table]
"""
list = [
  "one", # comment
  "]",
]
inline = { x = 1, y = { z = 2 } }
[upstream.deep]
key = 1

[[many]]
name = "a"
[[many]]
name = "b"
'''


def test_lines_of_keys():
    assert key_lines("# only a comment\n\n") == {}
    tomllib.loads(TEXT)
    assert key_lines(TEXT) == {
        **{("top",): 2, ("a",): 3, ("a", "b"): 3, ("server",): 5, ("server", "port"): 6},
        **{("server", "quoted key"): 7, ("server", "text"): 8, ("server", "list"): 12},
        **{("server", "inline"): 16, ("server", "inline", "x"): 16, ("server", "inline", "y"): 16},
        **{("server", "inline", "y", "z"): 16, ("upstream",): 17, ("upstream", "deep"): 17},
        **{("upstream", "deep", "key"): 18, ("many",): 20, ("many", "name"): 21},
    }


ENTRIES = """\
[[model]]
name = "a"
[model.price]
input = "2"

[[model]]
name = "b"
price = { input = "1",
  output = "2" }
[[channel]]
models = { "x]" = "y" }
keys = [
  "one]", # [[model]]
]
[other]
"""


def test_lines_of_entries():
    tomllib.loads(ENTRIES.replace('",\n', '", '))
    assert entry_lines(ENTRIES.replace('",\n  out', '", out')) == {
        **{("model", 0, ""): 1, ("model", 0, "name"): 2},
        **{("model", 0, "price"): 3, ("model", 0, "price.input"): 4},
        **{("model", 1, ""): 6, ("model", 1, "name"): 7, ("model", 1, "price"): 8},
        **{("model", 1, "price.input"): 8, ("model", 1, "price.output"): 8},
        **{("channel", 0, ""): 9, ("channel", 0, "models"): 10, ("channel", 0, "models.x]"): 10},
        **{("channel", 0, "keys"): 11, ("other", 0, ""): 14},
    }


def test_long_arrays_are_read_once_and_entries_of_one_statement_share_its_line():
    text = "[[group]]\nmodels = [\n" + '  "m",\n' * 100_000 + "]\nname = 1\n"
    assert entry_lines(text)["group", 0, "name"] == 100_004
    text = 'user = [\n  {name="a"},\n  {name="b"},\n]\n'
    assert entry_lines(text) == {("user", 0, ""): 1, ("user", 1, ""): 1}


URL = "mysql://u:p@h/d"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(
            "# mine\n[store]\n# Where.\n#url = \"sqlite:///sluice.db\"\n\n[ops]\nport = 1\n",
            f'# mine\n[store]\n# Where.\nurl = "{URL}"\n\n[ops]\nport = 1\n',
            id="the default, shown as a comment",
        ),
        pytest.param(
            '[store]\nurl = "x" # of a # kind\n', f'[store]\nurl = "{URL}" # of a # kind\n',
            id="a value with a comment behind it",
        ),
        pytest.param(
            '[store]\nurl = "a # b"\n', f'[store]\nurl = "{URL}"\n', id="no comment but a value"
        ),
        pytest.param(
            '[store]\nurl = """\na\n"""  # c\nx = 1\n', f'[store]\nurl = "{URL}"  # c\nx = 1\n',
            id="a value of several lines",
        ),
        pytest.param(
            "[store]  # s\n[ops]\n#url = 1\n", f'[store]  # s\nurl = "{URL}"\n[ops]\n#url = 1\n',
            id="a section without it",
        ),
        pytest.param("[ops]\n", f'[ops]\n\n[store]\nurl = "{URL}"\n', id="no such section"),
        pytest.param("", f'\n[store]\nurl = "{URL}"\n', id="nothing"),
        pytest.param('store.url = "a"\n', f'store.url = "{URL}"\n', id="a dotted key"),
        pytest.param(
            'store = { url = "a", x = [1] } # c\n[ops]\n',
            f'store = {{ url = "{URL}", x = [1] }} # c\n[ops]\n',
            id="an inline table",
        ),
    ],
)  # fmt: skip
def test_what_is_written(before, after):
    assert with_value(before, "store", "url", URL) == after


def test_every_setting_of_the_sample_in_turn():
    whole = sample_text({})
    for section, key, value in (
        ("server", "trusted_proxies", ("10.0.0.0/8",)),
        ("server", "port", 8080),
        ("hub", "enabled", False),
        ("log", "file", 'a "quoted" \\ name'),
    ):
        changed = with_value(whole, section, key, value)
        plain = list(value) if isinstance(value, tuple) else value
        assert tomllib.loads(changed)[section] == {key: plain}
        gone, come = (set(one.split("\n")) for one in (whole, changed))
        assert len(gone - come) <= 1 and len(come - gone) == 1
        assert changed.count("\n") == whole.count("\n"), "in the place of the default"


def test_what_cannot_be_changed_is_refused():
    for text in ("[store\n", "store.x = 1\n", "store = 1\n", "a = " + "[" * 5000):
        with pytest.raises(ValueError, match=r".+"):
            with_value(text, "store", "url", URL)


def test_a_file_keeps_its_mode_and_stays_a_link(tmp_path):
    real, link = tmp_path / "real.toml", tmp_path / "gateway.toml"
    real.write_text("old")
    real.chmod(0o640)
    link.symlink_to(real)
    if os.geteuid() == 0:
        os.chown(real, 65534, 65534)
    replace_file(link, "new")
    assert link.is_symlink() and real.read_text() == "new"
    assert real.stat().st_mode & 0o777 == 0o640
    assert sorted(os.listdir(tmp_path)) == ["gateway.toml", "real.toml"]
    if os.geteuid() == 0:
        assert (real.stat().st_uid, real.stat().st_gid) == (65534, 65534)


def test_toml_round_trip():
    for value in (True, False, 0, 33554432, "", 'a"b\\c\n\x7f\x01é/', ["a", "b"], []):
        assert tomllib.loads("v = " + toml(value))["v"] == value
    assert toml(("10.0.0.0/8",)) == '["10.0.0.0/8"]'
