"""The text of a gateway.toml: every setting with its meaning, the defaults commented out.

conf/gateway.toml is this text without values; `init` writes it with the values of --set. A line
that begins with # and no blank is a setting to uncomment.
"""

from collections.abc import Mapping

from conf.settings import SECTIONS, SETTINGS, Settings
from conf.values import toml

_HEAD = """\
# Sluice, one gateway. Lines that begin with # and no blank show the defaults; uncomment to change.
# The environment (SLUICE_SERVER__PORT=8000) and --set server.port=8000 override this file.
# Relative paths start at the folder of this file. After a change: ./sluice check --config FILE
"""


def text(values: Mapping[str, object]) -> str:
    """The complete file, with `values` (section.key: value) set."""
    parts = [_HEAD]
    for section in SECTIONS:
        title = (type(getattr(Settings(), section)).__doc__ or "").strip()
        parts.append(f"\n[{section}]\n# {title}\n")
        for name, row in SETTINGS.items():
            if row.section == section:
                value = values.get(name, row.default)
                mark = "" if name in values else "#"
                parts.append(f"# {row.description}\n{mark}{row.key} = {toml(value)}\n")
    return "".join(parts)
