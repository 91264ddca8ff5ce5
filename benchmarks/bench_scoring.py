"""Scoring against the model's bare forward pass over the same tokens, warm-up included; n-gram counting and scoring.

Both are timed in turn, and the ratio of the median times is printed (1.00: scoring costs nothing beside the
model). What scoring computes is held to a plain loop by tests/evaluation/test_surprisal.py.
"""

import numpy as np
import torch

from seqlab.data.corpora import load_corpus
from seqlab.evaluation.surprisal import BATCH, FED_TOKENS, nats_of_ids, policy_for
from seqlab.models import build_lm
from seqlab.models.ngram import NGramLM
from timing import alternate

VOCABULARY = 1_000
TOKENS = 40_000
REPETITIONS = 11


def rows_fed(ids: np.ndarray, model: torch.nn.Module) -> list[torch.Tensor]:
    """The inputs that scoring feeds, batch after batch."""
    policy = policy_for(model)
    starts = np.arange(0, len(ids), policy.segment)
    batches = []
    for k in range(0, len(starts), BATCH):
        first = np.maximum(starts[k : k + BATCH] - policy.warmup + 1, 0)
        length = int((np.minimum(starts[k : k + BATCH] + policy.segment, len(ids)) - first).max())
        places = np.minimum(first[:, None] + np.arange(length) - 1, len(ids) - 1).clip(0)
        batches.append(torch.from_numpy(ids[places]))
    return batches


@torch.inference_mode()
def forward_only(model: torch.nn.Module, batches: list[torch.Tensor]) -> int:
    fed = 0
    for inputs in batches:
        step = inputs.shape[1] if hasattr(model, "context") else FED_TOKENS
        state = None
        for k in range(0, inputs.shape[1], step):
            _, state = model(inputs[:, k : k + step], state)
        fed += inputs.numel()
    return fed


def neural() -> None:
    ids = np.random.default_rng(0).integers(0, VOCABULARY, TOKENS)
    for kind in ("rnn", "gru", "lstm", "transformer", "bigram"):
        model = build_lm(kind, vocab_size=VOCABULARY).eval()
        batches, policy = rows_fed(ids, model), policy_for(model)
        forward, scoring = alternate(
            [
                lambda m=model, b=batches: forward_only(m, b),
                lambda m=model, p=policy: nats_of_ids(m, ids, VOCABULARY, p),
            ],
            REPETITIONS,
            warm_up=1,
        )
        fed = sum(b.numel() for b in batches)
        print(
            f"{kind:12s} scoring runs at {forward / scoring:.3f} of the forward speed "
            f"({fed / scoring / 1e3:,.0f} K tokens fed/s, {TOKENS / scoring / 1e3:,.0f} K scored/s)",
            flush=True,
        )


def counted() -> None:
    text = np.frombuffer(load_corpus("shakespeare").path.read_bytes(), np.uint8)
    ids = np.unique(text, return_inverse=True)[1]
    vocab = int(ids.max()) + 1
    for order in (3, 5, 7, 8):
        model = NGramLM.fit(ids, vocab, order)
        sides = [lambda o=order: NGramLM.fit(ids, vocab, o), lambda m=model: m.nats_of(ids[:500_000])]
        fit, score = alternate(sides, 3, warm_up=0)
        print(
            f"n-gram order {order}: counts {len(ids):,} characters in {fit:.2f} s "
            f"({len(ids) / fit / 1e6:.2f} M tokens/s), scores {0.5 / score:.2f} M tokens/s",
            flush=True,
        )


if __name__ == "__main__":
    counted()
    neural()
