"""One value of a gateway.toml changed: everything else stays, byte for byte."""

import os
import tomllib

import pytest

from conf.configuration import sample_text
from conf.toml_edits import replace_file, with_value

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


@pytest.mark.parametrize("text", ["[store\n", "store.x = 1\n", "store = 1\n", "a = " + "[" * 5000])
def test_what_cannot_be_changed_is_refused(text):
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
