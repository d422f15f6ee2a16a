"""The tables of families and vendors."""

import itertools
import pathlib
import re

import pytest

from adapters import registry
from adapters.codecs import TRANSLATORS
from adapters.registry import FAMILIES, FAMILY_NAMES, VENDORS


def test_built_families_are_named_and_have_paths_of_their_own():
    assert set(FAMILIES) <= set(FAMILY_NAMES)
    assert all(FAMILIES[name].name == name for name in FAMILIES)
    paths = [
        {o.endpoint for o in family.client.operations.values()} for family in FAMILIES.values()
    ]
    assert len(set.union(*paths)) == sum(map(len, paths))
    for family in FAMILIES.values():
        assert family.client.credentials and all(
            name == name.lower() for name in family.client.credentials
        )
        for operation in family.client.operations.values():
            path = family.upstream.path(operation, "up/m", "x_1").partition("?")[0]
            assert path in (operation.endpoint.format(model="up/m", id="x_1"), operation.endpoint)


@pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)
def test_a_clients_job_finds_the_operation_of_every_upstream(family):
    of_events = {
        name: operation.job
        for name, operation in family.client.operations.items()
        if operation.framing != "json_array"
    }
    assert list(of_events) == list(of_events.values()) and "generate" in of_events
    jobs = {operation.job for operation in family.client.operations.values()}
    assert jobs | {"generate", "stream", "list_models"} <= family.upstream.operations.keys()


def test_vendors():
    assert len(VENDORS) == 33
    assert {*VENDORS} >= {
        *("openai", "anthropic", "gemini", "azure-openai", "openrouter", "deepseek", "groq"),
        *("ollama", "openai-compatible", "demo"),
    }
    for name, vendor in VENDORS.items():
        assert vendor.name == name and set() < vendor.families <= set(FAMILY_NAMES)
        assert vendor.roots.keys() <= vendor.families
        assert all(re.fullmatch(r"(/[a-z0-9-]+)*", root) for root in vendor.roots.values())
    assert VENDORS["demo"].families == set(FAMILY_NAMES)
    assert [v.name for v in VENDORS.values() if v.forward_openai_headers] == ["openai"]


def test_nothing_but_the_tables_knows_which_families_there_are():
    package = pathlib.Path(registry.__file__).parent
    names = re.compile("|".join(FAMILY_NAMES))
    tables = {package / name for name in ("registry.py", "codecs.py", "endpoints/table.py")}
    paths = [path for path in package.rglob("*.py") if path not in tables]
    assert len(paths) > 4 * 10
    for path in paths:
        own = set(path.relative_to(package).parts)
        for line in path.read_text().splitlines():
            if line.startswith(("import ", "from ")):
                assert set(names.findall(line)) <= own, (path, line)


def test_of_each_pair_of_families_it_is_known_how_much_is_lost():
    pairs = set(itertools.permutations(FAMILY_NAMES, 2))
    assert set(registry.LOSSES) == pairs and min(registry.LOSSES.values()) > 0
    assert registry.LOSSES.keys() == TRANSLATORS.keys()
