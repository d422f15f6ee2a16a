"""Sources of settings' values: precedence, places, suggestions for misspelt names; the sample."""

import tomllib
from operator import attrgetter
from pathlib import Path

import pytest

from conf.configuration import MAX_FILE_BYTES, SAMPLE, ConfigError, find_config, load, sample_text
from conf.settings import SETTINGS

INIT = "./sluice init DIR"


@pytest.fixture
def file(tmp_path):
    """Return file(text), which returns the path of a gateway.toml with this text."""

    def write(text: str):
        path = tmp_path / "gateway.toml"
        path.write_text(text)
        return path

    return write


def faults(*args) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load(*args)
    return caught.value.faults


def test_every_source_counts_before_the_next(file):
    path = file("[server]\nport = 1\nworkers = 1\nbody_timeout_s = 1\n")
    environ = {"SLUICE_SERVER__PORT": "2", "SLUICE_SERVER__WORKERS": "2"}
    loaded = load(path, ["server.port=3"], environ)
    server = loaded.settings.server
    assert (server.port, server.workers, server.body_timeout_s) == (3, 2, 1)
    assert server.header_timeout_s == 30
    assert loaded.origins["server.port"] == "--set server.port"
    assert loaded.origins["server.workers"] == "environment SLUICE_SERVER__WORKERS"
    assert loaded.origins["server.body_timeout_s"] == f"{path}:4"
    assert loaded.origins["server.header_timeout_s"] == "default"


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("ops.enabled=false", False),
        ("routing.retry_timeouts=true", True),
        ("server.workers=0", 0),
        ("server.max_body_bytes=1_000_000", 1000000),
        ("log.level=debug", "debug"),
        ("server.host=::1", "::1"),
        ("server.public_url=https://gw.example/", "https://gw.example"),
        ('server.cors_origins=["*", "http://[::1]:3000"]', ("*", "http://[::1]:3000")),
        ('server.trusted_proxies=["10.0.0.0/8", "::1"]', ("10.0.0.0/8", "::1")),
        ("store.url=mysql://u:p%40@h:3306/d", "mysql://u:p%40@h:3306/d"),
        ("journal.dir=/var/a=b", "/var/a=b"),
    ],
)
def test_set_takes_the_value_without_quotes(text, want):
    loaded = load(None, [text], {})
    assert attrgetter(text.partition("=")[0])(loaded.settings) == want


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("server.port=x", "an integer from 1 to 65535 expected, 'x' given"),
        ("server.port=0", "an integer from 1 to 65535 expected, 0 given"),
        ("server.port=1.5", "an integer from 1 to 65535 expected, 1.5 given"),
        ("server.port=true", "an integer from 1 to 65535 expected, True given"),
        ("ops.enabled=yes", "true or false expected, 'yes' given"),
        ("ops.enabled=1", "true or false expected, 1 given"),
        ("log.level=loud", "one of debug, info, warning, error expected, 'loud' given"),
        ("log.format=xml", "one of json, text expected"),
        ("server.host=", "a string expected"),
        ("server.trusted_proxies=10.0.0.0/8", 'a list of strings like ["A", "B"] expected'),
        ("server.trusted_proxies=[1]", 'a list of strings like ["A", "B"] expected, a list given'),
        ('server.cors_origins=["https://app.example/"]', "* or origins like https://app.example"),
        ('server.cors_origins=["https://a@app.example"]', "* or origins like"),
        ('server.cors_origins=["https://App.example"]', "* or origins like"),
        ('server.cors_origins=["app.example"]', "* or origins like"),
        ('server.cors_origins=["https://"]', "* or origins like"),
        ('server.cors_origins=["https://app.example:x"]', "* or origins like"),
        ('server.trusted_proxies=["10.0.0.1/8"]', "has host bits set"),
        ('server.trusted_proxies=["nowhere"]', "networks like 10.0.0.0/8"),
        ("server.public_url=gw.example", "an address like https://"),
        ("server.public_url=https://gw.example/v1", "without /v1"),
        ("server.public_url=https://gw.example/v1/messages/", "without /v1"),
        ("server.public_url=https://u:p@gw.example", "without user"),
        ("server.public_url=https://gw.example:x", "an address like https://"),
        ("money.currency=usd", "three capital letters"),
        ("store.url=sqlite://file", "sqlite:///FILE or mysql://"),
        ("store.url=sqlite:///", "sqlite:///FILE or mysql://"),
        ("store.url=sqlite:///:memory:", "a file is needed"),
    ],
)
def test_bad_values(text, message):
    (fault,) = faults(None, [text], {})
    assert fault.startswith("--set " + text.partition("=")[0] + ": ")
    assert message in fault


def test_a_password_is_never_quoted(file):
    secret = "hunter2hunter2"
    bad = f"postgres://u:{secret}@h/d"
    text = faults(file(f'store.url = "{bad}"\n'), [f"store.url={bad}"], {"SLUICE_STORE__URL": bad})
    assert len(text) == 3
    assert secret not in "".join(text)
    good = load(None, [f"store.url=mysql://u:{secret}@h/d"], {})
    assert secret not in repr(good) + repr(good.settings) + repr(good.settings.store)


def test_all_faults_at_once_with_place_and_nearest_name(file):
    path = file('[server]\nport = 8000\nworkrs = 2\n\n[log]\nlevle = "info"\nlevel = 3\n')
    text = faults(path, ["server.prot=1", "nonsense"], {"SLUICE_OPS__PORTS": "1"})
    assert text == [
        f"{path}:3: unknown setting server.workrs; did you mean server.workers?",
        f"{path}:6: unknown setting log.levle; did you mean log.level?",
        f"{path}:7: log.level: one of debug, info, warning, error expected, 3 given",
        "environment SLUICE_OPS__PORTS: unknown setting ops.ports; did you mean ops.port?",
        "--set server.prot: unknown setting server.prot; did you mean server.port?",
        "--set nonsense: section.key=value expected",
    ]


def test_unknown_sections_and_keys_at_the_top(file):
    path = file("workers = 2\n\n[upstraem]\nidle_timeout_s = 5\n")
    assert faults(path, (), {}) == [
        f"{path}:1: unknown setting workers; did you mean server.workers?",
        f"{path}:3: unknown section upstraem; did you mean upstream?",
    ]


@pytest.mark.parametrize(
    ("text", "line", "problem"),
    [
        ("[server]\nport =\n", 2, ""),
        ("a = 1\na = 2\n", 2, 'the key "a" is defined twice'),
        ('[log]\nlevel = "x', 2, ""),
        ("[server]\nport = 1\n\n[server]\nworkers = 2\n", 4, "the table [server] is defined twice"),
    ],
)
def test_syntax_errors_have_a_line(file, text, line, problem):
    path = file(text)
    (fault,) = faults(path, (), {})
    assert fault.startswith(f"{path}:{line}: ") and fault.endswith(problem)
    assert "at line" not in fault


def test_unreadable_files(file, tmp_path):
    assert faults(tmp_path / "none.toml", (), {}) == [
        f"{tmp_path}/none.toml: cannot be read: No such file or directory"
    ]
    path = file("")
    path.write_bytes(b"\xff")
    assert faults(path, (), {}) == [f"{path}: not UTF-8"]
    path.write_bytes(b"#" * (MAX_FILE_BYTES + 1))
    assert "larger than" in faults(path, (), {})[0]


def test_only_some_of_the_environment_is_read():
    environ = {"SLUICE_PYTHON": "x", "SERVER__PORT": "1", "SLUICE_SERVER_PORT": "2", "HOME": "/"}
    assert load(None, (), environ).settings == load(None, (), {}).settings


def test_relative_paths_start_at_the_folder_of_the_file(file, tmp_path, monkeypatch):
    monkeypatch.chdir("/")
    path = file('[journal]\ndir = "j"\n')
    loaded = load(path, ["store.url=sqlite:///data/a.db"], {"SLUICE_SECRETS_FILE": "s.toml"})
    assert loaded.settings.journal.dir == str(tmp_path / "j")
    assert loaded.settings.store.url == f"sqlite:///{tmp_path}/data/a.db"
    assert loaded.secrets_path == tmp_path / "s.toml"
    assert loaded.config_dir == tmp_path
    absolute = load(path, ["store.url=sqlite:////data/a.db", "journal.dir=/j"], {})
    assert absolute.settings.store.url == "sqlite:////data/a.db"
    assert absolute.settings.journal.dir == "/j"
    assert absolute.secrets_path == tmp_path / "secrets.toml"


def test_the_ops_port_leaves_this_machine_with_a_token_only(file):
    secret = "s3cret-token"
    for host in ("0.0.0.0", "::", "10.0.0.1", "gateway.internal", "::ffff:1.2.3.4"):
        (fault,) = faults(None, [f"ops.host={host}"], {})
        assert fault.startswith("--set ops.host: ") and "ops.token" in fault
        loaded = load(None, [f"ops.host={host}"], {"SLUICE_OPS__TOKEN": secret})
        assert loaded.settings.ops.token == secret and secret not in repr(loaded.settings)
        assert load(None, [f"ops.host={host}", "ops.enabled=false"], {})
    path = file('[ops]\nhost = "::"\n')
    assert faults(path, [], {})[0].startswith(f"{path}:2: ")


def test_on_loopback_it_needs_none_and_a_token_is_never_quoted():
    for host in ("127.0.0.1", "127.1.2.3", "::1", "localhost"):
        assert load(None, [f"ops.host={host}"], {}).settings.ops.token == ""
    for override in ("ops.token=s3cret token", "ops.token=s3cret\u00e9"):
        (fault,) = faults(None, [override], {})
        assert "ops.token" in fault and "s3cret" not in fault
    loaded = load(None, ['ops.hosts=["Gateway.Internal.", "10.0.0.7"]'], {})
    assert loaded.settings.ops.hosts == ("gateway.internal", "10.0.0.7")
    for bad in ('["gateway:9000"]', '["a b"]', '"gateway"', "[1]"):
        assert "ops.hosts" in faults(None, [f"ops.hosts={bad}"], {})[0]


def test_which_file_is_found(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=f"--config FILE or SLUICE_CONFIG.*{INIT}") as refused:
        find_config(None, {})
    assert str(tmp_path) in str(refused.value)
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "gateway.toml").touch()  # the sample's place in a checkout
    with pytest.raises(ConfigError):
        find_config(None, {"SLUICE_CONFIG": ""})
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "gateway.toml").touch()
    assert find_config(None, {}) == Path("run/gateway.toml")
    (tmp_path / "gateway.toml").touch()
    assert find_config(None, {}) == Path("gateway.toml")
    named = {"SLUICE_CONFIG": "/srv/gateway.toml"}
    assert find_config(None, named) == Path("/srv/gateway.toml")
    assert find_config(tmp_path / "other.toml", named) == tmp_path / "other.toml"


@pytest.mark.parametrize("name", [SAMPLE, "gateway.toml", "../conf/gateway.toml"])
def test_the_sample_is_never_a_configuration(name, monkeypatch):
    monkeypatch.chdir(SAMPLE.parent)
    with pytest.raises(ConfigError, match=INIT):
        load(Path(name), (), {})


BODY = (
    "server.body_memory_bytes {} is less than server.max_body_bytes {}: the largest body must fit"
)
SUMS = "usage.keep_sums_days {} is less than usage.keep_days ({}): sums are kept as long as records"


@pytest.mark.parametrize(
    ("overrides", "fault"),
    [
        (["server.port=9000"], "ops.port 9000 is also server.port"),
        (["server.body_memory_bytes=1_000_000"], BODY.format(1000000, 33554432)),
        (["server.max_body_bytes=300_000_000"], BODY.format(268435456, 300000000)),
        (["usage.keep_sums_days=30"], SUMS.format(30, "forever")),
        (["usage.keep_sums_days=30", "usage.keep_days=31"], SUMS.format(30, 31)),
        (["hub.port=9000", "ops.host=0.0.0.0"], None),
    ],
)
def test_settings_that_exclude_each_other(overrides, fault):
    found = faults(None, overrides, {})
    place = overrides[0].partition("=")[0]
    assert found and (fault is None or found == [f"--set {place}: {fault}"])


def test_settings_that_go_together():
    for overrides in (
        ["server.port=9000", "ops.enabled=false"],
        ["server.port=9000", "ops.host=10.0.0.1", "ops.token=t"],
        ["usage.keep_sums_days=30", "usage.keep_days=30"],
        ["usage.keep_days=30"],
    ):
        assert load(None, overrides, {})


def test_without_values_it_says_nothing_and_shows_everything(file):
    text = sample_text({})
    assert all(not section for section in tomllib.loads(text).values())
    uncommented = "".join(
        line[1:] if line.startswith("#") and line[1:2].strip() else line
        for line in text.splitlines(keepends=True)
    )
    loaded = load(file(uncommented), (), {})
    assert loaded.settings == load(file(""), (), {}).settings
    assert {name for name, origin in loaded.origins.items() if origin != "default"} == {*SETTINGS}
    values = {"server.port": 1, "ops.port": 2, "server.trusted_proxies": ("::1",)}
    document = tomllib.loads(sample_text(values))
    assert document["server"] == {"port": 1, "trusted_proxies": ["::1"]}
    assert (document["ops"], document["hub"]) == ({"port": 2}, {})
