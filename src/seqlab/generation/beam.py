"""From an encoded source to its translation: greedy, sampled, or by beam search.

A hypothesis is the ids after the tag; its score is Σ ln p(id), the end included. Beams compare Σ ln p / n^α, n being
the number of ids: α = 0 favours short ones, α = 1 compares means. The model is asked for one more id of every row at a
time; what it remembers is reordered with the rows, and the encoded source only where sentences are done.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from seqlab.core.errors import UsageError
from seqlab.core.state import State, reorder
from seqlab.generation.sampling import Choice

WIDEST, STRONGEST = 1_000, 10.0  # beam; α


@dataclass(frozen=True)
class Hypothesis:
    """ids without the end; `ended`: the end was reached before the limit."""

    ids: tuple[int, ...]
    score: float  # Σ ln p, with that of the end if it was reached
    ended: bool

    def value(self, penalty: float) -> float:
        """Σ ln p / n^α"""
        return float(self.score / max(1, len(self.ids) + self.ended) ** penalty)


@dataclass(frozen=True)
class Search:
    """How far and how wide to look."""

    beam: int = 4
    penalty: float = 1.0  # α
    n_best: int = 1

    def __post_init__(self) -> None:
        if not (isinstance(self.beam, int) and 1 <= self.beam <= WIDEST):
            raise UsageError(f"--beam {self.beam} is out of range; it has 1 (greedy) to {WIDEST:,} hypotheses")
        if not (isinstance(self.n_best, int) and 1 <= self.n_best <= self.beam):
            raise UsageError(f"--n-best {self.n_best} is out of range; a beam of {self.beam} has 1 to {self.beam}")
        if not 0 <= self.penalty <= STRONGEST:
            raise UsageError(f"--length-penalty {self.penalty} must lie between 0 and {STRONGEST:g}")


@torch.inference_mode()
def decode_one_by_one(
    model: Any,
    memory: Any,
    tag: int,
    limits: Sequence[int],
    end: int,
    choice: Choice,
    generators: Sequence[torch.Generator],
    *,
    cached: bool = True,
) -> list[Hypothesis]:
    """One id at a time for each source, by `choice` (temperature 0: greedy); at most `limits` ids each."""
    rows = list(range(len(limits)))
    ids: list[list[int]] = [[] for _ in limits]
    scores, ended = [0.0] * len(limits), [False] * len(limits)
    state: State = None
    while rows:
        logits, state = _next(model, memory, tag, [ids[row] for row in rows], state, cached)
        chosen = choice.of_each(logits, [generators[row] for row in rows])
        added = (logits.gather(1, torch.tensor(chosen)[:, None])[:, 0] - logits.logsumexp(-1)).tolist()
        for row, token, log in zip(rows, chosen, added, strict=True):
            scores[row] += log
            ended[row] = token == end
            if not ended[row]:
                ids[row].append(token)
        staying = [k for k, row in enumerate(rows) if not ended[row] and len(ids[row]) < limits[row]]
        memory, state = _kept(memory, staying, len(rows)), _kept(state, staying, len(rows))
        rows = [rows[k] for k in staying]
    return [Hypothesis(tuple(ids[row]), scores[row], ended[row]) for row in range(len(limits))]


@torch.inference_mode()
def beam_search(
    model: Any,
    memory: Any,
    tag: int,
    limits: Sequence[int],
    end: int,
    search: Search,
    *,
    cached: bool = True,
) -> list[list[Hypothesis]]:
    """The `n_best` hypotheses of each source that the search finds, best first."""
    sentences = [_Sentence(number, limit, search, [Hypothesis((), 0.0, False)]) for number, limit in enumerate(limits)]
    alive, state = list(sentences), None
    while alive:
        live = [hypothesis for sentence in alive for hypothesis in sentence.live]
        logits, state = _next(model, memory, tag, [list(one.ids) for one in live], state, cached)
        kept, first, counts = [], 0, []
        for sentence, found in zip(alive, _expanded(alive, logits, search.beam), strict=True):
            parents = sentence.step(found, end)
            kept += [first + parent for parent in parents]
            counts.append(len(parents))
            first += sentence.width
        if not kept:
            break
        memory = _repeated(memory, [s.width for s in alive], counts)
        state = reorder(state, torch.tensor(kept))
        alive = [sentence for sentence in alive if sentence.live]
    return [sentence.best() for sentence in sentences]


@dataclass
class _Sentence:
    """The hypotheses of one source."""

    number: int
    limit: int
    search: Search
    live: list[Hypothesis]
    finished: list[Hypothesis] = field(default_factory=list)
    width: int = 1  # rows that it had when the model was last asked

    def step(self, found: list[tuple[int, int, float]], end: int) -> list[int]:
        """Take the candidates (parent, token, score), best first; the parents of those that live on are returned.

        An end among the first `beam` is finished and leaves the beam.
        """
        self.width = len(self.live)
        going: list[Hypothesis] = []
        parents: list[int] = []
        for rank, (parent, token, score) in enumerate(found):
            before = self.live[parent]
            if token == end:
                if rank < self.search.beam:
                    self.finished.append(Hypothesis(before.ids, score, True))
            elif len(going) < self.search.beam:
                going.append(Hypothesis((*before.ids, token), score, False))
                parents.append(parent)
        self.live = going
        if going and len(going[0].ids) >= self.limit:
            self.finished += going
            self.live = []
        if self._is_done():
            self.live = []
        return parents if self.live else []

    def _is_done(self) -> bool:
        """Nothing that lives can become better than the `n_best`; or, once as many as the beam is wide have ended,
        nothing is better as it stands. (Ends of unlikely beginnings fill a beam while the likely one is being written.)
        """
        if len(self.finished) < self.search.n_best or not self.live:
            return False
        penalty, ahead = self.search.penalty, self.live[0]
        worst = sorted((one.value(penalty) for one in self.finished), reverse=True)[self.search.n_best - 1]
        # Scores only fall; at best the highest keeps its score and has the limit's length.
        reachable = ahead.score / max(1, self.limit + 1) ** penalty
        return worst >= reachable or (len(self.finished) >= self.search.beam and worst >= ahead.value(penalty))

    def best(self) -> list[Hypothesis]:
        """Those that reached their end before those that did not."""
        ranked = sorted(self.finished, key=lambda one: (not one.ended, -one.value(self.search.penalty)))
        return ranked[: self.search.n_best]


def _next(model: Any, memory: Any, tag: int, ids: list[list[int]], state: State, cached: bool) -> tuple[Tensor, State]:
    """Logits (R, V) of what follows the ids of each row; without a cache everything is read anew."""
    if not cached:
        logits, _ = model(torch.tensor([[tag, *some] for some in ids]), memory)
        return logits[:, -1], None
    logits, state = model(torch.tensor([[some[-1] if some else tag] for some in ids]), memory, state)
    return logits[:, -1], state


def _expanded(alive: list[_Sentence], logits: Tensor, beam: int) -> list[list[tuple[int, int, float]]]:
    """Of each sentence the best 2·beam continuations (parent, token, score), best first: enough if half of them end."""
    logs = torch.log_softmax(logits, -1)
    widths = [len(sentence.live) for sentence in alive]
    scores = torch.tensor([one.score for sentence in alive for one in sentence.live], dtype=logs.dtype)
    places = _best_places(logs + scores[:, None], widths, 2 * beam)
    vocabulary, found, first = logs.shape[1], [], 0
    for sentence, some in zip(alive, places, strict=True):
        parents, tokens = some // vocabulary, some % vocabulary
        added = logs[first + parents, tokens]
        steps = zip(parents.tolist(), tokens.tolist(), added.tolist(), strict=True)
        found.append([(parent, token, sentence.live[parent].score + log) for parent, token, log in steps])
        first += len(sentence.live)
    return found


def _best_places(ranked: Tensor, widths: list[int], count: int) -> list[Tensor]:
    """The places of the best in each sentence's (width, V) part, flattened; sentences of one width in one call."""
    if len(set(widths)) == 1:
        table = ranked.view(len(widths), -1)
        return list(table.topk(min(count, table.shape[1]), -1).indices)
    parts = [part.flatten() for part in torch.split(ranked, widths)]
    return [part.topk(min(count, len(part))).indices for part in parts]


def _kept(state: State, rows: list[int], count: int) -> State:
    return state if len(rows) == count else reorder(state, torch.tensor(rows, dtype=torch.long))


def _repeated(memory: Any, had: list[int], have: list[int]) -> Any:
    """The encoded sources, one row for each hypothesis that lives on."""
    if had == have:
        return memory
    firsts, rows = 0, []
    for old, new in zip(had, have, strict=True):
        rows += [firsts] * new
        firsts += old
    return reorder(memory, torch.tensor(rows, dtype=torch.long))
