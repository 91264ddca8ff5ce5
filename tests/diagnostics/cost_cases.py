"""Small models of every kind of every task, and a step of training for each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from seqlab.core.registry import CLASSIFIERS, TRANSLATORS, look_up
from seqlab.core.types import BagBatch, LabelBatch, PaddedBatch, PairBatch, TokenBatch
from seqlab.layers import BlockStyle
from seqlab.layers.recompute import recompute_blocks
from seqlab.models import build_lm
from seqlab.models.averaging import AveragingClassifier
from seqlab.models.encoder_classifier import EncoderClassifier
from seqlab.models.translator import Translator
from seqlab.training.objectives import Labels, NextToken, TargetTokens

V, CLASSES, WORDS = 70, 5, 80

Make = Callable[[], Any]


def lm(kind: str, **sizes: Any) -> Make:
    return lambda: build_lm(kind, V, **sizes)


def transformer(**sizes: Any) -> Make:
    return lm("transformer", **(dict(width=32, depth=2, heads=4, context=2048) | sizes))


def classifier(kind: str, **sizes: Any) -> Make:
    return lambda: look_up(CLASSIFIERS, kind, "classifier")(classes=CLASSES, **sizes)


def reader(kind: str, **sizes: Any) -> Make:
    return classifier(kind, **(dict(words=WORDS, width=32, depth=2) | sizes))


def translator(kind: str, **sizes: Any) -> Make:
    heads = dict(heads=4) if kind == "transformer" else {}
    sizes = dict(width=32, depth=2) | heads | sizes
    return lambda: look_up(TRANSLATORS, kind, "translator")(vocab_size=V, targets=2, **sizes)


def recomputing() -> Any:
    model = transformer()()
    recompute_blocks(model, "transformer")
    return model


CASES: dict[str, Make] = {
    "lm bigram": lm("bigram", width=48, vector_width=32),
    "lm bigram, fixed": lm("bigram", width=48, vector_width=32, train_vectors=False),
    "lm rnn": lm("rnn", width=32, depth=2),
    "lm gru": lm("gru", width=32, depth=2, dropout=0.1),
    "lm lstm": lm("lstm", width=32, depth=2),
    "lm lstm, tied": lm("lstm", width=32, depth=2, tied=True, dropout=0.1),
    "lm attentive-rnn": lm("attentive-rnn", width=32, depth=2, context=512, dropout=0.1),
    "lm attentive-rnn, window": lm("attentive-rnn", width=32, depth=1, context=16),
    "lm attentive-rnn, additive": lm("attentive-rnn", width=32, depth=1, context=16, score="additive"),
    "lm transformer": transformer(),
    "lm transformer, tied": transformer(tied=True, output_bias=True),
    "lm transformer, learned": transformer(positions="learned"),
    "lm transformer, sinusoidal": transformer(positions="sinusoidal"),
    "lm transformer, kv_heads": transformer(kv_heads=2),
    "lm transformer, kv_heads, learned": transformer(kv_heads=2, positions="learned"),
    "lm transformer, head_width": transformer(style=BlockStyle(head_width=12, bias=False, bias_out=True)),
    "lm transformer, post": transformer(placement="post"),
    "lm transformer, parallel": transformer(placement="parallel"),
    "lm transformer, gated": transformer(norm="rms", gated=True, activation="silu"),
    "lm transformer, relu": transformer(activation="relu"),
    "lm transformer, dropout": transformer(dropout=0.1),
    "lm transformer, window": transformer(context=16),
    "lm transformer, recompute": recomputing,
    "lm transformer, separable": transformer(attention="separable"),
    "lm transformer, random_features": transformer(attention="random_features"),
    "classify average": classifier("average", features=500, width=32, hidden=24, depth=2),
    "classify average, bayes": classifier("average", features=500),
    "classify rnn": reader("rnn"),
    "classify gru": reader("gru", depth=1, bidirectional=False, pooling="last"),
    "classify lstm": reader("lstm", pooling="max", dropout=0.1),
    "classify lstm, vectors": reader("lstm", depth=1, vector_width=20, pooling="mean"),
    "classify transformer": reader("transformer", heads=4),
    "classify transformer, vectors": reader("transformer", heads=4, depth=1, vector_width=20, pooling="attention"),
    "classify transformer, dropout": reader("transformer", heads=4, dropout=0.1, pooling="first"),
    "classify transformer, separable": reader("transformer", heads=4, attention="separable"),
    "classify transformer, random_features": reader("transformer", heads=4, attention="random_features"),
    "translate transformer": translator("transformer"),
    "translate transformer, pointer": translator("transformer", pointer=True, decoder_depth=1),
    "translate transformer, dropout": translator("transformer", dropout=0.1),
    "translate gru": translator("gru", dropout=0.1),
    "translate gru, additive": translator("gru", depth=1, score="additive"),
    "translate gru, additive, fed": translator("gru", depth=1, score="additive", input_feeding=True),
    "translate gru, dot, pointer": translator("gru", score="dot", pointer=True),
    "translate lstm": translator("lstm"),
    "translate lstm, fed": translator("lstm", depth=1, input_feeding=True),
}


def one_step(model: Any, batch: int, length: int, source: int) -> Tensor:
    """The loss of full rows: no padding."""
    ids, labels = torch.randint(0, V, (batch, length)), torch.randint(0, CLASSES, (batch,))
    if isinstance(model, Translator):
        read = PaddedBatch(torch.randint(0, V, (batch, source)), torch.full((batch,), source))
        pairs = PairBatch(read, ids, torch.randint(0, V, (batch, length)), ids.numel())
        return TargetTokens()(model, pairs, None).total
    if isinstance(model, AveragingClassifier):
        features = torch.cat([torch.randperm(length + 9)[:length] for _ in range(batch)])
        bags = BagBatch(features, torch.arange(batch + 1) * length)
        return Labels()(model, LabelBatch(bags, labels), None).total
    if isinstance(model, EncoderClassifier):
        texts = PaddedBatch(ids, torch.full((batch,), length))
        return Labels()(model, LabelBatch(texts, labels), None).total
    return NextToken(False)(model, TokenBatch(ids, torch.randint(0, V, (batch, length)), True), None).total


def source_of(model: Any, length: int) -> int | None:
    return length if isinstance(model, Translator) else None
