"""Lines of keys, in every form TOML has for them."""

import tomllib

from conf.toml_lines import key_lines

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
