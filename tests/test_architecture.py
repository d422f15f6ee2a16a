"""The rules of the code base that a program can hold: imports, sizes, docstrings, names."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("adapters", "commands", "conf", "demo", "handlers", "store")

MAX_FILE_LINES = 600
MAX_APP_LINES = 150
MAX_FUNCTION_LINES = 70
MAX_PARAMETERS = 5
MAX_PUBLIC_METHODS = 12
BANNED_NAMES = {"utils", "helpers", "common", "manager", "util", "helper"}

# What a package may import besides the standard library. Ours: by prefix of the module's name.
ALLOWED = {
    "adapters": {"adapters", "msgspec"},
    "adapters.jsonio": {"adapters", "msgspec", "ujson"},
    "store": {"store", "peewee", "playhouse", "pymysql", "msgspec", "cryptography", "argon2"},
    "conf": {"conf", "msgspec"},
    "handlers": {"handlers", "adapters", "store", "conf.settings", "tornado", "msgspec"},
    "handlers.http.connection": {"handlers", "adapters", "tornado", "httptools"},
    "handlers.http.request": {"tornado", "httptools"},
    "handlers.relay": {
        *("handlers.relay", "handlers.telemetry", "adapters", "store", "conf.settings", "tornado"),
        "msgspec",
    },
    "handlers.relay.upstream": {
        *("handlers.relay", "handlers.telemetry", "adapters", "store", "tornado", "pycurl"),
        "msgspec",
    },
    "demo": {"demo"},
    "commands": {"commands", "demo", "handlers", "adapters", "store", "conf", "app"}
    | {"click", "msgspec", "peewee", "tornado", "uvloop"},
    "app": set(),
}
SUPERVISOR = ("supervisor", "child", "listeners", "log_lines", "node", "ops_guard", "ops_server")
FAMILIES = ("chat_completions", "responses", "messages", "generate_content")
for name in SUPERVISOR:
    ALLOWED[f"commands.process.{name}"] = {
        "conf",
        *(f"commands.process.{other}" for other in SUPERVISOR),
    }


def modules() -> dict[str, Path]:
    found = {"app": ROOT / "app.py"}
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            found[name.removesuffix(".__init__")] = path
    return found


MODULES = modules()
TREES = {name: ast.parse(path.read_text()) for name, path in MODULES.items()}
every_module = pytest.mark.parametrize("name", sorted(MODULES))


def imports(name: str) -> Iterator[tuple[str, int]]:
    """Everything a module imports; `from a import b` is a.b when that is a module of ours."""
    for node in ast.walk(TREES[name]):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name}:{node.lineno}: relative import"
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                yield (full if full in MODULES else node.module or ""), node.lineno


def rule_of(name: str) -> set[str]:
    while name not in ALLOWED:
        name = name.rpartition(".")[0]
    return ALLOWED[name]


def within(module: str, prefixes: set[str]) -> bool:
    return any(module == prefix or module.startswith(prefix + ".") for prefix in prefixes)


@every_module
def test_imports_follow_the_layers(name):
    allowed = rule_of(name)
    for module, line in imports(name):
        if module.partition(".")[0] not in sys.stdlib_module_names:
            # the modules of a package may share what stands in its __init__
            own = module == name.rpartition(".")[0]
            assert own or within(module, allowed), f"{name}:{line} imports {module}"


@every_module
def test_families_do_not_know_each_other(name):
    for family in FAMILIES:
        if within(name, {f"adapters.{family}"}):
            others = {f"adapters.{other}" for other in FAMILIES if other != family}
            for module, line in imports(name):
                assert not within(module, others), f"{name}:{line} imports {module}"


@every_module
def test_imports_stand_at_the_top(name):
    for node in ast.walk(TREES[name]):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            inner = [one for one in ast.walk(node) if isinstance(one, (ast.Import, ast.ImportFrom))]
            assert not inner, f"{name}:{inner[0].lineno}: import inside {node.name}"


def test_no_circles():
    edges = {name: {m for m, _ in imports(name) if m in MODULES and m != name} for name in MODULES}
    done: set[str] = set()

    def visit(name: str, path: tuple[str, ...]) -> None:
        assert name not in path, " -> ".join((*path[path.index(name) :], name))
        if name not in done:
            for other in sorted(edges[name]):
                visit(other, (*path, name))
            done.add(name)

    for name in sorted(edges):
        visit(name, ())


@every_module
def test_files_are_documented_and_small(name):
    if MODULES[name].stat().st_size == 0:
        return
    assert ast.get_docstring(TREES[name]), f"{name} has no module docstring"
    lines = MODULES[name].read_text().count("\n")
    assert lines <= (MAX_APP_LINES if name == "app" else MAX_FILE_LINES)


@every_module
def test_names_say_something(name):
    assert not set(name.split(".")) & BANNED_NAMES


@every_module
def test_functions_and_classes_are_small(name):
    for node in ast.walk(TREES[name]):
        where = f"{name}:{getattr(node, 'lineno', 0)}"
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            lines = (node.end_lineno or 0) - node.lineno + 1
            assert lines <= MAX_FUNCTION_LINES, f"{where}: {node.name} has {lines} lines"
            if not is_click_command(node):
                given = node.args.posonlyargs + node.args.args  # named ones explain themselves
                count = len([one for one in given if one.arg not in ("self", "cls")])
                assert count <= MAX_PARAMETERS, f"{where}: {node.name} has {count} parameters"
        elif isinstance(node, ast.ClassDef):
            public = [
                one.name
                for one in node.body
                if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef))
                and not (one.name.startswith("_") or one.decorator_list)
            ]
            assert len(public) <= MAX_PUBLIC_METHODS, f"{where}: {node.name} has {len(public)}"


def is_click_command(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Its parameters are the options of a command line, which may be many."""
    return any(
        "option" in ast.unparse(one) or "command" in ast.unparse(one) for one in node.decorator_list
    )


@every_module
def test_public_functions_of_the_pure_packages_are_documented(name):
    if not within(name, {"adapters", "store"}):
        return
    for node in TREES[name].body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            public = not node.name.startswith("_")
            assert not public or ast.get_docstring(node), f"{name}:{node.lineno} {node.name}"


def test_tests_are_no_package():
    assert not list((ROOT / "tests").rglob("__init__.py"))
