"""Token by token: greedy, temperature, top-k and top-p (nucleus) sampling."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from seqlab.core.settings.fields import check_group
from seqlab.core.settings.generation import GenerationSettings
from seqlab.core.state import State
from seqlab.core.traits import traits_of
from seqlab.core.types import LanguageModel

READ_AT_ONCE = 256  # tokens


@dataclass(frozen=True)
class Choice:
    """How the next token is chosen from the logits; temperature 0 is greedy."""

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None

    def __post_init__(self) -> None:
        check_group(GenerationSettings(temperature=self.temperature, top_k=self.top_k, top_p=self.top_p))

    def __call__(self, logits: Tensor, generator: torch.Generator) -> int:
        """The next token for logits (V,)."""
        if self.temperature == 0:
            return int(logits.argmax())
        return int(torch.multinomial(self.probabilities(logits), 1, generator=generator))

    def probabilities(self, logits: Tensor) -> Tensor:
        """softmax(logits / temperature), cut to the k likeliest and then to the nucleus of mass p.

        The nucleus is the smallest set of likeliest tokens whose mass reaches p.
        """
        logits = logits.double()
        p = torch.softmax((logits - logits.max()) / self.temperature, dim=-1)  # no overflow at any temperature
        if self.top_k is None and self.top_p is None:
            return p
        ranked, order = p.sort(descending=True, stable=True)
        if self.top_k is not None:
            ranked[self.top_k :] = 0
        if self.top_p is not None:
            ranked = ranked / ranked.sum()
            ranked[ranked.cumsum(0) - ranked >= self.top_p] = 0
        kept = torch.zeros_like(p).scatter(0, order, ranked)
        return kept / kept.sum()


@torch.inference_mode()
def generate(
    model: LanguageModel,
    prompt: list[int],
    tokens: int,
    choice: Choice,
    generator: torch.Generator,
    *,
    never: tuple[int, ...] = (),
    cached: bool = True,
) -> Iterator[int]:
    """Yield `tokens` ids that continue the prompt (which starts with the begin id).

    `cached=False` feeds everything anew for every token: slow, and the same tokens. Where a model's
    positions end (`max_positions`), the last half of them is read anew, on both paths.
    """
    limit: int | None = traits_of(model).max_positions
    ids, start, state = list(prompt), 0, None
    unread = start  # ids from here on are not yet in the state
    for _ in range(tokens):
        if limit is not None and len(ids) - start > limit:
            start = len(ids) - max(1, limit // 2)
            unread, state = start, None
        if not cached:
            unread, state = start, None
        last, state = _read(model, ids[unread:], state)
        unread = len(ids)
        last[list(never)] = -torch.inf
        ids.append(choice(last, generator))
        yield ids[-1]


def _read(model: LanguageModel, ids: list[int], state: State) -> tuple[Tensor, State]:
    """Logits (V,) after the last id, and the state; a long prompt is read in pieces, which bounds the memory."""
    for k in range(0, len(ids), READ_AT_ONCE):
        logits, state = model(torch.tensor([ids[k : k + READ_AT_ONCE]]), state)
    return logits[0, -1].clone(), state
