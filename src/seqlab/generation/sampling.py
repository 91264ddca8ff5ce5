"""Token by token: greedy, temperature, top-k and top-p (nucleus) sampling, of one sequence or of many side by side."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from seqlab.core.errors import NotFiniteError, UsageError
from seqlab.core.settings.fields import check_group
from seqlab.core.settings.generation import GenerationSettings
from seqlab.core.traits import traits_of
from seqlab.core.types import LanguageModel
from seqlab.generation.reading import Group, Row, read_all, read_apart, read_on

TINY = 1e-20  # below any q but that of u = 0, where what has no mass must not be drawn either


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
        return self.of_each(logits[None], [generator])[0]

    def of_each(self, logits: Tensor, generators: Sequence[torch.Generator]) -> list[int]:
        """The next token of each row for logits (B, V): the one that the row alone would get from its generator.

        argmax_i p_i / q_i with q_i = −ln(1 − u_i) ~ Exp(1) is i with probability p_i. torch.multinomial draws the same
        token from the same u, but takes one row at a time, logarithms and checks included.
        """
        if self.temperature == 0:
            _refuse_nan(logits.amax(-1))
            return _numbers(logits.argmax(-1))
        p = self.probabilities(logits)
        _refuse_nan(p[:, 0])  # one that is not finite makes its whole row so
        u = torch.empty_like(p)
        for row, generator in zip(u, generators, strict=True):
            row.uniform_(generator=generator)
        minus_q = (1 - u).log_().clamp_(max=-TINY)  # 1 − u is exact
        return _numbers((p / minus_q).argmin(-1))

    def probabilities(self, logits: Tensor) -> Tensor:
        """softmax(logits / temperature), cut to the k likeliest and then to the nucleus of mass p.    (…, V) -> (…, V)

        The nucleus is the smallest set of likeliest tokens whose mass reaches p. Masses are running sums, which add up
        in one order: the bits of a row do not depend on the rows beside it.
        """
        logits = logits.double()
        largest = logits.amax(-1, keepdim=True)
        p = torch.softmax((logits - largest) / self.temperature, dim=-1)  # no overflow at any temperature
        if self.top_k is None and self.top_p is None:
            return p
        ranked, order = p.sort(dim=-1, descending=True, stable=True)
        if self.top_k is not None:
            ranked[..., self.top_k :] = 0
        if self.top_p is not None:
            ranked = ranked / _mass(ranked)
            ranked = ranked.masked_fill(ranked.cumsum(-1) - ranked >= self.top_p, 0)
        return torch.zeros_like(p).scatter(-1, order, ranked / _mass(ranked))


def _refuse_nan(of_each_row: Tensor) -> None:
    if any(map(math.isnan, of_each_row.tolist())):
        raise NotFiniteError(
            "the model's logits are not finite, so no token can be drawn: its weights are damaged or its training "
            "diverged"
        )


def _mass(ranked: Tensor) -> Tensor:
    return ranked.cumsum(-1)[..., -1:]


def _numbers(chosen: Tensor) -> list[int]:
    found: list[int] = chosen.tolist()
    return found


def generate(
    model: LanguageModel,
    prompt: list[int],
    tokens: int,
    choice: Choice,
    generator: torch.Generator,
    *,
    never: tuple[int, ...] = (),
    end: int | None = None,
    cached: bool = True,
) -> Iterator[int]:
    """Yield ids that continue the prompt (which starts with the begin id): `tokens`, or fewer if the end id comes.

    `cached=False` feeds everything anew for every token: slow, and the same tokens. Where a model's
    positions end (`max_positions`), the last half of them is read anew, on both paths.
    """
    written = generate_each(model, [prompt], tokens, choice, [generator], never=never, end=end, cached=cached)
    for _, token in written:
        yield token


def generate_batch(
    model: LanguageModel,
    prompts: Sequence[list[int]],
    tokens: int,
    choice: Choice,
    generators: Sequence[torch.Generator],
    *,
    never: tuple[int, ...] = (),
    end: int | None = None,
    cached: bool = True,
) -> list[list[int]]:
    """What `generate` writes for each prompt with the generator of its own, all side by side."""
    texts: list[list[int]] = [[] for _ in prompts]
    for row, token in generate_each(model, prompts, tokens, choice, generators, never=never, end=end, cached=cached):
        texts[row].append(token)
    return texts


def generate_each(
    model: LanguageModel,
    prompts: Sequence[list[int]],
    tokens: int,
    choice: Choice,
    generators: Sequence[torch.Generator],
    *,
    never: tuple[int, ...] = (),
    end: int | None = None,
    cached: bool = True,
) -> Iterator[tuple[int, int]]:
    """Yield (number of the prompt, id) as they come, without the end id, after which a sequence costs nothing more."""
    if len(prompts) != len(generators):
        raise UsageError(f"there are {len(prompts)} prompts, but {len(generators)} generators; each has its own")
    check_group(GenerationSettings(tokens=tokens))
    if not all(prompts):
        raise UsageError("a prompt has no ids; it starts with the begin id")
    rows = [Row(number, list(prompt)) for number, prompt in enumerate(prompts)]
    hidden = torch.tensor(never, dtype=torch.long)

    def choose(group: Group) -> None:
        logits = group.logits.index_fill(-1, hidden, -torch.inf)
        chosen = choice.of_each(logits, [generators[row.number] for row in group.rows])
        for row, token in zip(group.rows, chosen, strict=True):
            row.ids.append(token)
            row.ended = token == end

    for groups in itertools.islice(_written(model, rows, choose, cached), tokens):
        yield from ((row.number, row.ids[-1]) for group in groups for row in group.rows if not row.ended)


@torch.inference_mode()
def _written(
    model: LanguageModel, rows: list[Row], choose: Callable[[Group], None], cached: bool
) -> Iterator[list[Group]]:
    """The rows that go on, each with one more id, as long as there are any."""
    limit: int | None = traits_of(model).max_positions
    groups = read_all(model, rows, limit) if cached else read_apart(model, rows, limit)
    while groups:
        for group in groups:
            choose(group)
        yield groups
        if cached:
            groups = read_on(model, groups, limit)
        else:
            groups = read_apart(model, [row for row in rows if not row.ended], limit)
