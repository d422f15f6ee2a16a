"""Output of commands fits a terminal of 80 columns."""

from tests.commands.conftest import record

WIDTH = 80
LONG = "a-name-of-a-team-that-is-a-little-longer-than-others-have"
COMMANDS = (
    *("user list", "group list", "model list", "channel list", "plan list", "key list"),
    *("channel show main", "user show alice", "usage tail", "usage stats --by day,model,key"),
    *("usage stats --by user,outcome", "wallet show --user alice", "wallet ledger --user alice"),
    *("status --settings --origin", "check --settings --origin", "migrate status", "code list"),
    *("secrets status", "token list", "doctor", "subscription list"),
)


def test_it_fits(filled, monkeypatch):
    user = {"name": LONG, "balance": "12345678.123456789", "groups": ["default", LONG]}
    key = {"user": LONG, "name": LONG, "group": LONG}
    filled.apply({"group": [{"name": LONG}], "user": [user], "key": [key]})
    filled.ok("code", "create", "--amount", "5")
    filled.write_records(record(1), record(2, user=LONG, key_name=LONG, model=LONG))
    monkeypatch.setenv("COLUMNS", str(WIDTH))
    for command in COMMANDS:
        ended = filled.run(*command.split())
        assert ended.code == 0 and ended.out, (command, ended.err)
        for line in ended.out.splitlines():
            # Paths cannot be broken; `doctor` keeps paths and addresses whole.
            assert len(line) <= WIDTH or str(filled.folder) in line, (command, line)
