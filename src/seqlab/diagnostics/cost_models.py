"""What whole models cost: which of their layers are used on what."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from torch import nn

from seqlab.diagnostics.cost_layers import TERMS, Terms, TermsOf, dropped
from seqlab.diagnostics.cost_terms import Inside, Use, parameters, products, saved, saved_ids
from seqlab.layers.encoders import RecurrentEncoder
from seqlab.models.averaging import AveragingClassifier
from seqlab.models.bigram import BigramLM
from seqlab.models.encoder_classifier import EncoderClassifier
from seqlab.models.guided import GuidedLM
from seqlab.models.recurrent_lm import RecurrentLM, _NormedStack
from seqlab.models.recurrent_translator import RecurrentTranslator, SourceAttention
from seqlab.models.transformer_lm import TransformerLM
from seqlab.models.translator import TransformerTranslator


def loss(use: Use, classes: int) -> Terms:
    """Cross-entropy: ln p of every class or token, and the right ones."""
    yield saved("loss", use, *use.rows, ("V", classes))
    yield saved_ids("loss", *use.rows)


# --------------------------------------------------------------------------- language models


def bigram(model: BigramLM, use: Use) -> Terms:
    """Where the vectors are fixed, nobody needs the gradient by the hidden layer's input."""
    learns = model.embedding.weight.requires_grad
    hidden = replace(use, part="feed-forward", sizes=("d_vector", "d_model"), input_gradient=learns)
    yield Inside("embedding", replace(use, width_name="d_vector"))
    yield Inside("hidden", hidden)
    yield Inside("output", use)
    yield from loss(use, model.vocab_size)


def recurrent_lm(model: RecurrentLM, use: Use) -> Terms:
    yield Inside("embedding", use)
    yield Inside("recurrent", use)
    yield Inside("output", use)
    yield from dropped(model.dropout.p, "output", use, ("d_model", model.output.in_features))
    yield from loss(use, model.vocab_size)


def normed_stack(model: _NormedStack, use: Use) -> Terms:
    """Dropout between the layers."""
    yield Inside("layers", use)
    yield Inside("norms", use)
    above: list[Any] = list(model.layers)[1:]
    for layer in above:
        yield from dropped(model.dropout.p, "recurrent", use, ("D", layer.input_size))


def transformer_lm(model: TransformerLM, use: Use) -> Terms:
    yield Inside("embedding", use)
    yield Inside("blocks", use)
    if model.norm is not None:
        yield Inside("norm", use)
    yield Inside("output", use)
    yield from loss(use, model.vocab_size)


def guided_lm(model: GuidedLM, use: Use) -> Terms:
    """z + g · ln p: one multiply-add a token forward, one for the gradient by g. Rows of counts are looked up."""
    rows = (*use.rows, ("V_guide", model.vocab_size))
    yield Inside("network", use)
    yield products("guide", *rows, backward=1)
    yield saved("guide", use, *rows)


# --------------------------------------------------------------------------- classifiers


def encoder_classifier(model: EncoderClassifier, use: Use) -> Terms:
    yield Inside("embedding", use if model.enter is None else replace(use, width_name="d_vector"))
    if model.enter is not None:
        learns = model.embedding.weight.requires_grad
        yield Inside("enter", replace(use, sizes=("d_vector", "d_model"), input_gradient=learns))
    yield Inside("encoder", replace(use, masked=True))
    encoded = ("d_encoded" if isinstance(model.encoder, RecurrentEncoder) else "d_model", model.encoder.width)
    yield Inside("pooling", replace(use, masked=True, width=encoded[1], width_name=encoded[0]))
    each = use.of_each_sequence()
    yield Inside("output", replace(each, part="output", sizes=(encoded[0], "V")))
    yield from dropped(model.dropout.p, "output", each, encoded)
    yield from loss(each, model.classes)


def averaging(model: AveragingClassifier, use: Use) -> Terms:
    """A text is its bag of n_t features; sums of rows of tables are no products."""
    each, columns = use.of_each_sequence(), ("columns", model.columns)
    yield parameters("output", columns)
    if model.weights is not None:
        yield Inside("weights", use)
        yield saved_ids("embedding", *use.rows)  # which text each feature is of
        yield saved("embedding", use, *use.rows, columns)  # r
    if model.vectors is not None:
        yield Inside("vectors", use)
        yield saved_ids("embedding", *use.rows)
        yield Inside("layers", replace(each, part="feed-forward"))
        yield Inside("output", replace(each, part="output", sizes=("d_model", "V")))
    yield from loss(each, model.classes)


# --------------------------------------------------------------------------- translators


def transformer_translator(model: TransformerTranslator, use: Use) -> Terms:
    yield Inside("embedding", use)
    yield Inside("encoder", replace(use.on_source(), masked=True))
    yield Inside("decoder", use)
    if model.norm is not None:
        yield Inside("norm", use)
    yield Inside("leave", replace(use, sizes=("d_model", "d_model")))
    yield Inside("output", use)
    yield from loss(use, model.vocab_size)
    if model.pointer is not None:
        yield Inside("pointer", use)


def recurrent_translator(model: RecurrentTranslator, use: Use) -> Terms:
    """`enter` is asked once by the decoder and, where there is one, once by the pointer."""
    source, d = use.on_source(), ("d_model", model.width)
    encoded = ("d_encoded", model.encoder.width)
    yield Inside("embedding", use)
    yield Inside("encoder", replace(source, masked=True))
    yield Inside("enter", replace(source, sizes=("d_encoded", "d_model")))
    if model.pointer is not None:
        yield products("projections", *source.rows, encoded, d)
    yield Inside("begin", replace(use.of_each_sequence(), sizes=("d_encoded", "d_start")))
    yield Inside("decoder", replace(use, step_by_step=model.input_feeding, units="H_decoder"))
    yield Inside("attention", replace(use, keys=source.length, step_by_step=model.input_feeding))
    yield Inside("combine", replace(use, sizes=("d_joint", "d_model")))
    yield saved("projections", use, *use.rows, d)  # a_t
    yield from dropped(model.dropout.p, "projections", use, d)
    yield Inside("output", use)
    yield from loss(use, model.vocab_size)
    if model.pointer is not None:
        yield Inside("pointer", use)


def source_attention(layer: SourceAttention, use: Use) -> Terms:
    """The additive score multiplies the source by W_2 once in a call: once in all, or once for each position."""
    d, keys = ("d_model", layer.query.in_features), ("n_s", use.keys or use.source or use.length)
    yield Inside("query", replace(use, sizes=("d_model", "d_model")))
    yield products("scores", *use.rows, keys, d)
    yield products("mixing", *use.rows, keys, d)
    yield saved("mixing", use, ("B", use.batch), keys, d)
    yield saved("scores", use, *use.rows, 2, keys)
    if layer.score == "scaled":
        yield saved("scores", use, *use.rows, d)
    if layer.score == "additive":
        times = use.time if use.step_by_step else ()
        yield products("projections", ("B", use.batch), *times, keys, d, d)
        yield saved("scores", use, *use.rows, keys, d)
        yield parameters("projections", d, d)
        yield parameters("scores", d)


MODEL_TERMS: dict[type[nn.Module], TermsOf] = {
    **TERMS,
    BigramLM: bigram,
    RecurrentLM: recurrent_lm,
    _NormedStack: normed_stack,
    TransformerLM: transformer_lm,
    GuidedLM: guided_lm,
    EncoderClassifier: encoder_classifier,
    AveragingClassifier: averaging,
    TransformerTranslator: transformer_translator,
    RecurrentTranslator: recurrent_translator,
    SourceAttention: source_attention,
}
