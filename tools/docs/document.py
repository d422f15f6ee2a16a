"""The generator of docs/document.md: the possible content of the document of `apply`, from its
types.
"""

from collections.abc import Iterator
from typing import Any

from conf.values import toml
from store.admin.kinds import KINDS, REQUIRED, Field
from store.values.features import FEATURES, Feature

PAGE = "docs/document.md"

_HEAD = """\
# The document of `apply`

Made by `make docs` from the table in store/admin/kinds.py; do not edit.

A document lists models, groups, channels, users, plans, subscriptions and keys. One with
everything, `setup.toml`, is at the end of this page.

    ./sluice apply setup.toml --dry-run    # what would change, and all errors
    ./sluice apply setup.toml
    ./sluice export > now.toml             # the content of the store, without secrets

It is TOML, or JSON with the same names (an object of lists). All of it is applied or nothing; all
errors are reported at once, for TOML with their lines. A running gateway picks it up within 2 s.

**Entries are identified by name.** Applying twice changes nothing. A new entry is created, with
defaults for omitted fields; in an existing one only the given fields change. Objects that are not
in the document stay, or are removed with `--prune` (including users and their keys; wallets and
ledger stay). A name cannot be changed.

**Money** and multipliers are decimal strings; a TOML number is taken literally.

## Values from elsewhere: `env:` and `file:`

A string `"env:NAME"` anywhere in the document is replaced by the variable `NAME`, a string
`"file:PATH"` by the content of the file without trailing line ends; a relative path starts at the
folder of the document (for `-`: the current one). Both are read **by `apply`, when it runs**, from
the environment of its own shell. The values are stored, upstream keys encrypted, keys and passwords
as digests. A gateway never reads the variables or files: when one changes, apply again. `apply`
does not see a variable that is set only for the service, as in its unit. The same applies to
`FIELD=env:NAME` of single commands.
"""

# A test applies it.
EXAMPLE = """\
[[model]]
name = "gpt-4.1"
context_tokens = 1000000
max_output_tokens = 32768
[model.price]                            # per million tokens
input = "2.00"
output = "8.00"
cache_read = "0.50"

[[model]]
name = "llama"
price = { input = "0", output = "0" }    # free, also for an empty wallet

[[group]]
name = "default"

[[group]]
name = "trial"
multiplier = "1.5"
models = ["llama"]
entries = ["chat_completions"]
rpm = 20
tpm = 40000
concurrency = 2
translate = false

[[channel]]
name = "openai-main"
vendor = "openai"
family = "chat_completions"
base_url = "https://api.openai.com"
keys = ["env:OPENAI_API_KEY", "file:second.key"]
models = { "gpt-4.1" = "gpt-4.1-2025-04-14" }
priority = 10
key_rpm = 500
extra_headers = { OpenAI-Organization = "env:OPENAI_ORGANIZATION" }

[[channel]]
name = "at-home"
vendor = "ollama"
family = "chat_completions"
base_url = "http://127.0.0.1:11434"
groups = ["default", "trial"]
models = { "llama" = "llama3.2" }
concurrency = 4
options = { images = false, thinking = "none" }

[[user]]
name = "alice"
role = "admin"
balance = "10.00"
password = "env:ALICE_PASSWORD"
order = "wallet_first"

[[plan]]
name = "monthly"
quota = "20.00"
window = "month"
days = 365

[[subscription]]
user = "alice"
plan = "monthly"

[[key]]
user = "alice"
name = "laptop"
limit = "5.00"
limit_window = "week"

[[key]]
user = "alice"
name = "visitor"
group = "trial"
expires_at = "2099-01-01T00:00:00Z"
networks = ["10.0.0.0/8"]
rpm = 10
"""

_EXAMPLE_HEAD = """\
## An example with everything

`setup.toml`, beside a file `second.key`, with the variables `OPENAI_API_KEY`,
`OPENAI_ORGANIZATION` and `ALICE_PASSWORD` set:
"""

_FEATURES_HEAD = """\
### Features

The words of `features`: what a request may ask for beyond text and the client's own functions.
`"*"` is all of them, `"-NAME"` takes one away from the others of the list. A request for what the
group lacks gets 403 `feature_not_allowed` with the path of the field, before any vendor is asked.
A hosted tool that the request does not force is left out of a translated call instead, and named in
`x-sluice-dropped`. Without `stored` an absent `store` is sent as false. While the model lacks the
price of the last column, a request gets 403 `feature_unpriced`, for hosted tools only if
`money.unpriced` is `"refuse"` ([settings.md](settings.md)).

| feature | asked for | priced by |
|---|---|---|"""


def page() -> str:
    """Return the text of docs/document.md."""
    lines = [_HEAD]
    for kind, spec in KINDS.items():
        lines += [f"## {kind}", "", f"`[[{kind}]]`: {spec.about}", ""]
        lines += ["| field | value | default | meaning |", "|---|---|---|---|"]
        for name, form in spec.identity.items():
            lines.append(f"| `{name}` | {form.form} | needed | Identity. |")
        lines += [_row(name, field) for name, field in spec.fields.items()]
        lines.append("")
        if kind == "group":
            lines += [_FEATURES_HEAD, *map(_feature, FEATURES.values()), ""]
    lines += [_EXAMPLE_HEAD, "```toml", EXAMPLE + "```"]
    return "\n".join(lines) + "\n"


def _feature(feature: Feature) -> str:
    price = f"`price.{feature.meter}`" if feature.meter else ""
    if not price and feature.dearer:
        condition, _, word = feature.name.partition(".")
        price = f'a rate `when = {{ {condition} = "{word or "…"}" }}`'
    return f"| `{feature.name}` | {feature.about} | {price or '–'} |"


def _row(name: str, field: Field) -> str:
    remarks = "".join(_remarks(field))
    cells = (f"`{name}`", field.type.form, _default(field), f"{field.meaning}{remarks}")
    return f"| {' | '.join(cells)} |"


def _remarks(field: Field) -> Iterator[str]:
    if field.secret:
        yield " Secret: stored encrypted or as a digest, omitted by `export`."
    if field.once:
        yield " Omitted by `export`."


def _default(field: Field) -> str:
    if field.default is REQUIRED:
        return "needed"
    if field.default is None:
        return field.missing
    return f"`{_shown(field.type.plain(field.default))}`"


def _shown(value: Any) -> str:
    return "{}" if value == {} else toml(value)
