"""The ledger as a document: what is claimed, with which verdict, and how it is checked. No figure of any run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from seqlab.theory.ledger import METHODS, Claim
from seqlab.workflows.claims.words import VERDICTS, claim_parts, title

HEAD = """# Claims

What seqlab says about sequence models, and how a program checks each statement. `seqlab claims check` checks them all,
`seqlab claims show ID` shows one with its evidence, `seqlab claims report` writes the page with every figure. This file
is made by `make claims`."""


def document(claims: Sequence[Claim]) -> str:
    subjects = dict.fromkeys(claim.subject for claim in claims)
    parts = [HEAD, _counts(claims), *(_subject(name, claims) for name in subjects)]
    return "\n\n".join(parts) + "\n"


def _counts(claims: Sequence[Claim]) -> str:
    """Verdict by kind of proof."""
    cells = Counter((claim.verdict, claim.method) for claim in claims)
    lines = [f"| kind of proof | {' | '.join(VERDICTS.values())} | all |", "|---" * (len(VERDICTS) + 2) + "|"]
    for method, words in METHODS.items():
        row = [cells[verdict, method] for verdict in VERDICTS]
        lines.append(f"| {words} | {' | '.join(map(str, row))} | {sum(row)} |")
    total = [sum(claim.verdict == verdict for claim in claims) for verdict in VERDICTS]
    return "\n".join([*lines, f"| all | {' | '.join(map(str, total))} | {len(claims)} |"])


def _subject(name: str, claims: Sequence[Claim]) -> str:
    own = [claim for claim in claims if claim.subject == name]
    return "\n\n".join([f"## {title(name)}", *("\n".join(_claim(claim)) for claim in own)])


def _claim(claim: Claim) -> Iterator[str]:
    yield f"### {claim.id}\n\n{claim.statement}\n"
    yield f"- **{VERDICTS[claim.verdict]}**, by {METHODS[claim.method]}"
    yield from (f"- {name.capitalize()}: {text}" for name, text in claim_parts(claim))
    yield f"- The same test refutes: {', '.join(claim.wrong)}"
    if claim.about:
        yield f"- Code: {', '.join(f'`{place}`' for place in claim.about)}"
