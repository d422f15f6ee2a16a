"""Lines of keys, in every form TOML has for them."""

import tomllib

from conf.toml_edits import entry_lines, key_lines

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
    tomllib.loads(TEXT)
    assert key_lines(TEXT) == {
        ("top",): 2,
        ("a",): 3,
        ("a", "b"): 3,
        ("server",): 5,
        ("server", "port"): 6,
        ("server", "quoted key"): 7,
        ("server", "text"): 8,
        ("server", "list"): 12,
        ("server", "inline"): 16,
        ("server", "inline", "x"): 16,
        ("server", "inline", "y"): 16,
        ("server", "inline", "y", "z"): 16,
        ("upstream",): 17,
        ("upstream", "deep"): 17,
        ("upstream", "deep", "key"): 18,
        ("many",): 20,
        ("many", "name"): 21,
    }


def test_nothing():
    assert key_lines("") == {}
    assert key_lines("# only a comment\n\n") == {}


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


def test_entries_of_one_statement_share_its_line():
    text = 'user = [\n  {name="a"},\n  {name="b"},\n]\n'
    assert entry_lines(text) == {("user", 0, ""): 1, ("user", 1, ""): 1}


def test_long_arrays_are_read_once():
    text = "[[group]]\nmodels = [\n" + '  "m",\n' * 100_000 + "]\nname = 1\n"
    assert entry_lines(text)["group", 0, "name"] == 100_004
