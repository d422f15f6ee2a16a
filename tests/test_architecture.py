"""Rules of the code base that a program can check: imports, sizes, docstrings, names."""

import ast
import functools
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.packages import PACKAGES

ROOT = Path(__file__).resolve().parents[1]

MAX_FILE_LINES = 600
MAX_APP_LINES = 150
MAX_FOLDER_FILES = 25
MAX_FUNCTION_LINES = 70
MAX_PARAMETERS = 5
MAX_PUBLIC_METHODS = 12
LARGE_FOLDERS = {"commands/nouns"}  # a file for each noun
BANNED_NAMES = {"utils", "helpers", "common", "manager", "util", "helper"}

# Figures that may only fall: if you lower one, write the new figure here.
MOST = {
    "files of 40 lines or less": 8,
    "modules in the longest import chain": 19,
    "docstrings that begin with a question word": 0,
    "assignments to words that name nothing": 5,
}
SMALL_FILE_LINES = 40
QUESTION = re.compile(
    r"((For|By|From|In|To) (whom|which)|What|Whether|Who|Whose|Whom|How|Where|Which|Why|When)\b"
)
WORDS_THAT_NAME_NOTHING = {
    *("found", "one", "said", "told", "wanted", "given", "shown", "cure", "asked", "met", "typed"),
    *("made", "known", "gone", "taken", "kept", "trouble", "some", "there", "able", "others"),
}

# What a package may import besides the standard library; own modules by the prefix of their name.
BELOW_FAMILIES = {
    f"adapters.{room}" for room in ("family", "ir", "framing", "json", "faults", "upstream_errors")
} | {"store.values.usage", "store.values.features"}
ALLOWED = {
    "adapters": {"adapters", "store.values.usage", "store.values.features", "msgspec"},
    "adapters.faults": {"adapters.faults"},
    "adapters.framing": {"adapters.framing"},
    "adapters.ir": {"adapters.ir", "adapters.json"},
    "adapters.json": {"adapters.json", "adapters.faults"},
    "adapters.json.jsonio": {"adapters.json", "adapters.faults", "msgspec", "ujson"},
    "adapters.upstream_errors": {"adapters.upstream_errors", "adapters.json", "adapters.faults"},
    "adapters.family": BELOW_FAMILIES,
    "adapters.openai": BELOW_FAMILIES | {"adapters.openai"},
    "store": {"store"},
    "store.values": {"store.values", "msgspec", "cryptography", "argon2"},
    "store.db": {"store.db", "store.values", "peewee", "pymysql"},
    "store.catalog": {"store.catalog", "store.db", "store.values", "peewee"},
    "store.hub": {"store.hub", "store.money", "store.catalog", "store.db", "store.values"}
    | {"peewee"},
    "store.money": {"store.money", "store.catalog", "store.db", "store.values"}
    | {"msgspec", "peewee"},
    "store.channels": {"store.channels", "store.catalog", "store.db", "store.values"}
    | {"msgspec", "peewee"},
    "store.calls": {"store.calls", "store.money", "store.channels", "store.catalog", "store.db"}
    | {"store.values", "msgspec", "peewee"},
    "store.alerts": {"store.alerts", "store.channels", "store.money", "store.catalog", "store.db"}
    | {"store.values", "peewee"},
    "store.upkeep": {
        "store.upkeep",
        "store.alerts",
        "store.calls",
        "store.channels",
        "store.hub",
        "store.money",
    }
    | {"store.catalog", "store.db", "store.values", "peewee"},
    "store.copies": {"store.copies", "store.calls", "store.channels", "store.money", "store.db"}
    | {"store.values", "peewee", "pymysql"},
    "store.admin": {"store.admin", "store.hub", "store.money", "store.catalog", "store.db"}
    | {"store.values", "peewee"},
    "conf": {"conf", "msgspec"},
    "handlers": {"handlers", "adapters", "store", "conf.settings", "tornado", "msgspec"},
    "handlers.telemetry": {"handlers.telemetry", "adapters.json", "store.values", "conf.metrics"}
    | {"msgspec"},
    "handlers.telemetry.otlp": {"handlers.telemetry", "store.values", "opentelemetry"},
    "handlers.telemetry.channel_gauges": {"handlers.relay.routing", "store.catalog.catalog"},
    "handlers.http": {"handlers.http", "conf.settings", "tornado", "httptools"},
    "handlers.entries": {
        *("handlers.entries", "handlers.http", "handlers.relay", "handlers.telemetry", "adapters"),
        *("handlers.client_address", "store", "conf.settings", "tornado"),
    },
    "handlers.entries.unpack": {"adapters.faults", "backports", "brotli", "compression", "msgspec"},
    # reads the length of a sound from its header
    "handlers.entries.upload": {
        *("handlers.entries", "handlers.relay", "adapters", "store.catalog.keys", "tinytag"),
        "msgspec",
    },
    "handlers.relay": {
        *("handlers.relay", "handlers.telemetry", "handlers.client_address", "adapters", "store"),
        *("conf.settings", "conf.metrics", "tornado", "msgspec"),
    },
    "handlers.relay.upstream": {
        *("handlers.relay.upstream", "adapters", "store.catalog.catalog", "tornado", "pycurl"),
        "msgspec",
    },
    "handlers.relay.limits": {"handlers.relay.limits", "adapters", "store.catalog", "msgspec"},
    "handlers.relay.limits.remote": {"handlers.relay.limits", "msgspec", "redis", "hiredis"},
    "handlers.relay.routing": {
        *("handlers.relay.routing", "handlers.relay.limits", "handlers.relay.upstream"),
        *("adapters", "store", "conf.settings", "msgspec"),
    },
    # peewee: the type of an open store
    "operations": {
        *("operations", "handlers.relay.routing", "handlers.relay.limits"),
        *("handlers.relay.upstream", "handlers.relay.admit", "handlers.relay.call"),
        *("handlers.relay.faults", "adapters", "store", "conf.settings", "peewee"),
    },
    # peewee: the type of an open store; jwt and segno are loaded by name
    "handlers.hub": {
        *("handlers.hub", "handlers.client_address", "operations", "adapters", "store"),
        *("conf.settings", "tornado", "peewee", "msgspec", "pyotp"),
    },
    "handlers.hub.web": {
        *("handlers.hub.web", "handlers.client_address", "store", "conf.settings", "tornado"),
        *("operations", "peewee", "msgspec"),
    },
    "handlers.hub.http": {
        *("handlers.hub.http", "handlers.hub.web", "handlers.http.connection"),
        *("handlers.http.request", "handlers.http.server", "handlers.client_address", "store.hub"),
        *("store.values", "tornado"),
    },
    "handlers.hub.openapi": {"handlers.hub.openapi", "handlers.hub.web", "store"},
    "demo": {"demo", "tornado"},
    "commands": {"commands", "demo", "handlers", "operations", "adapters", "store", "conf", "app"}
    | {"click", "msgspec", "peewee", "tornado", "uvloop"},
    "app": set(),
}
SUPERVISOR = (
    *("supervisor", "child", "listeners", "logs", "metrics", "node", "notifier", "ops_answers"),
    *("ops_server", "worker_state"),
)
SELF = ("self", "cls")
FAMILIES = ("chat_completions", "responses", "messages", "generate_content")
for family in FAMILIES:
    ALLOWED[f"adapters.{family}"] = BELOW_FAMILIES | {"adapters.openai", f"adapters.{family}"}
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
FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)


@functools.cache
def trees() -> dict[str, ast.Module]:
    return {name: ast.parse(path.read_text()) for name, path in MODULES.items()}


@functools.cache
def nodes_by_kind() -> dict[type, list[tuple[str, Any]]]:
    kinds: dict[type, list[tuple[str, Any]]] = defaultdict(list)
    for name, tree in trees().items():
        for node in ast.walk(tree):
            kinds[type(node)].append((name, node))
    return kinds


@functools.cache
def all_imports() -> dict[str, list[tuple[str, int]]]:
    modules: dict[str, list[tuple[str, int]]] = defaultdict(list)
    for name, node in nodes_by_kind()[ast.Import]:
        modules[name] += ((alias.name, node.lineno) for alias in node.names)
    for name, node in nodes_by_kind()[ast.ImportFrom]:
        assert node.level == 0, f"{name}:{node.lineno}: relative import"
        for alias in node.names:
            full = f"{node.module}.{alias.name}"
            modules[name].append((full if full in MODULES else node.module, node.lineno))
    return modules


def imports(name: str) -> list[tuple[str, int]]:
    """Return everything that a module imports; `from a import b` is a.b if that is a module of
    ours."""
    return all_imports().get(name, [])


def nodes(*kinds: type[ast.AST]) -> Iterator[tuple[str, Any]]:
    """Yield every node of these kinds, each with its place as a text."""
    for kind in kinds:
        for name, node in nodes_by_kind()[kind]:
            yield f"{name}:{node.lineno} {getattr(node, 'name', '')}", node


def rule_of(name: str) -> set[str]:
    while name not in ALLOWED:
        name = name.rpartition(".")[0]
    return ALLOWED[name]


def within(module: str, prefixes: set[str]) -> bool:
    return any(module == prefix or module.startswith(prefix + ".") for prefix in prefixes)


def none(offenders: Iterable[str]) -> None:
    """Fail with all offenders, one a line."""
    found = list(offenders)
    assert not found, "\n" + "\n".join(found)


def at_most(most: int, unit: str, counts: dict[str, int]) -> None:
    none(f"{where} has {count} {unit}" for where, count in counts.items() if count > most)


def test_imports_follow_the_layers():
    none(
        f"{name}:{line} imports {module}"
        for name in MODULES
        for module, line in imports(name)
        if module.partition(".")[0] not in sys.stdlib_module_names
        # the modules of a package may share its __init__
        and module != name.rpartition(".")[0]
        and not within(module, rule_of(name))
    )


def test_imports_stand_at_the_top():
    lines = {
        (name, line)
        for kind in FUNCTION
        for name, node in nodes_by_kind()[kind]
        for line in range(node.lineno, (node.end_lineno or 0) + 1)
    }
    none(
        f"{n}:{line} import inside" for n in MODULES for _, line in imports(n) if (n, line) in lines
    )


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


def test_no_circle_between_folders():
    """A package and one below it count as two folders."""
    edges: dict[Path, set[Path]] = {path.parent: set() for path in MODULES.values()}
    for name, path in MODULES.items():
        known = (MODULES[module].parent for module, _ in imports(name) if module in MODULES)
        edges[path.parent].update(folder for folder in known if folder != path.parent)

    def reached_from(folder: Path) -> set[Path]:
        found: set[Path] = set()
        new = [folder]
        while new:
            following = edges[new.pop()] - found
            found |= following
            new += following
        return found

    reached = {folder: reached_from(folder) for folder in edges}
    none(
        f"{one.relative_to(ROOT)} <-> {other.relative_to(ROOT)}"
        for one in sorted(edges)
        for other in sorted(edges[one])
        if one in reached[other]
    )


def test_folders_and_files_are_small():
    paths = [path for path in MODULES.values() if path.name != "__init__.py"]
    files = Counter(str(path.parent.relative_to(ROOT)) for path in paths)
    at_most(MAX_FOLDER_FILES, "files", {k: v for k, v in files.items() if k not in LARGE_FOLDERS})
    lines = {name: path.read_text().count("\n") for name, path in MODULES.items()}
    at_most(MAX_APP_LINES, "lines", {"app": lines.pop("app")})
    at_most(MAX_FILE_LINES, "lines", lines)


def test_modules_are_documented():
    none(
        f"{name} has no docstring"
        for name, tree in trees().items()
        if tree.body and not ast.get_docstring(tree)
    )


def small_files() -> list[str]:
    return [
        name
        for name, path in MODULES.items()
        if path.name != "__init__.py"
        and path.parent.name != "nouns"
        and path.read_text().count("\n") <= SMALL_FILE_LINES
    ]


def longest_chain() -> list[str]:
    """Return the longest list of modules each of which imports the next one."""
    chains: dict[str, list[str]] = {}

    def chain_of(name: str) -> list[str]:
        if name not in chains:
            below = {module for module, _ in imports(name) if module in MODULES} - {name}
            chains[name] = [name, *max(map(chain_of, sorted(below)), key=len, default=[])]
        return chains[name]

    return max(map(chain_of, sorted(MODULES)), key=len)


def questions() -> list[str]:
    return [
        f"{where}: {text.splitlines()[0]}"
        for where, node in nodes(*FUNCTION, ast.ClassDef)
        if (text := ast.get_docstring(node)) and QUESTION.match(text)
    ]


def empty_words() -> list[str]:
    return [
        f"{where}{node.id}"
        for where, node in nodes(ast.Name)
        if node.id in WORDS_THAT_NAME_NOTHING and isinstance(node.ctx, ast.Store)
    ]


@pytest.mark.parametrize(
    ("figure", "measure"),
    list(zip(MOST, (small_files, longest_chain, questions, empty_words), strict=True)),
)
def test_figures_only_fall(figure, measure):
    offenders = measure()
    assert len(offenders) <= MOST[figure], "\n".join([f"{figure}: more than here", *offenders])


def test_names_say_something():
    none(name for name in MODULES if set(name.split(".")) & BANNED_NAMES)


def test_functions_are_short():
    lines = {where: node.end_lineno - node.lineno + 1 for where, node in nodes(*FUNCTION)}
    at_most(MAX_FUNCTION_LINES, "lines", lines)


def test_functions_take_few_parameters():
    counts = {
        # keyword-only ones explain themselves
        where: len([one for one in node.args.posonlyargs + node.args.args if one.arg not in SELF])
        for where, node in nodes(*FUNCTION)
        if not is_click_command(node)
    }
    at_most(MAX_PARAMETERS, "parameters", counts)


def test_classes_have_few_public_methods():
    def is_public(one: ast.stmt) -> bool:
        return isinstance(one, FUNCTION) and not (one.name.startswith("_") or one.decorator_list)

    counts = {where: sum(map(is_public, node.body)) for where, node in nodes(ast.ClassDef)}
    at_most(MAX_PUBLIC_METHODS, "public methods", counts)


def is_click_command(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Return True for a click command: its parameters are the options of a command line, which may
    be many."""
    return any(
        "option" in ast.unparse(one) or "command" in ast.unparse(one) for one in node.decorator_list
    )


def test_public_functions_of_the_pure_packages_are_documented():
    none(
        f"{name}:{node.lineno} {node.name}"
        for name, tree in trees().items()
        if within(name, {"adapters", "store"})
        for node in tree.body
        if isinstance(node, (*FUNCTION, ast.ClassDef))
        and not (node.name.startswith("_") or ast.get_docstring(node))
    )


def test_tests_are_no_package():
    assert not list((ROOT / "tests").rglob("__init__.py"))
