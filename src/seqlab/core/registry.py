"""The registries: a kind's name and where it lives, as ``"module:name"``.

Names are strings, so that help and settings need no torch. To add a model of your own, add one line:

    from seqlab.core.registry import MODELS
    MODELS["my-kind"] = "my_module:MyModel"
"""

import importlib
from collections import ChainMap
from collections.abc import Mapping
from typing import Any

from seqlab.core.errors import UsageError, nearest

MODELS: dict[str, str] = {
    "rnn": "seqlab.models.recurrent_lm:RNNLM",
    "gru": "seqlab.models.recurrent_lm:GRULM",
    "lstm": "seqlab.models.recurrent_lm:LSTMLM",
    "attentive-rnn": "seqlab.models.recurrent_lm:AttentiveLM",
    "transformer": "seqlab.models.transformer_lm:TransformerLM",
    "bigram": "seqlab.models.bigram:BigramLM",
}
COUNTED_MODELS: dict[str, str] = {"ngram": "seqlab.models.ngram:NGramLM"}
ALL_MODELS: Mapping[str, str] = ChainMap(MODELS, COUNTED_MODELS)  # what can be asked for by name
# Fitted in one go, not trained step by step. A mixture is made of finished runs, and only so.
MIXTURE = "mixture"
FITTED_MODELS: Mapping[str, str] = ChainMap(COUNTED_MODELS, {MIXTURE: "seqlab.models.mixture:MixtureLM"})

# Text classifiers: ``logits = model(inputs, own)``.
CLASSIFIERS: dict[str, str] = {
    "average": "seqlab.models.averaging:AveragingClassifier",
    "rnn": "seqlab.models.encoder_classifier:RNNClassifier",
    "gru": "seqlab.models.encoder_classifier:GRUClassifier",
    "lstm": "seqlab.models.encoder_classifier:LSTMClassifier",
    "transformer": "seqlab.models.encoder_classifier:TransformerClassifier",
}

# Encoder-decoders: ``memory = model.encode(source)``, ``logits, state = model(ids, memory, state)``.
TRANSLATORS: dict[str, str] = {
    "transformer": "seqlab.models.translator:TransformerTranslator",
    "gru": "seqlab.models.recurrent_translator:GRUTranslator",
    "lstm": "seqlab.models.recurrent_translator:LSTMTranslator",
}

# What can lead a neural language model; `none`: nothing does.
GUIDES = ("ngram", "none")

# Variants that layers are made in.
POSITIONS = ("rotary", "sinusoidal", "learned")
ATTENTIONS = ("softmax", "separable", "random_features")
SCORES = ("dot", "scaled", "additive")
NORMS = ("layer", "rms", "batch")
PLACEMENTS = ("pre", "post", "parallel")
ACTIVATIONS = ("gelu", "gelu_tanh", "relu", "silu")
POOLINGS = ("last", "mean", "max", "attention", "first")

# Tasks: what is trained, saved, resumed and reported in one and the same way (`runs`).
TASKS: dict[str, str] = {
    "lm": "seqlab.workflows.lm.task:LanguageModelling",
    "classify": "seqlab.workflows.classify.task:Classifying",
    "translate": "seqlab.workflows.translate.task:Translating",
}

# Layers: ``y, state = layer(x, state, lengths)`` for the recurrent ones; see each one's docstring.
LAYERS: dict[str, str] = {
    "rnn": "seqlab.layers:RNN",
    "gru": "seqlab.layers:GRU",
    "lstm": "seqlab.layers:LSTM",
    "attentive-rnn": "seqlab.layers:AttentiveRNN",
    "attention": "seqlab.layers:MultiHeadAttention",
    "encoder-block": "seqlab.layers:EncoderBlock",
    "decoder-block": "seqlab.layers:DecoderBlock",
    "encoder-decoder-block": "seqlab.layers:EncoderDecoderBlock",
    "recurrent-encoder": "seqlab.layers:RecurrentEncoder",
    "transformer-encoder": "seqlab.layers:TransformerEncoder",
    "token-embedding": "seqlab.layers:TokenEmbedding",
    "output-head": "seqlab.layers:OutputHead",
    "feed-forward": "seqlab.layers:FeedForward",
    "last-pooling": "seqlab.layers:LastPooling",
    "mean-pooling": "seqlab.layers:MeanPooling",
    "max-pooling": "seqlab.layers:MaxPooling",
    "attention-pooling": "seqlab.layers:AttentionPooling",
    "first-pooling": "seqlab.layers:FirstPooling",
    "batch-norm": "seqlab.layers:TokenBatchNorm",
    "sinusoidal-position": "seqlab.layers:SinusoidalPosition",
    "learned-position": "seqlab.layers:LearnedPosition",
    "rotary-position": "seqlab.layers:RotaryPosition",
}

TOKENIZERS: dict[str, str] = {
    "byte": "seqlab.data.tokenizers:ByteTokenizer",
    "char": "seqlab.data.tokenizers:CharacterTokenizer",
    "word": "seqlab.data.tokenizers:WordTokenizer",
    "bpe": "seqlab.data.bpe:BPETokenizer",
}


def look_up(registry: Mapping[str, str], kind: str, what: str) -> Any:
    """The class registered under `kind`; `what` ("model", "tokenizer") names the registry in the error."""
    if kind not in registry:
        raise UsageError(f"unknown {what} '{kind}'{nearest(kind, registry)}")
    module, _, name = registry[kind].partition(":")
    return getattr(importlib.import_module(module), name)
