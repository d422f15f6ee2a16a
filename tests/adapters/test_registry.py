"""The tables of families and vendors."""

import pathlib
import re

from adapters import registry
from adapters.registry import FAMILIES, FAMILY_NAMES, VENDORS


def test_built_families_are_named_and_have_paths_of_their_own():
    assert set(FAMILIES) <= set(FAMILY_NAMES)
    assert all(FAMILIES[name].name == name for name in FAMILIES)
    paths = [family.upstream_path(False) for family in FAMILIES.values()]
    assert len(set(paths)) == len(paths)
    for family in FAMILIES.values():
        assert family.credentials and all(name == name.lower() for name in family.credentials)
        assert family.endpoint == family.upstream_path(counting=False)
        if family.counting_endpoint is not None:
            assert family.upstream_path(counting=True) == family.counting_endpoint


def test_vendors():
    assert set(VENDORS) >= {"openai", "anthropic", "gemini", "openai-compatible", "demo"}
    for name, vendor in VENDORS.items():
        assert vendor.name == name and vendor.families <= set(FAMILY_NAMES)
    assert VENDORS["demo"].families == set(FAMILY_NAMES)
    assert [v.name for v in VENDORS.values() if v.forward_openai_headers] == ["openai"]


def test_nothing_but_the_registry_knows_which_families_there_are():
    package = pathlib.Path(registry.__file__).parent
    names = re.compile("|".join(FAMILY_NAMES))
    for path in package.rglob("*.py"):
        if path.name == "registry.py":
            continue
        own = path.parent.name
        for line in path.read_text().splitlines():
            if line.startswith(("import ", "from ")):
                assert set(names.findall(line)) <= {own}, (path, line)
