"""Claims about what attention costs inside whole models: which terms there are, and which of them may be dropped.

Costs are multiply-adds. Each is counted twice, by seqlab on shapes and by torch's own counter while the layer runs.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import partial
from itertools import product
from typing import Any

import torch
from torch import nn

from seqlab.core.types import PaddedBatch
from seqlab.data.tokenizers import CharacterTokenizer, Tokenizer, WordTokenizer
from seqlab.diagnostics.bottleneck import bottleneck
from seqlab.diagnostics.cost import Cost, cost
from seqlab.layers import DecoderBlock, EncoderBlock, MultiHeadAttention
from seqlab.models.translator import Memory, TransformerTranslator
from seqlab.ops.masks import banded_causal_mask
from seqlab.theory.cost_attention import SIZES, Count, layer, ratios  # the other claims of this subject are there
from seqlab.theory.counting import multiply_adds, outline, shape, total
from seqlab.theory.instances import stream
from seqlab.theory.ledger import LEDGER, Evidence, at_least, at_most, between, evidence, exactly
from seqlab.theory.texts import VERSIONED, topics

claim = LEDGER.of("cost")

ATTENTION = ("projections", "scores", "mixing")


def of_attention(counted: Cost) -> float:
    """Multiply-adds of everything but the feed-forward network."""
    return sum(counted.part(name).flops_forward for name in ATTENTION) / 2


def measured(width: int, heads: int, targets: int, sources: int | None = None) -> int:
    """What torch's counter sees while the layer runs."""
    attention, x = layer(width, heads), shape(1, targets, width)
    keys = x if sources is None else shape(1, sources, width)
    return total(multiply_adds(lambda: attention(x, keys, keys, need_weights=True)))


# --------------------------------------------------------------------------- multi-head attention


def multi_head(targets: int, sources: int, width: int, heads: int) -> float:
    return cost(layer(width, heads), 1, targets, source_length=sources).flops_forward / 2


@claim(
    "mha.cost",
    statement=r"Multi-head attention of $n_t$ queries over $n_s$ keys takes $\Theta(n_t d^2 + n_s d^2 + n_t n_s d)$ "
    r"operations, $d = h \, d_{\mathrm{head}}$.",
    note=r"Exactly $2(n_t + n_s)d^2 + 2 n_t n_s d$ multiply-adds, for any number $h$ of heads.",
    verdict="true",
    method="exact",
    right=multi_head,
    wrong={
        "each head as wide as the model": lambda t, s, d, h: 2 * (t + s) * d**2 + 2 * h * t * s * d,
        "the output projection forgotten": lambda t, s, d, h: (t + 2 * s) * d**2 + 2 * t * s * d,
        "the values are not mixed": lambda t, s, d, h: 2 * (t + s) * d**2 + t * s * d,
    },
    about=("seqlab.layers:MultiHeadAttention", "seqlab.diagnostics.cost:cost"),
)
def cost_of_multi_head(seed: int, form: Count) -> Evidence:
    draw = stream(seed, "mha.cost")
    sizes = [(int(t), int(s), 8 * int(d)) for t, s, d in torch.randint(1, 40, (3, 3), generator=draw)]
    cases = [(t, s, d, h) for t, s, d in sizes for h in (1, 2, 4, 8)]
    strays = [form(t, s, d, h) - measured(d, h, t, s) for t, s, d, h in cases]
    least, most = ratios(form, lambda t, s, d, h: t * d**2 + s * d**2 + t * s * d, cases)
    return evidence(
        exactly("counted layers whose multiply-adds differ", sum(stray != 0 for stray in strays), 0),
        exactly("least multiply-adds over the sum in Θ", least, 2),
        exactly("most multiply-adds over the sum in Θ", most, 2),
    )


def projections_over_attention(length: int, width: int) -> float:
    found = cost(layer(width), 1, length)
    part = {name: found.part(name).flops_forward for name in ATTENTION}
    return part["projections"] / (part["scores"] + part["mixing"])


@claim(
    "mha.bottleneck-short",
    statement=r"Where $d$ is large and sequences are short, the four projections dominate the cost of multi-head "
    r"self-attention.",
    note=r"Projections take $2d/n$ times as many operations as scores and mixing: more for all $n < 2d$.",
    verdict="true",
    method="exact",
    right=projections_over_attention,
    wrong={
        "scores dominate instead": lambda n, d: n / (2 * d),
        "only three projections": lambda n, d: 3 * d / (2 * n),
        "the mixing forgotten": lambda n, d: 4 * d / n,
    },
    about=("seqlab.layers:MultiHeadAttention", "seqlab.diagnostics.cost:cost"),
)
def short_sequences(seed: int, form: Count) -> Evidence:
    width = 16 * int(torch.randint(2, 9, (1,), generator=stream(seed, "mha.bottleneck-short")))
    lengths = (width // 16, width // 2, 2 * width - 1)
    counted = {n: self_attention(width, n) for n in lengths}
    seen = {n: found["mm"] / found["bmm"] for n, found in counted.items()}
    return evidence(
        exactly("projections over scores and mixing at n = d/16", form(width // 16, width), 32),
        at_least("the same at n = 2d − 1", form(2 * width - 1, width), 1.0),
        at_most("largest difference from the counted ratio", max(abs(form(n, width) - seen[n]) for n in lengths), 1e-9),
    )


def self_attention(width: int, length: int) -> dict[str, int]:
    """What torch's counter sees, by the kind of product."""
    attention, x = layer(width), shape(1, length, width)
    return multiply_adds(lambda: attention(x, x, x, need_weights=True))


def where_it_turns(width: int) -> float:
    """The length from which on scores and mixing take as much as the projections or more."""
    return bottleneck(cost(layer(width), 1, 1)).until or float("inf")


@claim(
    "mha.bottleneck-long",
    statement=r"Where sequences are long and $d$ is small, scores and the mixing of values dominate the cost of "
    r"multi-head self-attention.",
    note=r"From $n = 2d$ on; their share is $n / (n + 2d)$ and tends to 1.",
    verdict="true",
    method="exact",
    right=where_it_turns,
    wrong={"from n = d on": lambda d: d, "from n = d² on": lambda d: d**2, "from n = 4d on": lambda d: 4 * d},
    about=("seqlab.layers:MultiHeadAttention", "seqlab.diagnostics.bottleneck:bottleneck"),
)
def long_sequences(seed: int, form: Count) -> Evidence:
    width = int(torch.randint(5, 40, (1,), generator=stream(seed, "mha.bottleneck-long")))

    def share(length: int, width: int = width) -> float:
        counted = self_attention(width, length)
        return counted["bmm"] / total(counted)

    turn = int(min(form(width), 1e6))
    return evidence(
        exactly("share of scores and mixing at the stated length", share(turn), 0.5),
        between("the same one position before", share(turn - 1), 0.0, 0.5 - 1e-6),
        at_least("at a hundred times that length", share(100 * turn), 0.99),
        at_least("at n = 512, d = 16", share(512, 16), 0.94),
    )


# --------------------------------------------------------------------------- three places in a Transformer


def encoder_self(length: int, width: int) -> float:
    return of_attention(cost(outline(lambda: EncoderBlock(MultiHeadAttention(width, 1))), 1, length))


@claim(
    "cost.encoder-self",
    statement=r"Self-attention in the encoder costs $O(M^2 k + M k^2) = O(M^2 k)$ for $M$ source tokens of width $k$.",
    conditions=r"The sum is right. Dropping $M k^2$ needs $k = O(M)$, which often fails: at $M = 128$, $k = 1024$ the "
    r"projections cost 16 times the scores and values. In general $O(M k (M + k))$.",
    verdict="conditional",
    method="exact",
    right=lambda m, k: m * k * (m + k),
    wrong={
        "the second term dropped without a condition": lambda m, k: m**2 * k,
        "the first term dropped": lambda m, k: m * k**2,
    },
    about=("seqlab.layers:EncoderBlock", "seqlab.diagnostics.cost:cost"),
)
def in_the_encoder(seed: int, form: Count) -> Evidence:
    grid = list(product(SIZES, SIZES))
    least, most = ratios(encoder_self, form, grid)
    _, conditioned = ratios(encoder_self, lambda m, k: m**2 * k, [(m, k) for m, k in grid if k <= m])
    return evidence(
        at_most("largest count over the stated bound, all sizes", most, 4.0),
        at_least("least count over it", least, 2.0),
        at_most("largest count over M²k where k ≤ M", conditioned, 6.0),
        exactly(
            "sizes at which torch counts another sum", sum(encoder_self(m, k) != measured(k, 1, m) for m, k in grid), 0
        ),
        exactly("projections over scores and values at M = 128, k = 1024", projections_over_attention(128, 1024), 16),
        at_most("the same at M = 4096, k = 64", projections_over_attention(4096, 64), 1 / 32),
    )


def across(targets: int, sources: int, width: int) -> float:
    return cost(layer(width), 1, targets, source_length=sources).flops_forward / 2


@claim(
    "cost.cross",
    statement=r"Attention from $N$ target tokens to $M$ source tokens costs $O(N k^2 + M k^2 + M N k) = O(M N k)$.",
    conditions=r"Dropping the projections needs $k = O(M)$ and $k = O(N)$. Otherwise all terms stay: at $N = 16$, "
    r"$M = 32$, $k = 256$ the whole is 25 times the last term.",
    verdict="conditional",
    method="exact",
    right=lambda n, m, k: n * k**2 + m * k**2 + m * n * k,
    wrong={
        "projections dropped without a condition": lambda n, m, k: m * n * k,
        "keys and values of the source come for free": lambda n, m, k: n * k**2 + m * n * k,
    },
    about=("seqlab.layers:MultiHeadAttention", "seqlab.diagnostics.cost:cost"),
)
def across_two_texts(seed: int, form: Count) -> Evidence:
    grid = list(product(SIZES, SIZES, SIZES))
    least, most = ratios(across, form, grid)
    _, conditioned = ratios(across, lambda n, m, k: m * n * k, [sizes for sizes in grid if sizes[2] <= min(sizes[:2])])
    n, m, k = (int(size) for size in torch.randint(2, 30, (3,), generator=stream(seed, "cost.cross")))
    return evidence(
        exactly("largest count over the stated sum, all sizes", most, 2),
        exactly("least count over it", least, 2),
        at_most("largest count over MNk where k ≤ M and k ≤ N", conditioned, 6.0),
        exactly("count over 2MNk at N = 16, M = 32, k = 256", across(16, 32, 256) / (2 * 16 * 32 * 256), 25),
        exactly("seqlab's count less torch's", across(n, m, k) - measured(k, 1, n, m), 0),
    )


def decoder_self(length: int, width: int) -> float:
    return of_attention(cost(outline(lambda: DecoderBlock(MultiHeadAttention(width, 1))), 1, length))


@claim(
    "cost.decoder-self",
    statement=r"Masked self-attention in the decoder costs $O(N^2 k + N k^2) = O(N^2 k)$ for $N$ target tokens.",
    conditions=r"Dropping $N k^2$ needs $k = O(N)$. The causal mask saves at most a factor 2: $N(N+1)/2$ of $N^2$ "
    r"pairs remain.",
    verdict="conditional",
    method="exact",
    right=decoder_self,
    wrong={
        "no projections": lambda n, k: n * (n + 1) * k,
        "the diagonal masked as well": lambda n, k: 4 * n * k**2 + n * (n - 1) * k,
        "the mask makes it linear in N": lambda n, k: 4 * n * k**2 + 2 * n * k,
    },
    about=("seqlab.layers:DecoderBlock", "seqlab.ops.masks:banded_causal_mask", "seqlab.diagnostics.cost:cost"),
)
def in_the_decoder(seed: int, form: Count) -> Evidence:
    grid = list(product(SIZES, SIZES))
    pairs = {n: int(banded_causal_mask(n, n).sum()) for n in SIZES}
    strays = [form(n, k) - (4 * n * k**2 + 2 * k * pairs[n]) for n, k in grid]
    saved = [(2 * n * n * k) / (form(n, k) - 4 * n * k**2) for n, k in grid if form(n, k) != 4 * n * k**2]
    whole = {n: encoder_self(n, 64) / (2 * n * n * 64) for n in (16, 256, 8192)}  # the same without a mask
    return evidence(
        exactly("sizes at which it is not 4Nk² + 2k · visible pairs", sum(stray != 0 for stray in strays), 0),
        between("most that the mask saves of scores and mixing", max(saved), 1.0, 2.0),
        exactly("without a mask, count over 2N²k at k = 64, N = 16", whole[16], 9),
        exactly("the same at N = 256", whole[256], 1.5),
        at_most("the same at N = 8192", whole[8192], 1.02),
    )


# --------------------------------------------------------------------------- another target language

Decode = Callable[[TransformerTranslator, Memory, int], None]
WIDTH = 8


def with_cache(model: TransformerTranslator, memory: Memory, length: int) -> None:
    state: Any = None
    for n in range(length):
        _, state = model.read(torch.tensor([[n]]), memory, state)


def without_cache(model: TransformerTranslator, memory: Memory, length: int) -> None:
    for n in range(length):
        model.read(torch.arange(n + 1)[None], memory, None)


def source_of(length: int) -> PaddedBatch:
    return PaddedBatch(torch.zeros(1, length, dtype=torch.int64), torch.tensor([length]))


def encoding_again(model: TransformerTranslator, memory: Memory, length: int) -> None:
    with_cache(model, model.encode(source_of(memory.source.shape[1])), length)


def products_of(decode: Decode, model: TransformerTranslator, length: int, sources: int) -> int:
    """Multiply-adds of scores and mixing that one more target takes, the source being encoded already."""
    with torch.no_grad():
        memory = model.encode(source_of(sources))
    return multiply_adds(lambda: decode(model, memory, length))["bmm"]


def weights_of(decode: Decode, model: TransformerTranslator, length: int, sources: int) -> int:
    """Multiply-adds with matrices of weights: what decodes, and the keys and values that it makes of the source."""
    source = source_of(sources)
    with torch.no_grad():
        memory, encoded = model.encode(source), model.encoded(source)
    runs = (lambda: decode(model, memory, length), lambda: model.to_read(encoded, source.lengths))
    return sum(total(multiply_adds(run)) - multiply_adds(run).get("bmm", 0) for run in runs)


@claim(
    "cost.translate-extra",
    statement=r"Translating into one more target language costs an extra $O(N^2 k) + O(M N k)$, so $O(N^2 + M N)$ in "
    r"the lengths.",
    conditions=r"The encoding of the source is shared, keys and values are cached while decoding, and $k$ is constant. "
    r"Without a cache step $n$ reads its prefix again: $\sum_n (n^2 + nM) = \Theta(N^3 + M N^2)$. With $k$ kept, "
    r"projections and feed-forward network add $(M + N) k^2$.",
    verdict="conditional",
    method="exact",
    right=with_cache,
    wrong={"without a cache": without_cache, "the source is encoded again": encoding_again},
    about=("seqlab.models.translator:TransformerTranslator",),
)
def one_more_language(seed: int, form: Decode) -> Evidence:
    with torch.random.fork_rng(devices=[]):
        model = TransformerTranslator(64, 1, WIDTH, 1, 2).eval()
    m, n = (int(size) for size in torch.randint(5, 12, (2,), generator=stream(seed, "cost.translate-extra")))
    strays = [products_of(form, model, t, s) - 2 * WIDTH * (t * (t + 1) // 2 + t * s) for t, s in ((n, m), (m, n))]
    more = products_of(form, model, 4, 2 * m) - products_of(form, model, 4, m)
    again = sum(t**2 + t * m for t in range(1, n + 1))
    return evidence(
        exactly("scores and mixing that are not 2k(N(N+1)/2 + NM)", sum(stray != 0 for stray in strays), 0),
        exactly("four tokens more for a source twice as long, over 2kNM", more / (2 * WIDTH * 4 * m), 1),
        exactly("without a cache, less 2k Σ(n² + nM)", products_of(without_cache, model, n, m) - 2 * WIDTH * again, 0),
        exactly(
            "projections and feed-forward network, less (15N + 2M)k²",
            weights_of(form, model, n, m) - (15 * n + 2 * m) * WIDTH**2,
            0,
        ),
    )


# --------------------------------------------------------------------------- words against characters


def encoded_length(tokenizer: type[Tokenizer], text: str) -> int:
    return len(tokenizer.fit([text]).encode(text))


def products_in(part: str, length: int) -> int:
    return round(cost(layer(16, 2), 1, length).part(part).flops_forward / 2)


@claim(
    "wordlm.attention-cost",
    statement=r"Models of words read fewer tokens than models of characters, and attention costs $O(l^2)$ in their "
    r"number $l$.",
    note=r"A factor $r$ fewer tokens saves $r^2$ of the scores and mixing, but only $r$ of the projections; the "
    rf"softmax over the vocabulary grows instead. {VERSIONED}",
    verdict="true",
    method="exact",
    right=lambda r: r**2,
    wrong={"in proportion to the tokens": lambda r: r, "cubic": lambda r: r**3},
    about=("seqlab.diagnostics.cost:cost", "seqlab.data.tokenizers:WordTokenizer"),
)
def fewer_tokens(seed: int, form: Callable[[Fraction], Fraction]) -> Evidence:
    begin = int(torch.randint(0, len(topics()) - 40_000, (1,), generator=stream(seed, "wordlm.attention-cost")))
    passage = topics()[begin : begin + 40_000]
    lengths = {kind: encoded_length(kind, passage) for kind in (CharacterTokenizer, WordTokenizer)}
    r = Fraction(lengths[CharacterTokenizer], lengths[WordTokenizer])
    saved = {part: Fraction(*(products_in(part, n) for n in lengths.values())) for part in ("scores", "projections")}
    strays = [products_in("scores", n) - 2**4 * n**2 for n in (1, 7, 64, 4096)]
    return evidence(
        exactly("scores that do not take l²d multiply-adds, d = 16, l = 1 to 4096", sum(map(bool, strays)), 0),
        at_least("characters for each word of a passage of pydoc", r, 2.0),
        exactly("scores saved less the stated saving", saved["scores"] - form(r), 0),
        exactly("projections saved less r", saved["projections"] - r, 0),
        at_least("the softmax over the vocabulary: a word's over a character's", vocabulary_cost(passage), 2.0),
    )


def vocabulary_cost(text: str) -> float:
    """Of the output layer, for one token."""
    sizes = (kind.fit([text]).vocab_size for kind in (WordTokenizer, CharacterTokenizer))
    words, characters = (cost(outline(partial(nn.Linear, 16, size)), 1, 1).flops_forward for size in sizes)
    return words / characters
