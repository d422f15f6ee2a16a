"""Mutation testing: changes of one place in the product that some test must notice.

    python -m tools.mutation sample mutants.json          200 mutants by a fixed seed
    python -m tools.mutation run mutants.json results.json [--checkout DIR]

`run` tries each mutant in a copy of the checkout, against the tests that TESTS maps to its module,
and prints how many were noticed. A mutant is known by its line, so that another version of the file
has it, too; one whose line has gone is not counted. Own code because mutmut and cosmic-ray run one
command for a whole tree, in the tree itself.
"""

import argparse
import ast
import concurrent.futures
import json
import os
import queue
import random
import resource
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

SEED = 25
COUNT = 200
CPU_S = 60  # for the tests of one mutant
WALL_S = 240

PRODUCT = ("adapters", "store/money", "handlers/relay")

# By the longest prefix of the module's path. They run one after the other until one fails. Many
# mutants of handlers/relay itself show only in tests from outside.
_OUTSIDE = ["tests/gateway/test_settlement.py", "tests/gateway/test_streaming.py"]
_PACKAGES = (
    *("", "chat_completions", "faults", "family", "framing", "generate_content", "json"),
    *("messages", "openai", "responses", "upstream_errors"),
)
TESTS = {
    **{f"adapters/{name}": [f"tests/adapters/{name}", "tests/adapters"] for name in _PACKAGES},
    "handlers/relay": ["tests/handlers/relay", "tests/handlers/entries", *_OUTSIDE],
    **{
        f"handlers/relay/{package}": [f"tests/handlers/relay/{package}", "tests/handlers/relay"]
        for package in ("limits", "routing", "upstream")
    },
    "store/money": ["tests/store/money"],
}

_COMPARED = {
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
}
_COMPUTED = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "//"),
    ast.FloorDiv: ("//", "*"),
}

Mutant = dict[str, object]


def edits(line: str, node: ast.AST) -> Iterator[str]:
    """Yield the line with one change, for a node that is on this line only."""

    def between(left: ast.expr, right: ast.expr, old: str, new: str) -> Iterator[str]:
        at = line.find(old, left.end_col_offset, right.col_offset)
        if at >= 0:
            yield line[:at] + new + line[at + len(old) :]

    match node:
        case ast.Compare(left=left, ops=[operator], comparators=[right]):
            yield from between(left, right, *_COMPARED[type(operator)])
        case ast.BinOp(left=left, op=operator, right=right) if type(operator) in _COMPUTED:
            yield from between(left, right, *_COMPUTED[type(operator)])
        case ast.BoolOp(op=operator, values=[left, right, *_]):
            words = ("and", "or") if isinstance(operator, ast.And) else ("or", "and")
            yield from between(left, right, *words)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield line[: node.col_offset] + line[operand.col_offset :]
        case ast.Constant(value=bool(value)):
            yield line[: node.col_offset] + str(not value) + line[node.end_col_offset :]
        case ast.Constant(value=int(value)):
            yield line[: node.col_offset] + str(value + 1) + line[node.end_col_offset :]
        case ast.Return(value=ast.expr() as value) if not isinstance(value, ast.Constant):
            yield line[: value.col_offset] + "None" + line[value.end_col_offset :]


def mutants_of(root: Path, path: str) -> Iterator[Mutant]:
    """Yield all mutants of a file. Lines that are not ASCII are left out: offsets count bytes."""
    source = (root / path).read_text()
    lines = source.splitlines()
    for node in ast.walk(ast.parse(source)):
        number = getattr(node, "lineno", 0)
        if not number or node.end_lineno != number or not lines[number - 1].isascii():  # type: ignore[attr-defined]
            continue
        line = lines[number - 1]
        before = lines[: number - 1].count(line)
        for mutated in edits(line, node):
            yield {"path": path, "line": line, "before": before, "mutated": mutated}


def sample(root: Path) -> list[Mutant]:
    paths = sorted(
        str(path.relative_to(root)) for top in PRODUCT for path in (root / top).rglob("*.py")
    )
    mutants = [mutant for path in paths for mutant in mutants_of(root, path)]
    return random.Random(SEED).sample(mutants, COUNT)


def tests_of(path: str, root: Path) -> list[str]:
    prefix = max((prefix for prefix in TESTS if path.startswith(prefix)), key=len)
    return [tests for tests in TESTS[prefix] if (root / tests).exists()]


def verdict(root: Path, mutant: Mutant) -> str:
    """Return killed, survived, slow or gone. Raises RuntimeError if pytest could not run."""
    path = root / str(mutant["path"])
    source = path.read_text() if path.exists() else ""
    lines = source.splitlines(keepends=True)
    places = [at for at, line in enumerate(lines) if line.rstrip("\n") == mutant["line"]]
    before = int(str(mutant["before"]))
    if len(places) <= before:
        return "gone"
    lines[places[before]] = str(mutant["mutated"]) + "\n"
    path.write_text("".join(lines))
    try:
        for tests in tests_of(str(mutant["path"]), root):
            if (noticed := _tried(root, tests)) is not None:
                return noticed
        return "survived"
    finally:
        path.write_text(source)


def _tried(root: Path, tests: str) -> str | None:
    """Return killed or slow, or None if the tests pass."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", tests]
    limit = (CPU_S, CPU_S)
    try:
        done = subprocess.run(
            command,
            check=False,
            cwd=root,
            capture_output=True,
            timeout=WALL_S,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, limit),
        )
    except subprocess.TimeoutExpired:
        return "slow"
    if done.returncode < 0:
        return "slow"
    if done.returncode > 2:
        raise RuntimeError(done.stdout.decode()[-2000:] + done.stderr.decode()[-2000:])
    return "killed" if done.returncode else None


def run(checkout: Path, mutants: list[Mutant], jobs: int) -> list[Mutant]:
    """Return the mutants with their verdicts, each tried in a copy of the checkout."""
    roots: queue.SimpleQueue[Path] = queue.SimpleQueue()

    def judge(mutant: Mutant) -> Mutant:
        root = roots.get()
        try:
            result = {**mutant, "verdict": verdict(root, mutant)}
        finally:
            roots.put(root)
        print(result["verdict"], result["path"], str(result["mutated"]).strip(), flush=True)
        return result

    with tempfile.TemporaryDirectory() as folder:
        for number in range(jobs):
            copy = Path(folder, str(number))
            ignored = shutil.ignore_patterns(".*", "node_modules", "__pycache__")
            shutil.copytree(checkout, copy, ignore=ignored)
            roots.put(copy)
        with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
            return list(pool.map(judge, mutants))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("action", choices=("sample", "run"))
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--checkout", type=Path, default=Path())
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    if options.action == "sample":
        options.files[0].write_text(json.dumps(sample(options.checkout), indent=1))
        return
    mutants = json.loads(options.files[0].read_text())
    results = run(options.checkout.absolute(), mutants, options.jobs)
    options.files[1].write_text(json.dumps(results, indent=1))
    print(
        *(f"{verdict} {count}" for verdict, count in Counter(r["verdict"] for r in results).items())
    )


if __name__ == "__main__":
    main()
