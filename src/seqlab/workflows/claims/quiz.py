"""True or false? Questions from the ledger, with the evidence as the answer."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from seqlab.core.settings.claims import QuizSettings
from seqlab.core.settings.fields import check_group
from seqlab.theory.ledger import Claim
from seqlab.training.determinism import using_threads
from seqlab.workflows.claims.check import check_one
from seqlab.workflows.claims.choose import chosen
from seqlab.workflows.claims.plain_mathematics import label, readable
from seqlab.workflows.claims.processes import Question
from seqlab.workflows.claims.request import Choice
from seqlab.workflows.claims.words import VERDICTS, found, method_words, wanted

ANSWERS = {
    **dict.fromkeys(("t", "true", "y", "yes", "1", "right"), True),
    **dict.fromkeys(("f", "false", "n", "no", "0", "wrong"), False),
}
STOP = ("q", "quit", "exit")


@dataclass(frozen=True)
class Asked:
    """A claim as a question, with what its symbols are. One that is true under conditions is asked with them."""

    claim: Claim

    @property
    def answer(self) -> bool:
        return self.claim.verdict != "false"

    @property
    def text(self) -> str:
        beside = (("Setting", self.claim.setting), ("Conditions", self.claim.conditions))
        lines = [f"{name}: {readable(text)}" for name, text in beside if text]
        return "\n".join([readable(self.claim.statement), *lines])

    def explanation(self) -> str:
        """The verdict, what is right, and the figure that a check finds now."""
        with using_threads(1):
            checked = check_one(self.claim, Question(seed=0, forms=False, file=None))
        lines = [f"{VERDICTS[self.claim.verdict]} ({self.claim.id}, by {method_words(self.claim.method)})"]
        lines += [readable(text) for text in (self.claim.correction, self.claim.note) if text]
        if checked.counterexample:
            lines.append(f"counterexample: {readable(checked.counterexample)}")
        lines += [f"{label(one.what)}: {found(one)}, wanted {wanted(one.wanted)}" for one in checked.findings[:1]]
        return "\n".join(lines)


def read_reply(lines: Iterator[str], again: Callable[[], None]) -> bool | None:
    """The next line that is an answer; None where they end, or somebody stops."""
    for line in lines:
        word = line.strip().lower()
        if word in ANSWERS or word in STOP:
            return ANSWERS.get(word)
        again()
    return None


def quiz_questions(questions: int = 10, seed: int = 0, subject: str | None = None) -> list[Asked]:
    """So many claims, no one twice, about half of them false where there are as many; the seed decides which."""
    check_group(QuizSettings(seed=seed, questions=questions))
    draw = random.Random(seed)
    known = chosen(Choice(subject=subject))
    piles = [[c for c in known if (c.verdict == "false") is is_false] for is_false in (True, False)]
    for pile in piles:
        draw.shuffle(pile)
    asked: list[Asked] = []
    while len(asked) < questions and any(piles):
        asked.append(Asked(_drawn(piles, draw)))
    return asked


def _drawn(piles: Sequence[list[Claim]], draw: random.Random) -> Claim:
    """From either pile with the same probability, while both last."""
    return draw.choice([pile for pile in piles if pile]).pop()
