"""The checked-in table of what passes in which cell of the matrix: table.json, for the docs.

`{case: {client: {upstream: [modes that pass]}}}`. With SLUICE_WRITE_MATRIX=1 the tests write it.
"""

import json
from pathlib import Path

from tests.translation.cases import CASES, not_asked
from tests.translation.world import FAMILIES

PATH = Path(__file__).with_name("table.json")
MODES = ("plain", "stream")
# case, client, upstream, mode
CELLS = [
    (case, client, upstream, mode)
    for case in CASES
    for client in FAMILIES
    for upstream in FAMILIES
    for mode in MODES
    if not not_asked(case, client, mode == "stream")
]
IDS = [" ".join(cell) for cell in CELLS]


def passing() -> set[tuple[str, str, str, str]]:
    """The cells that the table has."""
    return {
        (case, client, upstream, mode)
        for case, of_case in json.loads(PATH.read_text()).items()
        for client, of_client in of_case.items()
        for upstream, modes in of_client.items()
        for mode in modes
    }


def write(passed: set[str]) -> None:
    """Write the table anew from the ids of the cells that have passed."""
    found = {
        case: {
            client: {
                upstream: [mode for mode in MODES if f"{case} {client} {upstream} {mode}" in passed]
                for upstream in FAMILIES
            }
            for client in FAMILIES
        }
        for case in CASES
    }
    lines = [
        f'"{case}": {{\n '
        + ",\n ".join(f"{json.dumps(client)}: {json.dumps(row)}" for client, row in rows.items())
        + "\n}"
        for case, rows in found.items()
    ]
    PATH.write_text("{" + ",\n".join(lines) + "}\n")
