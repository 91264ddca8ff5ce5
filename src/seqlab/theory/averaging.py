"""Claims about the deep averaging network, which reads a text as the bag of its words."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray

from seqlab.core.types import BagBatch, PaddedBatch
from seqlab.data.bags import BagReader, Known, features_in_documents
from seqlab.data.label_batches import input_batch
from seqlab.diagnostics.attribution import leave_one_out
from seqlab.evaluation.text_pieces import find_words
from seqlab.models.averaging import AveragingClassifier
from seqlab.theory.instances import fill, stream
from seqlab.theory.ledger import AS_STATED, LEDGER, Evidence, Finding, at_least, at_most, evidence, exactly
from seqlab.theory.sampling import Z

claim = LEDGER.of("averaging")

Texts = Sequence[str]
Logits = Callable[[Texts], NDArray[np.float64]]  # (texts, 2): of the negative and the positive class
Maker = Callable[[Texts, torch.Generator], Logits]  # a network with random weights that knows the texts' words
Trainer = Callable[["Reviews"], Logits]
BITS = 18  # of the table of words


@dataclass(frozen=True)
class Network:
    """seqlab's averaging network of word vectors with the reader of its texts."""

    model: AveragingClassifier
    reader: BagReader
    known: Known

    @classmethod
    def of(cls, texts: Texts, order: int = 1) -> Network:
        """It knows the word n-grams of these texts up to an order."""
        reader = BagReader(order, BITS)
        kept = features_in_documents(reader.read(texts), np.arange(len(texts)), 1)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            model = AveragingClassifier(2, len(kept), bayes=False, width=8, hidden=32, depth=1, pooling="mean")
        return cls(model, reader, Known.of(kept, BITS))

    def batch(self, texts: Texts) -> BagBatch | PaddedBatch:
        return input_batch(self.known.numbered(self.reader.read(texts)), np.arange(len(texts)))

    @torch.no_grad()
    def __call__(self, texts: Texts) -> NDArray[np.float64]:
        found: NDArray[np.float64] = self.model(self.batch(texts)).double().numpy()
        return found


# --------------------------------------------------------------------------- the order of words


def of_words(texts: Texts, draw: torch.Generator) -> Network:
    made = Network.of(texts)
    fill(made.model, draw)
    return made


def of_pairs(texts: Texts, draw: torch.Generator) -> Network:
    """Neighbouring words are features too."""
    made = Network.of(texts, order=2)
    fill(made.model, draw)
    return made


def first_words_more(texts: Texts, draw: torch.Generator) -> Logits:
    """Each word weighs half as much as the one before it."""
    made = of_words(texts, draw)

    def logits(some: Texts) -> NDArray[np.float64]:
        return np.stack([weighted(text.split()) for text in some])

    def weighted(words: list[str]) -> NDArray[np.float64]:
        weights = 0.5 ** np.arange(len(words))
        found: NDArray[np.float64] = weights @ made(words) / weights.sum()
        return found

    return logits


def sentence_of(draw: torch.Generator, words: int) -> str:
    return " ".join(f"w{number}" for number in torch.randperm(1000, generator=draw)[:words].tolist())


def shuffled(text: str, draw: torch.Generator) -> str:
    words = text.split()
    return " ".join(words[k] for k in torch.randperm(len(words), generator=draw).tolist())


@claim(
    "dan.word-order",
    statement=r"A deep averaging network can weigh the first phrases of a text more than the later ones.",
    correction=r"It reads the mean of the word vectors, which no order of the words changes: position cannot be the "
    r"cause of a mistake. More likely ones are lost negation (of 'would not recommend', 'recommend' counts), how "
    r"frequent words are, and the averaging of mixed sentiment.",
    note=r"Of words as features. Pairs of neighbouring words as features see the order within a phrase, but not where "
    r"the phrase stands.",
    verdict="false",
    method="exact",
    right=of_words,
    wrong={AS_STATED: first_words_more, "pairs of words are features": of_pairs},
    about=("seqlab.models.averaging:AveragingClassifier", "seqlab.data.bags:BagReader"),
)
def word_order(seed: int, form: Maker) -> Evidence:
    draw = stream(seed, "dan.word-order")
    text = sentence_of(draw, 12)
    orders = [text, *(shuffled(text, draw) for _ in range(20))]
    halves = " ".join((*text.split()[6:], *text.split()[:6]))
    logits = form(orders, draw)
    found, lacking = logits([*orders, halves]), logits([text.rpartition(" ")[0]])
    change = float(np.abs(found - found[0]).max())
    bags = BagReader(1, BITS).read(orders)
    different = {tuple(bags.features[a:b]) for a, b in pairwise(bags.offsets)}
    return evidence(
        at_most("largest change of a logit, of 20 orders of 12 words", change, 1e-12),
        exactly("different bags of words that are read", len(different), 1),
        at_most("change of a logit when the halves are exchanged", np.abs(found[-1] - found[0]).max(), 1e-12),
        at_least("change of a logit when the last word is left out", np.abs(lacking - found[0]).max(), 1e-9),
        counterexample=two_words(draw),
    )


def two_words(draw: torch.Generator) -> str:
    """One text in both orders, and how its logit moves."""
    texts = ["good bad", "bad good"]
    moved = [float(abs(a - b)) for a, b in (logits(texts)[:, 1] for logits in (m(texts, draw) for m in READERS))]
    return (
        f"Two words, 'good bad' and 'bad good': the logit of the average moves by ${moved[0]:g}$, that of a reader "
        f"whose first words weigh more by ${moved[1]:.3f}$."
    )


READERS: tuple[Maker, Maker] = (of_words, first_words_more)

# --------------------------------------------------------------------------- mixed sentiment

TEXTS = 800  # for training, and as many for testing; about half of each are mixed
STEPS, RATE = 100, 3.0


@dataclass(frozen=True)
class Reviews:
    """Made reviews: words for or against among others that say neither. Of mixed ones what stands after "but" decides.

    plain  3 or 4 words of one side
    mixed  2 or 3 words of the other side, but 2 or 3 words of this side
    """

    texts: list[str]
    positive: NDArray[np.bool_]
    mixed: NDArray[np.bool_]


def words_of(positive: bool, count: int, draw: torch.Generator) -> str:
    side = "praise" if positive else "blame"
    spoken = [f"{side}{k}" for k in torch.randperm(15, generator=draw)[:count].tolist()]
    return " ".join((*spoken, *(f"thing{k}" for k in torch.randperm(30, generator=draw)[:3].tolist())))


def written(draw: torch.Generator) -> Reviews:
    positive, mixed = (torch.rand(TEXTS, generator=draw) < 0.5 for _ in range(2))
    counts = torch.randint(2, 4, (TEXTS, 2), generator=draw).tolist()
    texts = [
        f"{words_of(not said, first, draw)} but {words_of(said, last, draw)}"
        if both
        else words_of(said, first + 1, draw)
        for said, both, (first, last) in zip(positive.tolist(), mixed.tolist(), counts, strict=True)
    ]
    return Reviews(texts, positive.numpy(), mixed.numpy())


def last_clause(text: str) -> str:
    return text.rpartition(" but ")[2]


def trained(reviews: Reviews) -> Network:
    """By gradient descent on the cross entropy of all texts at once."""
    made = Network.of(reviews.texts)
    truth = torch.from_numpy(reviews.positive).long()
    batch = made.batch(reviews.texts)
    weights = list(made.model.parameters())
    for _ in range(STEPS):
        loss = torch.nn.functional.cross_entropy(made.model(batch), truth)
        with torch.no_grad():
            for weight, gradient in zip(weights, torch.autograd.grad(loss, weights), strict=True):
                weight.sub_(RATE * gradient)
    made.model.eval()
    return made


def reader_of_last_clause(reviews: Reviews) -> Logits:
    made = trained(Reviews([last_clause(text) for text in reviews.texts], reviews.positive, reviews.mixed))
    return lambda texts: made([last_clause(text) for text in texts])


def guesser(reviews: Reviews) -> Logits:
    def logits(texts: Texts) -> NDArray[np.float64]:
        drawn = [torch.randn(2, generator=stream(0, text), dtype=torch.float64) for text in texts]
        found: NDArray[np.float64] = torch.stack(drawn).numpy()
        return found

    return logits


def mistakes(decide: Logits, texts: Texts, positive: NDArray[np.bool_]) -> NDArray[np.bool_]:
    logits = decide(texts)
    wrong: NDArray[np.bool_] = (logits[:, 1] > logits[:, 0]) != positive
    return wrong


def difference(a: NDArray[np.bool_], b: NDArray[np.bool_]) -> Finding:
    """Of two error rates, with its interval."""
    gap = float(a.mean() - b.mean())
    stray = Z * math.sqrt(float(a.var() / len(a) + b.var() / len(b)))
    return Finding("error rate of mixed texts less that of the others", gap, (0.05, 1.0), (gap - stray, gap + stray))


def own_way(decide: Logits, texts: Texts) -> float:
    """Of the words for and against, the share that pushes its own way; a push is by leaving the word out."""
    found = []
    for text in texts[:20]:
        words = [word for word in find_words(text) if word.text.startswith(("praise", "blame"))]
        pushes = leave_one_out(decide, text, [(word.start, word.end) for word in words], 1, 0).values
        found += [(push > 0) == word.text.startswith("praise") for word, push in zip(words, pushes, strict=True)]
    return float(np.mean(found)) if found else math.nan


def right_without_the_other_side(decide: Logits, texts: Texts, positive: NDArray[np.bool_]) -> float:
    """The share of some mixed texts."""
    return 1 - float(mistakes(decide, [last_clause(text) for text in texts], positive).mean()) if texts else math.nan


@claim(
    "dan.mixed-sentiment",
    statement=r"Positive and negative words of one text cancel in the average and cause mistakes.",
    note=r"Measured on made reviews of both kinds, in whose mixed texts the words after 'but' decide, with a network "
    r"trained on such reviews. Words are left out one at a time to see which way each pushes. How often this happens "
    r"elsewhere depends on the texts.",
    verdict="empirical",
    method="sampling",
    right=trained,
    wrong={"a reader of the last clause": reader_of_last_clause, "guessing": guesser},
    about=("seqlab.models.averaging:AveragingClassifier", "seqlab.diagnostics.attribution:leave_one_out"),
)
def mixed_sentiment(seed: int, form: Trainer) -> Evidence:
    draw = stream(seed, "dan.mixed-sentiment")
    decide, tested = form(written(draw)), written(draw)
    logits, mixed = decide(tested.texts), tested.mixed
    wrong, margins = mistakes(decide, tested.texts, tested.positive), np.abs(logits[:, 1] - logits[:, 0])
    gap = difference(wrong[mixed], wrong[~mixed])
    mistaken = np.flatnonzero(wrong & mixed)
    texts = [tested.texts[k] for k in mistaken]
    alone = right_without_the_other_side(decide, texts, tested.positive[mistaken])
    return evidence(
        gap,
        at_least("its lower end", gap.interval[0] if gap.interval else math.nan, 0.0),
        at_most("median |logit| of mixed texts over that of the others", ratio_of_medians(margins, mixed), 0.5),
        at_least("words of mistaken mixed texts that push their own way", own_way(decide, texts), 0.8),
        at_least("mistaken mixed texts that are right without the other side", alone, 0.9),
    )


def ratio_of_medians(values: NDArray[np.float64], chosen: NDArray[np.bool_]) -> float:
    """Of the chosen ones over the others."""
    return float(np.median(values[chosen]) / np.median(values[~chosen]))
