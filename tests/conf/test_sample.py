"""The text of gateway.toml."""

import tomllib

from conf.configuration import load, sample_text
from conf.settings import SETTINGS


def test_without_values_it_says_nothing_and_shows_everything(tmp_path):
    text = sample_text({})
    assert all(not section for section in tomllib.loads(text).values())
    uncommented = "".join(
        line[1:] if line.startswith("#") and line[1:2].strip() else line
        for line in text.splitlines(keepends=True)
    )
    path = tmp_path / "gateway.toml"
    path.write_text(uncommented)
    loaded = load(path, (), {})
    path.write_text("")
    assert loaded.settings == load(path, (), {}).settings
    assert {name for name, origin in loaded.origins.items() if origin != "default"} == {*SETTINGS}


def test_values_are_set_in_their_section():
    values = {"server.port": 1, "ops.port": 2, "server.trusted_proxies": ("::1",)}
    document = tomllib.loads(sample_text(values))
    assert document["server"] == {"port": 1, "trusted_proxies": ["::1"]}
    assert document["ops"] == {"port": 2}
    assert document["hub"] == {}
