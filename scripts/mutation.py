"""Would the tests notice? Makes small faults in the modules of claims, publish, questions and maps, one at a time, in a
copy of the tree, and runs the fast tests of each (SQLite, in-process). What no test notices has survived, and is shown.

Needs cosmic-ray, which nothing else does: python -m pip install cosmic-ray

The faults are drawn by a hash of the line they are on: the same seed draws the same ones wherever the line is the same,
so that two commits can be compared. There is at most one at each place of a file.

Examples:
  python scripts/mutation.py --list                                  what there is to mutate
  python scripts/mutation.py --only maps --per-module 10             ten faults in the maps
  python scripts/mutation.py --commit v0.9 --json before.json        another commit; the working tree is left alone
  python scripts/mutation.py --compare before.json                   this tree against it; exits 1 if something is lost
  python scripts/mutation.py --survivors before.json                 only what survived then: is it noticed now?
"""

import argparse
import ast
import compileall
import contextlib
import difflib
import hashlib
import importlib
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "src/opendataflow"
STORE_TESTS = tuple(
    f"tests/store/test_{name}.py"
    for name in ("claims", "published", "mapped_inputs", "neighbours", "by_hand", "limits", "recovery", "cascade",
                 "counters", "operations", "schedule_records", "stream_records", "records", "batches", "order",
                 "state_machine")
)  # fmt: skip
SCHEDULING_TESTS = ("tests/scheduling/test_fair_queue.py", "tests/scheduling/test_slots.py")
# What is mutated, and the tests that should notice: the nearest first. Those that a commit does not have are left out.
TARGETS: dict[str, tuple[str, tuple[str, ...]]] = {
    "claims": (f"{PACKAGE}/store/claims.py", STORE_TESTS),
    "claims.sql": (f"{PACKAGE}/store/sql/sqlite/claims.sql", STORE_TESTS),
    "rows": (f"{PACKAGE}/store/rows.py", ("tests/unit/test_rows.py", "tests/unit/test_questions.py", *STORE_TESTS)),
    "publish": (f"{PACKAGE}/store/published.py", ("tests/store/test_published.py", *STORE_TESTS)),
    "publish.sql": (f"{PACKAGE}/store/sql/sqlite/published.sql", ("tests/store/test_published.py", *STORE_TESTS)),
    "questions": (f"{PACKAGE}/domain/runs/questions.py", ("tests/unit/test_questions.py",)),
    "transitions": (f"{PACKAGE}/domain/runs/transitions.py", ("tests/unit/test_transitions.py", *STORE_TESTS)),
    "endings": (
        f"{PACKAGE}/domain/runs/ending.py", ("tests/unit/test_transitions.py", "tests/unit/test_retries.py"),
    ),
    "maps": (f"{PACKAGE}/domain/partitions/maps.py", ("tests/unit/test_maps.py",)),
    "mapping": (f"{PACKAGE}/store/mapping.py", ("tests/store/test_mapped_inputs.py", *STORE_TESTS)),
    "queue": (f"{PACKAGE}/scheduling/fair_queue.py", SCHEDULING_TESTS),
    "slots": (f"{PACKAGE}/scheduling/worker_slot.py", SCHEDULING_TESTS),
    "loop": (f"{PACKAGE}/scheduling/worker_loop.py", SCHEDULING_TESTS),
}  # fmt: skip


class Mutant(NamedTuple):
    """One small fault: the whole text of the file with it, and what it is, in words that stay the same elsewhere."""

    target: str
    file: str
    line: int
    place: str
    change: str
    text: str
    diff: str

    @property
    def id(self) -> str:
        return f"{self.file}: {self.place} {self.change}"


class Edit(NamedTuple):
    """The characters from `start` to `end` of a text become `new`."""

    start: int
    end: int
    new: str
    name: str


# Python ---------------------------------------------------------------------------------------------------------------
ORDERED = {"Eq", "NotEq", "Lt", "LtE", "Gt", "GtE"}
ENUMS = {
    "JobStatus": ("PENDING", "RUNNING", "COMPLETE", "FAILED", "RESUBMIT", "HOLD"),
    "ChunkStatus": ("PENDING", "RUNNING", "READY", "FAILED", "RESUBMIT"),
    "RunStatus": ("RUNNING", "COMPLETE", "FAILED", "RESUBMIT", "LOST"),
    "Ending": ("COMPLETE", "FAILED", "GIVEN_UP", "ABORTED", "DIED", "HANDED_BACK"),
    "Question": ("READY", "RIGHT", "LOCATION", "VALID", "SAFE"),
}
ENUMS |= {"_J": ENUMS["JobStatus"], "_C": ENUMS["ChunkStatus"]}


def _is_wanted(operator: str) -> bool:
    """False for faults that say little: `|` of annotations, identity instead of equality, decorators."""
    name, _, change = operator.partition("_")
    if name == "ReplaceComparisonOperator":
        old, _, new = change.partition("_")
        return {old, new} <= ORDERED or {old, new} == {"Is", "IsNot"}
    if name == "ReplaceBinaryOperator":
        return not change.startswith("BitOr") and change in ("Add_Sub", "Sub_Add", "Mul_Div", "Div_Mul", "Mod_FloorDiv",
                                                             "FloorDiv_Mul", "Pow_Mul")  # fmt: skip
    if name == "ReplaceUnaryOperator":
        return change in ("Delete_Not", "USub_UAdd")
    return name not in ("RemoveDecorator", "VariableReplacer", "VariableInserter")


def python_edits(source: str) -> Iterator[Edit]:
    """What cosmic-ray makes of the text, and three of our own: calls left out, nothing returned, another status."""
    try:
        importlib.import_module("cosmic_ray")
    except ImportError:
        sys.exit("cosmic-ray is not installed: python -m pip install cosmic-ray")
    from cosmic_ray.ast import ast_nodes, get_ast
    from cosmic_ray.mutating import mutate_code
    from cosmic_ray.operators.provider import OperatorProvider

    operators = OperatorProvider()
    for name in filter(_is_wanted, operators):
        operator = operators[name]()
        count = sum(len(list(operator.mutation_positions(node))) for node in ast_nodes(get_ast(source)))
        for occurrence in range(count):
            mutated = mutate_code(source, operator, occurrence)
            if mutated is not None and mutated != source:
                edit = _edit_between(source, mutated, name)
                if not _says_little(source, edit):
                    yield edit
    yield from _own_edits(source)


def _edit_between(old: str, new: str, name: str) -> Edit:
    """What became another, in whole words."""
    shorter = min(len(old), len(new))
    start = next((at for at in range(shorter) if old[at] != new[at]), shorter)
    after = next((at for at in range(shorter - start) if old[-1 - at] != new[-1 - at]), shorter - start)
    while start and old[start - 1].isalnum():
        start -= 1
    while after and old[len(old) - after].isalnum():
        after -= 1
    return Edit(start, len(old) - after, new[start : len(new) - after], name)


def _says_little(source: str, edit: Edit) -> bool:
    """True for the `*` of a signature, and for `[0]` of what has one row."""
    before, after = source[: edit.start].rstrip()[-1:], source[edit.end :].lstrip()[:1]
    return (edit.name.endswith("Mul_Div") and after == ",") or (
        edit.name == "NumberReplacer" and before + after == "[]"
    )


def _own_edits(source: str) -> Iterator[Edit]:
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))

    def at(line: int, column: int) -> int:  # ast counts bytes
        text = source[starts[line - 1] : starts[line]]
        return starts[line - 1] + len(text.encode()[:column].decode())

    def span(node: ast.expr | ast.stmt) -> tuple[int, int]:
        return at(node.lineno, node.col_offset), at(node.end_lineno or 0, node.end_col_offset or 0)

    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Expr(value=ast.Call()):
                yield Edit(*span(node), "pass", "LeaveOutCall")
            case ast.Return(value=ast.expr()) if not isinstance(node.value, ast.Constant):
                yield Edit(*span(node), "return None", "ReturnNone")
            case ast.Attribute(value=ast.Name(id=enum), attr=member) if member in ENUMS.get(enum, ()):
                members = ENUMS[enum]
                following = members[(members.index(member) + 1) % len(members)]
                yield Edit(*span(node), f"{enum}.{following}", "AnotherMember")


# SQL ------------------------------------------------------------------------------------------------------------------
STATUSES = {
    "PENDING": "HOLD", "RUNNING": "FAILED", "COMPLETE": "FAILED", "FAILED": "RESUBMIT", "RESUBMIT": "PENDING",
    "HOLD": "PENDING", "READY": "RUNNING", "IN": "OUT", "OUT": "IN",
}  # fmt: skip
SQL_EDITS = (
    (re.compile(r"(?<=AND |ERE )[\w.]+ (?:=|IS) (?!CASE|NOT)(?::\w+|'\w*'|[\w.]+)(?=[\s)])"), lambda _: "true",
     "LeaveOutCondition"),
    (re.compile(r"'(" + "|".join(STATUSES) + ")'"), lambda found: f"'{STATUSES[found[1]]}'", "AnotherStatus"),
    (re.compile(r"(?<=\s)(<=|>=|<|>)(?=\s)"), lambda found: {"<=": "<", "<": "<=", ">": ">=", ">=": ">"}[found[1]],
     "Boundary"),
    (re.compile(r"(?<=\s)OR(?=\s)"), lambda _: "AND", "AndOr"),
    (re.compile(r"(?<=\s)AND(?=\s+(?:\(|NOT|EXISTS))"), lambda _: "OR", "AndOr"),
    (re.compile(r"IS (NOT )?NULL"), lambda found: "IS NULL" if found[1] else "IS NOT NULL", "Null"),
    (re.compile(r"(?<= )([+-])(?= 1\b)"), lambda found: "-" if found[1] == "+" else "+", "PlusMinus"),
    (re.compile(r" DESC\b"), lambda _: "", "Order"),
    (re.compile(r"(?<== )(?:NULL|0)(?=[,\s])"), lambda found: "1" if found[0] == "0" else "''", "Value"),
)  # fmt: skip


def sql_edits(source: str) -> Iterator[Edit]:
    """Conditions left out, other statuses, boundaries moved; comments are left alone."""
    comments = [found.span() for found in re.finditer(r"--.*", source)]
    for pattern, becomes, name in SQL_EDITS:
        for found in pattern.finditer(source):
            if not any(start <= found.start() < end for start, end in comments):
                yield Edit(*found.span(), becomes(found), name)


# Which ones -----------------------------------------------------------------------------------------------------------
def mutants(tree: Path, target: str, seed: int) -> list[Mutant]:
    """All mutants of a target, in the order in which they are drawn: one for each place."""
    file = TARGETS[target][0]
    source = (tree / file).read_text(encoding="utf-8")
    places: dict[tuple[str, int, int], list[tuple[str, Mutant]]] = {}
    lines = source.splitlines()
    nth, seen = [], Counter[str]()  # of lines that are the same
    for line in lines:
        nth.append(seen[line.strip()])
        seen[line.strip()] += 1
    for edit in python_edits(source) if file.endswith(".py") else sql_edits(source):
        number = source.count("\n", 0, edit.start)
        line = lines[number]
        column = edit.start - (source.rfind("\n", 0, edit.start) + 1) - (len(line) - len(line.lstrip()))
        place = (line.strip(), nth[number], column)
        old = " ".join(source[edit.start : edit.end].split())
        change = f"{edit.name} {old!r} -> {edit.new!r}"
        text = source[: edit.start] + edit.new + source[edit.end :]
        diff = "\n".join(difflib.unified_diff(lines, text.splitlines(), file, file, lineterm="", n=1))
        made = Mutant(target, file, number + 1, repr(place), change, text, diff)
        if is_code(made):
            places.setdefault(place, []).append((_rank(seed, made.id), made))
    drawn = [min(several) for several in places.values()]
    return [mutant for _, mutant in sorted(drawn, key=lambda one: one[0])]


def is_code(mutant: Mutant) -> bool:
    if not mutant.file.endswith(".py"):
        return True
    try:
        compile(mutant.text, mutant.file, "exec")
    except SyntaxError:
        return False
    return True


def _rank(seed: int, text: str) -> str:
    return hashlib.sha256(f"{seed} {text}".encode()).hexdigest()


# Trying them ----------------------------------------------------------------------------------------------------------
@contextlib.contextmanager
def copied_tree(commit: str | None) -> Iterator[Path]:
    """The files of a commit, or of the working tree, in a folder of their own."""
    with tempfile.TemporaryDirectory(prefix="dataflow-mutation-") as folder:
        tree = Path(folder) / "tree"
        tree.mkdir()
        if commit is not None:
            packed = subprocess.run(["git", "archive", commit], cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout
            subprocess.run(["tar", "-x", "-C", str(tree)], input=packed, check=True)
        else:
            listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
            names = subprocess.run(listed, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout
            for name in filter(None, names.split("\0")):
                if (ROOT / name).is_file():
                    (tree / name).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy2(ROOT / name, tree / name)
        with contextlib.redirect_stdout(io.StringIO()):
            compileall.compile_dir(tree / PACKAGE, quiet=2)
        yield tree


class Trial:
    """Runs the tests of a target in the copied tree."""

    def __init__(self, tree: Path) -> None:
        self.tree = tree
        # Nothing compiled is written: a mutant of the same size and second would be taken for the one before it.
        self._env = {**os.environ, "PYTHONPATH": f"{tree / 'src'}{os.pathsep}{tree / 'tests'}",
                     "PYTHONDONTWRITEBYTECODE": "1"}  # fmt: skip
        where = self._python("-c", "import opendataflow; print(opendataflow.__file__)")
        if not where.stdout.startswith(str(tree)):
            sys.exit(f"the tests would not see the copy: {where.stdout}{where.stderr}")

    def _python(self, *args: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, *args]
        return subprocess.run(command, cwd=self.tree, env=self._env, check=False, capture_output=True, text=True)

    def run(self, tests: Iterable[str], timeout: float) -> tuple[str, str]:
        """Killed, survived or timeout; and what pytest said last."""
        there = [test for test in tests if (self.tree / test).exists()]
        if not there:
            return "survived", "it has no such tests"
        shutil.rmtree(self.tree / ".hypothesis", ignore_errors=True)
        command = [sys.executable, "-m", "pytest", "-x", "-p", "no:xdist", "-p", "no:randomly", "--hypothesis-seed=0",
                   "--tb=line", "-k", "not postgres", *there]  # fmt: skip
        child = subprocess.Popen(
            command, cwd=self.tree, env=self._env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            start_new_session=True,
        )  # fmt: skip
        try:
            said, _ = child.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            child.communicate()
            return "timeout", ""
        return "survived" if child.returncode == 0 else "killed", said

    def outcome(self, mutant: Mutant, timeout: float) -> tuple[str, str]:
        path = self.tree / mutant.file
        was = path.read_bytes()
        for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
            compiled.unlink()
        try:
            path.write_text(mutant.text, encoding="utf-8")
            return self.run(TARGETS[mutant.target][1], timeout)
        finally:
            path.write_bytes(was)


def _first_failure(said: str) -> str:
    return next((line.partition(" - ")[0] for line in said.splitlines() if line.startswith(("FAILED", "ERROR"))), "")


# Telling --------------------------------------------------------------------------------------------------------------
def print_table(results: list[dict[str, str]]) -> None:
    print(f"\n{'module':<14}{'mutants':>8}{'killed':>8}{'survived':>9}{'timeout':>8}{'score':>7}")
    for target in [*dict.fromkeys(one["target"] for one in results), None]:
        counted = Counter(one["outcome"] for one in results if target in (None, one["target"]))
        print(
            f"{target or 'all':<14}{counted.total():>8}{counted['killed']:>8}{counted['survived']:>9}"
            f"{counted['timeout']:>8}{_score(counted):>7}"
        )


def _score(counted: Counter[str]) -> str:
    """Of all mutants, those that some test noticed; one that never ends is noticed too."""
    return f"{(counted['killed'] + counted['timeout']) / counted.total():.0%}" if counted.total() else "–"


def compare(before: list[dict[str, str]], now: list[dict[str, str]]) -> int:
    """Print the mutants of both, module by module; 1 when one was noticed before that is not now."""
    then = {one["id"]: one for one in before}
    both = [(then[one["id"]], one) for one in now if one["id"] in then]
    print(f"\nThe same mutants before and now ({len(both)}; {len(now) - len(both)} are new, "
          f"{len(then) - len(both)} are gone or were not tried):")  # fmt: skip
    print(f"{'module':<14}{'mutants':>8}{'before':>8}{'now':>7}{'lost':>6}{'won':>6}")
    lost = [new for old, new in both if old["outcome"] != "survived" and new["outcome"] == "survived"]
    won = [new for old, new in both if old["outcome"] == "survived" and new["outcome"] != "survived"]
    for target in [*dict.fromkeys(one["target"] for _, one in both), None]:
        of = [(old, new) for old, new in both if target in (None, new["target"])]
        scores = [_score(Counter(pair[side]["outcome"] for pair in of)) for side in (0, 1)]
        count = [sum(target in (None, one["target"]) for one in several) for several in (lost, won)]
        print(f"{target or 'all':<14}{len(of):>8}{scores[0]:>8}{scores[1]:>7}{count[0]:>6}{count[1]:>6}")
    for one in lost:
        print(f"\nLost: noticed before, not now\n{one['diff']}")
    return 1 if lost else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=list(TARGETS), metavar="MODULE", help=", ".join(TARGETS))
    parser.add_argument("--per-module", type=int, default=25, metavar="N", help="mutants of each (default 25; 0: all)")
    parser.add_argument("--seed", type=int, default=1, help="of the draw (default 1)")
    parser.add_argument("--commit", help="mutate and test this commit; else the working tree")
    parser.add_argument("--survivors", type=Path, metavar="JSON", help="only the mutants that survived in this file")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the outcomes there")
    parser.add_argument("--compare", type=Path, metavar="JSON", help="with the outcomes of another run")
    parser.add_argument("--list", action="store_true", help="print the mutants and try none")
    options = parser.parse_args()
    with copied_tree(options.commit) as tree:
        drawn = draw(tree, options)
        if options.list:
            for mutant in drawn:
                print(f"{mutant.file}:{mutant.line}  {mutant.change}")
            return 0
        results = try_all(Trial(tree), drawn)
    for one in results:
        if one["outcome"] == "survived":
            print(f"\n{one['target']}: survived\n{one['diff']}")
    print_table(results)
    if options.json:
        options.json.write_text(json.dumps(results, indent=1), encoding="utf-8")
    return compare(json.loads(options.compare.read_text()), results) if options.compare else 0


def draw(tree: Path, options: argparse.Namespace) -> list[Mutant]:
    """The mutants to try, module by module."""
    survived = None
    if options.survivors:
        survived = {one["id"] for one in json.loads(options.survivors.read_text()) if one["outcome"] == "survived"}
    drawn: list[Mutant] = []
    for target in options.only or TARGETS:
        if not (tree / TARGETS[target][0]).exists():
            print(f"{target}: {TARGETS[target][0]} is not there", flush=True)
            continue
        found = mutants(tree, target, options.seed)
        if survived is not None:
            found = [one for one in found if one.id in survived]
        elif options.per_module:
            found = found[: options.per_module]
        drawn += sorted(found, key=lambda one: one.line)
    return drawn


def try_all(trial: Trial, drawn: list[Mutant]) -> list[dict[str, str]]:
    """The outcome of each; before the first of a module its tests must pass as it is."""
    results: list[dict[str, str]] = []
    timeouts: dict[str, float] = {}
    for number, mutant in enumerate(drawn, 1):
        target = mutant.target
        if target not in timeouts:
            began = time.monotonic()
            outcome, said = trial.run(TARGETS[target][1], 600)
            if outcome != "survived":
                sys.exit(f"{target}: its tests fail without any fault:\n{said}")
            took = time.monotonic() - began
            timeouts[target] = 30 + 4 * took
            print(f"{target}: its tests take {took:.1f} s", flush=True)
        outcome, said = trial.outcome(mutant, timeouts[target])
        by = _first_failure(said) if outcome == "killed" else ""
        print(f"{number:>4}/{len(drawn)}  {outcome:<9} {mutant.file.rpartition('/')[2]}:{mutant.line}  "
              f"{mutant.change}  {by}", flush=True)  # fmt: skip
        results.append({"id": mutant.id, "target": target, "outcome": outcome, "by": by, "diff": mutant.diff})
    return results


if __name__ == "__main__":
    sys.exit(main())
