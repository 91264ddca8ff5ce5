"""Claims about models of characters; they belong to the subject of perplexity."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from seqlab.core.types import Scorer
from seqlab.data.tokenizers import ByteTokenizer, CharacterTokenizer, Tokenizer, WordTokenizer
from seqlab.diagnostics.cost import cost
from seqlab.evaluation.baselines import character_ngram
from seqlab.models.recurrent_lm import GRULM
from seqlab.theory.counting import outline
from seqlab.theory.instances import stream
from seqlab.theory.ledger import LEDGER, Evidence, Finding, between, evidence, exactly
from seqlab.theory.sampling import mean_of
from seqlab.theory.texts import VERSIONED, passages, topics

claim = LEDGER.of("perplexity")

# --------------------------------------------------------------------------- unknown words

Read = Callable[[str, str], float]  # (training text, word) -> share of its tokens that are known


def known_share(tokenizer: type[Tokenizer]) -> Read:
    def share(training: str, word: str) -> float:
        return 1.0 - float(tokenizer.fit([training]).encode(word).unknown.mean())

    return share


@claim(
    "charlm.unknown-words",
    statement=r"Models of characters can deal with words that they have never seen.",
    conditions=r"Every character of the word is in the alphabet. Else there are unknown tokens again, one for each "
    r"such character.",
    verdict="conditional",
    method="exact",
    right=known_share(CharacterTokenizer),
    wrong={
        "words are the tokens": known_share(WordTokenizer),
        "every character is in the alphabet": known_share(ByteTokenizer),
    },
    about=("seqlab.data.tokenizers:CharacterTokenizer", "seqlab.evaluation.surprisal:ModelScorer"),
)
def unseen_words(seed: int, form: Read) -> Evidence:
    draw = stream(seed, "charlm.unknown-words")
    training = topics()[:50_000]
    letters = "".join(chr(97 + int(k)) for k in torch.randint(0, 26, (12,), generator=draw))
    unknown = sorted(set(map(chr, range(0x4E00, 0x4E00 + 5000))) - set(training))
    strange = [unknown[int(k)] for k in torch.randint(0, len(unknown), (6,), generator=draw)]
    foreign = "".join(a + b for a, b in zip(letters, strange, strict=False))
    scorer = character_ngram(training, 3)
    familiar, unfamiliar = scorer.score(letters), scorer.score(foreign)
    return evidence(
        exactly("known share of a new word from the alphabet", form(training, letters), 1.0),
        exactly("the same with a foreign letter after each of its first six", form(training, foreign), 0.5),
        exactly("times that the new word stands in the training text", training.count(letters), 0),
        exactly("nats for the spelling of the new word", familiar.spelling.sum(), 0.0),
        between("nats for each foreign letter's spelling", unfamiliar.spelling.sum() / 6, 1.0, 20.0),
    )


# --------------------------------------------------------------------------- memory

WORDS, CHARACTERS, WIDTH = 20_000, 100, 300
Parameters = Callable[[nn.Module], float]


def language_model(vocabulary: int) -> Any:
    return outline(lambda: GRULM(vocabulary, WIDTH, 1))


def of_the_vocabulary(model: nn.Module) -> float:
    found = cost(model, 1, 1)
    return found.part("embedding").parameters + found.part("output").parameters


@claim(
    "charlm.memory",
    statement=r"A smaller vocabulary needs less memory: models of characters are smaller than models of words.",
    conditions=r"In the embedding and the output layer, which have $V d$ weights each. The recurrent weights stay as "
    r"they are, and there is more to keep for the gradient, since the same text has more tokens.",
    verdict="conditional",
    method="exact",
    right=of_the_vocabulary,
    wrong={
        "all weights": lambda model: cost(model, 1, 1).parameters,
        "the embedding alone": lambda model: cost(model, 1, 1).part("embedding").parameters,
    },
    about=("seqlab.models.recurrent_lm:GRULM", "seqlab.diagnostics.cost:cost"),
)
def smaller_vocabulary(seed: int, form: Parameters) -> Evidence:
    large, small = language_model(WORDS), language_model(CHARACTERS)
    length = int(torch.randint(50, 200, (1,), generator=stream(seed, "charlm.memory")))
    kept = {n: cost(small, 1, n).part("recurrent").saved for n in (length, 6 * length)}
    tables = {vocabulary: 2 * vocabulary * WIDTH + WIDTH + vocabulary for vocabulary in (WORDS, CHARACTERS)}
    inside = [cost(model, 1, 1).part("recurrent").parameters for model in (large, small)]
    return evidence(
        exactly("weights of 20,000 words less 2Vd, the begin row and a bias", form(large) - tables[WORDS], 0),
        exactly("the same of 100 characters", form(small) - tables[CHARACTERS], 0),
        between("millions of weights that 20,000 words need, d = 300", form(large) / 1e6, 12.0, 12.1),
        between("and 100 characters", form(small) / 1e6, 0.06, 0.061),
        exactly("recurrent weights, words less characters", inside[0] - inside[1], 0),
        exactly("kept for the gradient where a text has six times as many tokens", kept[6 * length] / kept[length], 6),
    )


# --------------------------------------------------------------------------- parts of words

SUFFIXES = ("ing", "tion", "able", "ment", "ness", "ed", "ly", "er", "ive", "ance")
PREFIXES = ("un", "re", "in", "dis", "pre", "sub", "con", "over")


def nats_of_words(scorer: Scorer, words: list[str]) -> Tensor:
    """−ln p of each word between two spaces."""
    return torch.tensor([scorer.score(f"the {word} ").total for word in words], dtype=torch.float64)


def unseen_with(pattern: str, training: str) -> list[str]:
    """Words of the topics that match and that the training text never has, in lower case."""
    seen = set(re.findall(r"[a-z]+", training.lower()))
    words = set(re.findall(r"\b[a-z]{6,}\b", topics())) - seen
    return sorted(word for word in words if re.search(pattern, word))


def turned_round(word: str, affixes: tuple[str, ...], *, at_the_end: bool) -> str:
    """The same word with the letters of its prefix, or suffix, in the other order."""
    fits = word.endswith if at_the_end else word.startswith
    affix = max((a for a in affixes if fits(a)), key=len)
    rest = word[: -len(affix)] if at_the_end else word[len(affix) :]
    return rest + affix[::-1] if at_the_end else affix[::-1] + rest


def gain(scorer: Scorer, training: str, affixes: tuple[str, ...], *, at_the_end: bool) -> Finding:
    """How many nats cheaper affixes are than their letters in the other order, in words that were never seen."""
    pattern = f"({'|'.join(affixes)})$" if at_the_end else f"^({'|'.join(affixes)})"
    words = unseen_with(pattern, training)
    other = [turned_round(word, affixes, at_the_end=at_the_end) for word in words]
    found = mean_of(nats_of_words(scorer, other) - nats_of_words(scorer, words))
    what = (
        f"nats that {'suffixes' if at_the_end else 'prefixes'} of unseen words save, beside the same letters reversed"
    )
    return Finding(what, found.mean, (1.0, 100.0), found.interval)


@claim(
    "charlm.subword",
    statement=r"Models of characters can learn prefixes and suffixes: also in a word that they have never seen, these "
    r"are cheaper than the same letters in another order.",
    note=r"Shown on a model that counts five characters. It says nothing of how a model uses what it has learnt. "
    + VERSIONED,
    verdict="empirical",
    method="sampling",
    right=5,
    wrong={"single characters": 1},
    about=("seqlab.evaluation.baselines:character_ngram", "seqlab.models.ngram:NGramLM"),
)
def parts_of_words(seed: int, form: int) -> Evidence:
    training, _ = passages(seed, "charlm.subword")
    scorer = character_ngram(training, form)
    return evidence(
        gain(scorer, training, SUFFIXES, at_the_end=True),
        gain(scorer, training, PREFIXES, at_the_end=False),
    )
