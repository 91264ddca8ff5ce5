"""How text is written: what can be asked of `generate`."""

from __future__ import annotations

from dataclasses import dataclass

from seqlab.core.settings.fields import COUNT, Limits, setting

GREEDY_OR_MORE = Limits(0, words="must be a number of 0 (greedy) or more")
MASS = Limits(0, 1, words="must be greater than 0 and at most 1", open_below=True)


@dataclass(frozen=True)
class GenerationSettings:
    tokens: int = setting(200, "tokens to write", limits=Limits(0, words="must not be negative"))
    temperature: float = setting(1.0, "0: greedy", limits=GREEDY_OR_MORE)
    top_k: int | None = setting(None, "choose among the N likeliest tokens", limits=Limits(1))
    top_p: float | None = setting(None, "choose among the likeliest tokens of mass X", limits=MASS)
    seed: int = setting(0, "seed of the choices")
    samples: int = setting(1, "continuations of each prompt, with the seeds SEED, SEED+1, …", limits=COUNT)
