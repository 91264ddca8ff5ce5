"""The claims on many seeds: no verdict may change, no wrong form may pass, and none may take long.

Every claim of the ledger is checked on 20 seeds, in two processes side by side with one thread each, and so is every
wrong form. A verdict that changes, or a wrong form that passes, is an error of the claim: its tolerance does not fit,
or its draws are too few. Seconds are those of the checks themselves, without the wrong forms, of one claim the median
over the seeds: the first in a process loads what it needs.

    python benchmarks/bench_claims.py [seeds] [jobs]
"""

import statistics
import sys
import time
from collections import defaultdict

import seqlab
from timing import verdict

SEEDS, JOBS = 20, 2
MOST_IN_ALL, MOST_OF_ONE = 180.0, 3.0  # seconds for one seed, on one thread


def main() -> None:
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else SEEDS
    jobs = int(sys.argv[2]) if len(sys.argv) > 2 else JOBS
    held: dict[str, list[bool]] = defaultdict(list)
    passing: dict[str, list[int]] = defaultdict(list)
    tried = 0
    seconds: dict[str, list[float]] = defaultdict(list)
    begun = time.perf_counter()
    for seed in range(seeds):
        for one in seqlab.check_claims(seed=seed, jobs=jobs, forms=True):
            held[one.id].append(one.evidence is not None and one.evidence.holds)
            seconds[one.id].append(one.seconds)
            tried += len(one.forms)
            for form in one.forms:
                if not form.refuted:
                    passing[f"{one.id}, wrong form '{form.name}'"].append(seed)
        print(f"  seed {seed}: {sum(row[-1] for row in held.values())} of {len(held)} reproduced", flush=True)
    passed = time.perf_counter() - begun
    changing = {id: [seed for seed, holds in enumerate(row) if not holds] for id, row in held.items() if not all(row)}
    print(f"{len(held)} claims on {seeds} seeds, {jobs} processes: {passed:.0f} s")
    for id, failed in changing.items():
        print(f"  {id}: not reproduced on seeds {', '.join(map(str, failed))}")
    print(f"  verdicts that change: {len(changing)}: {verdict(not changing)}")
    for form, seeds_passed in passing.items():
        print(f"  {form}: passes on seeds {', '.join(map(str, seeds_passed))}")
    print(f"  wrong forms that pass, of {tried:,} tried: {sum(map(len, passing.values()))}: {verdict(not passing)}")
    in_all = sum(sum(row) for row in seconds.values()) / seeds
    print(f"  seconds of all checks of one seed: {in_all:.1f}: {verdict(in_all <= MOST_IN_ALL)}")
    usual = {id: statistics.median(row) for id, row in seconds.items()}
    for id in sorted(usual, key=lambda id: -usual[id])[:5]:
        print(f"  {id}: {usual[id]:.2f} s (at most {max(seconds[id]):.2f} s): {verdict(usual[id] <= MOST_OF_ONE)}")


if __name__ == "__main__":
    main()
