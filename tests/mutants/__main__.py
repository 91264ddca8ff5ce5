"""Which small changes of the source do the tests not see?

    python -m tests.mutants --count 20 --only data

Takes a sample of changes (tests/mutants/changes.py) that the seed determines, from every room as the square root of
its size, and makes one at a time in a copy of the tree, in a temporary folder. The tests most likely to see it run
first: those of its own file and room, then those that import it. What was found is kept in --folder, one line of JSON
for each change; a second call goes on where the first ended. equivalent.toml lists changes that alter nothing, with
the reason.
"""

from __future__ import annotations

import argparse
import json
import math
import shlex
import signal
import sys
import time
import tomllib
from pathlib import Path
from typing import Any

from tests.mutants.changes import Mutant, all_mutants, in_order_of_luck
from tests.mutants.choosing import Known, Notes, TestFiles
from tests.mutants.running import Tree

ROOT = Path(__file__).resolve().parents[2]
EQUIVALENT = Path(__file__).parent / "equivalent.toml"
MOST_SECONDS = 120.0  # that the tests of one stage compute, as they did on the unchanged source


def sample(package: Path, rooms: dict[str, list[Mutant]], count: int, seed: int) -> list[Mutant]:
    """So many changes, from each room as the square root of how many it has, at least one."""
    roots = {room: math.sqrt(len(mutants)) for room, mutants in rooms.items()}
    shares = {room: count * root / sum(roots.values()) for room, root in roots.items()}
    wanted = {room: max(1, int(share)) for room, share in shares.items()}
    rest = sorted(rooms, key=lambda room: (wanted[room] - shares[room], room))
    for room in rest[: max(0, count - sum(wanted.values()))]:
        wanted[room] += 1
    chosen = []
    for room, mutants in rooms.items():
        sources = {m.path: (package / m.path).read_bytes() for m in mutants}
        lucky = (m for m in in_order_of_luck(mutants, seed) if m.is_another_program(sources[m.path]))
        chosen += [mutant for _, mutant in zip(range(wanted[room]), lucky, strict=False)]
    return in_order_of_luck(chosen, seed)


def reasons(mutants: list[Mutant]) -> dict[str, str]:
    """key -> why a change alters nothing that a test could or should see."""
    listed = tomllib.loads(EQUIVALENT.read_text())["equivalent"] if EQUIVALENT.exists() else []
    known = {(entry["path"], entry["before"], entry["after"]): entry["reason"] for entry in listed}
    return {m.key: known[m.path, m.before, m.after] for m in mutants if (m.path, m.before, m.after) in known}


# --------------------------------------------------------------------------- one change


def examine(mutant: Mutant, tree: Tree, files: TestFiles, notes: Notes, *, wide: bool = False) -> dict[str, Any]:
    """Run the tests that may see a change, the likeliest and quickest first, until one does."""
    done: dict[str, None] = {}
    near, *stages = files.stages(mutant, wide=wide)
    groups = [near, *(group for stage in stages for group in notes.groups(stage))]
    with tree.changed(mutant):
        for group in [*groups, None]:
            if group is None:  # at last, what shares a fixture or a cache with a test that runs the function
                tests = within([k for f in _files_of(done) for k in notes.of(f)], done)
            else:
                known = [k for file in group for k in notes.of(file)]
                tests = within([k for k in known if k.runs(mutant)], done)
                if not done and not tests and mutant.function is None:
                    tests = within(known, done)
            done |= dict.fromkeys(k.test for k in tests)
            found = tree.run(tests)
            if found.seen:
                return {"verdict": "seen", "by": found.by, "tests": len(done)}
    return {"verdict": "survived", "by": None, "tests": len(done)}


def _files_of(tests: dict[str, None]) -> list[str]:
    return list(dict.fromkeys(test.partition("::")[0] for test in tests))


def within(known: list[Known], done: dict[str, None]) -> list[Known]:
    """The quickest tests that are not done yet, as many as the time allows."""
    chosen, seconds = [], 0.0
    for one in sorted((k for k in known if k.test not in done), key=lambda k: k.seconds):
        seconds += one.seconds
        if seconds > MOST_SECONDS:
            break
        chosen.append(one)
    return chosen


# --------------------------------------------------------------------------- all of them


def read_results(file: Path) -> dict[str, dict[str, Any]]:
    lines = file.read_text().splitlines() if file.exists() else []
    return {line["key"]: line for line in map(json.loads, lines)}


def table(chosen: list[Mutant], results: dict[str, dict[str, Any]], same: dict[str, str]) -> str:
    """Figures by room, then every change that survived and every one that alters nothing."""
    lines = [
        "| room | sampled | equivalent | seen | survived | seen of those that alter something |",
        "|---|" + "---|" * 5,
    ]
    rooms = [*sorted({m.room for m in chosen}), "all"]
    for room in rooms:
        of_room = [m for m in chosen if room in (m.room, "all")]
        verdicts = [verdict_of(m, results, same) for m in of_room]
        counts = {name: verdicts.count(name) for name in ("equivalent", "seen", "survived")}
        told = counts["seen"] + counts["survived"]
        share = f"{counts['seen'] / told:.0%}" if told else "–"
        lines.append(
            f"| {room} | {sum(counts.values())} of {len(of_room)} | {' | '.join(map(str, counts.values()))} | {share} |"
        )
    for verdict in ("survived", "equivalent"):
        lines += ["", f"## {verdict}"]
        for m in chosen:
            if verdict_of(m, results, same) == verdict:
                reason = [same[m.key]] if verdict == "equivalent" else []
                lines += ["", "```diff", m.diff, "```", *reason]
    seen = [m for m in chosen if verdict_of(m, results, same) == "seen"]
    lines += ["", "## seen", "", *(f"- {m.path}:{m.line} ({m.kind}) by {results[m.key]['by']}" for m in seen)]
    return "\n".join(lines) + "\n"


def verdict_of(mutant: Mutant, results: dict[str, dict[str, Any]], same: dict[str, str]) -> str:
    if mutant.key in same:
        return "equivalent"
    return str(results[mutant.key]["verdict"]) if mutant.key in results else "not tried"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m tests.mutants", description=__doc__.partition("\n\n")[0])
    parser.add_argument("--count", type=int, default=150, help="how many changes to sample (default 150)")
    parser.add_argument("--only", metavar="ROOM", help="sample --count of one room, such as data")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--portion", type=int, help="try at most so many now")
    parser.add_argument("--again", action="store_true", help="try those again that survived")
    parser.add_argument("--wide", action="store_true", help="ask tests too that reach a module through another: slow")
    parser.add_argument("--folder", type=Path, default=ROOT / "build/mutants", help="for results and notes")
    parser.add_argument("--before", default="", metavar="COMMAND", help="put before every run of pytest, such as nice")
    parser.add_argument("--list", action="store_true", help="show the sample, try nothing")
    return parser.parse_args()


def main() -> int:
    asked = arguments()
    package = ROOT / "src/seqlab"
    rooms = all_mutants(package)
    if asked.only is not None and asked.only not in rooms:
        print(f"--only {asked.only} is no room; the rooms are {', '.join(rooms)}", file=sys.stderr)
        return 2
    rooms = {asked.only: rooms[asked.only]} if asked.only else rooms
    chosen = sample(package, rooms, asked.count, asked.seed)
    same, file = reasons(chosen), asked.folder / "results.jsonl"
    results = read_results(file)
    if asked.list:
        print("\n\n".join(f"[{verdict_of(m, results, same)}] {m.diff}" for m in chosen))
        return 0
    waiting = [m for m in chosen if m.key not in same and (m.key not in results or again(results[m.key], asked))]
    with Tree(ROOT, shlex.split(asked.before)) as tree:
        files, notes = TestFiles(tree.root), Notes(asked.folder / "notes", tree.root, tree.note)
        for k, mutant in enumerate(waiting[: asked.portion], start=1):
            begun = time.perf_counter()
            line = {"key": mutant.key, "seed": asked.seed} | examine(mutant, tree, files, notes, wide=asked.wide)
            line |= {"path": mutant.path, "kind": mutant.kind, "diff": mutant.diff}
            line["seconds"] = round(time.perf_counter() - begun, 1)
            with file.open("a") as out:
                out.write(json.dumps(line, ensure_ascii=False) + "\n")
            print(
                f"{k}/{len(waiting)} {line['verdict']} by {line['by']} ({line['seconds']} s)\n{mutant.diff}\n",
                flush=True,
            )
            results[mutant.key] = line
    (asked.folder / "table.md").write_text(table(chosen, results, same))
    print(table(chosen, results, same))
    return 0


def again(line: dict[str, Any], asked: argparse.Namespace) -> bool:
    return bool(asked.again) and line["verdict"] == "survived"


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the copy is removed, the tests end
    sys.exit(main())
