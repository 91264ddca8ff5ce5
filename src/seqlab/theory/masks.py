"""Claims about masks: what each stack of a Transformer must not see, and what changes if it does.

What must not be seen is changed, and what may not depend on it is compared: it stays the same, to rounding or exactly.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from seqlab.core.types import PaddedBatch
from seqlab.layers import EncoderBlock, MeanPooling, MultiHeadAttention, TransformerEncoder
from seqlab.models.transformer_lm import TransformerLM
from seqlab.models.translator import Memory, TransformerTranslator
from seqlab.ops.attention import mix, softmax_attention
from seqlab.ops.masks import banded_causal_mask, length_mask
from seqlab.theory.instances import fill, normal, stream
from seqlab.theory.jacobians import error, gradient, largest
from seqlab.theory.ledger import LEDGER, Evidence, at_least, at_most, evidence, exactly

claim = LEDGER.of("masks")

ROUNDING = 1e-10
WIDTH, HEADS = 8, 2


def ids(draw: torch.Generator, *shape: int, low: int = 0, high: int = 12) -> Tensor:
    return torch.randint(low, high, shape, generator=draw)


# --------------------------------------------------------------------------- causal

Mask = Callable[[int], Tensor]  # positions -> (positions, positions); True means "may be attended to"


def causal(time: int) -> Tensor:
    return banded_causal_mask(time, time)


@claim(
    "mask.causal-diagonal",
    statement=r"In masked self-attention each token can attend only to the tokens before it.",
    conditions=r"To the tokens before it and to itself. Without the diagonal the first row has nothing to attend to: a "
    r"softmax over the empty set, which is NaN.",
    verdict="conditional",
    method="identity",
    right=causal,
    wrong={
        "without the diagonal": lambda time: causal(time).tril(-1),
        "the future instead": lambda time: causal(time).T,
        "no mask": lambda time: torch.ones(time, time, dtype=torch.bool),
    },
    about=("seqlab.ops.masks:banded_causal_mask", "seqlab.layers:MultiHeadAttention"),
)
def itself_included(seed: int, form: Mask) -> Evidence:
    draw = stream(seed, "mask.causal-diagonal")
    time = int(torch.randint(3, 9, (1,), generator=draw))
    layer = MultiHeadAttention(WIDTH, HEADS)
    fill(layer, draw)
    scores, ours, _ = layer.look(x := normal(draw, 1, time, WIDTH), x, x, causal=True)
    assert scores is not None  # softmax attention has them
    mask, values = form(time), normal(draw, time, WIDTH)
    weights = torch.softmax(scores.masked_fill(~mask, -torch.inf), -1)  # as it is written: an empty row is NaN
    plain = mix(weights[0, 0], values)
    return evidence(
        exactly("rows that are not numbers", (~plain.isfinite()).any(1).sum(), 0),
        at_most("first row less the first value", error(plain[0], values[0]), ROUNDING),
        at_most("largest weight on a later token", largest(weights.triu(1).nan_to_num()), 0.0),
        at_most("weights less those of seqlab's layer", error(weights, ours), ROUNDING),
    )


# --------------------------------------------------------------------------- encoder

Encode = Callable[[TransformerEncoder, Tensor, Tensor], Tensor]  # (encoder, x, lengths) -> y


def encoder_of(draw: torch.Generator) -> TransformerEncoder:
    blocks = [EncoderBlock(MultiHeadAttention(WIDTH, HEADS)) for _ in range(2)]
    encoder = TransformerEncoder(blocks)
    fill(encoder, draw)
    return encoder


def with_key_padding(encoder: TransformerEncoder, x: Tensor, lengths: Tensor) -> Tensor:
    y: Tensor = encoder(x, lengths)
    return y


def with_query_padding(encoder: TransformerEncoder, x: Tensor, lengths: Tensor) -> Tensor:
    y: Tensor = encoder(x)
    return y * length_mask(lengths, x.shape[1])[..., None]


def position_by_position(encoder: TransformerEncoder, x: Tensor, lengths: Tensor) -> Tensor:
    """A causal mask beside the key padding: each position reads what stands up to it."""
    return torch.cat([encoder(x[:, : t + 1], lengths.clamp(max=t + 1))[:, -1:] for t in range(x.shape[1])], 1)


@claim(
    "mask.encoder-only-padding",
    statement=r"An encoder that classifies needs one mask only: key padding, in its self-attention.",
    note=r"What pools the positions must leave out the padding too.",
    verdict="true",
    method="identity",
    right=with_key_padding,
    wrong={
        "no mask": lambda encoder, x, lengths: encoder(x),
        "queries are masked, not keys": with_query_padding,
        "a causal mask as well": position_by_position,
    },
    about=("seqlab.layers:TransformerEncoder", "seqlab.layers.pooling:MeanPooling"),
)
def encoder_sees_no_padding(seed: int, form: Encode) -> Evidence:
    draw = stream(seed, "mask.encoder-only-padding")
    encoder, lengths = encoder_of(draw), torch.tensor([3, 5])
    x, more = normal(draw, 2, 5, WIDTH), normal(draw, 2, 4, WIDTH, scale=9.0)
    other = torch.where(length_mask(lengths, 5)[..., None], x, normal(draw, 2, 5, WIDTH, scale=9.0))
    pool = MeanPooling()
    before, changed, longer = (form(encoder, text, lengths) for text in (x, other, torch.cat([x, more], 1)))
    real = length_mask(lengths, 5)
    late = gradient(lambda u: form(encoder, u, lengths)[1, 0].sum(), x)[1]
    return evidence(
        at_most("real positions move when the padding changes", error(changed[real], before[real]), ROUNDING),
        at_most("real positions move when there is more padding", error(longer[:, :5][real], before[real]), ROUNDING),
        at_most("the pooled text moves", error(pool(longer, lengths), pool(before, lengths)), ROUNDING),
        at_least("what the first position has of the least seen real one", late.abs().amax(1).min(), 1e-9),
    )


# --------------------------------------------------------------------------- decoder

Score = Callable[[TransformerLM, Tensor, Tensor], Tensor]  # (model, text, padding) -> nats that the loss adds up
BEGIN = 12


def decoder_of(draw: torch.Generator) -> TransformerLM:
    with torch.random.fork_rng(devices=[]):
        model = TransformerLM(BEGIN, WIDTH, 2, HEADS, 64)
    fill(model, draw)
    return model


def nats(model: TransformerLM, text: Tensor) -> Tensor:
    """−ln p of every token but the first, which is read only."""
    logits, _ = model(text[None, :-1])
    return F.cross_entropy(logits[0], text[1:], reduction="none")


def padded_on_the_right(model: TransformerLM, text: Tensor, padding: Tensor) -> Tensor:
    return nats(model, torch.cat([text, padding]))[: len(text) - 1]


def padded_on_the_left(model: TransformerLM, text: Tensor, padding: Tensor) -> Tensor:
    return nats(model, torch.cat([padding, text]))[len(padding) :]


def padding_in_the_loss(model: TransformerLM, text: Tensor, padding: Tensor) -> Tensor:
    found = nats(model, torch.cat([text, padding]))
    return found * (len(text) - 1) / len(found)  # so that the sum is the mean over all, times the real ones


@claim(
    "mask.decoder-causal-suffices",
    statement=r"A decoder whose texts are padded on the right needs the causal mask alone.",
    conditions=r"At the real positions. What comes out at the padding means nothing and must be left out of the loss. "
    r"Padding on the left stands before the text: it needs a key padding mask, and positions that start at the text.",
    verdict="conditional",
    method="identity",
    right=padded_on_the_right,
    wrong={"padding on the left": padded_on_the_left, "the padding is in the loss": padding_in_the_loss},
    about=("seqlab.models.transformer_lm:TransformerLM", "seqlab.ops.attention:softmax_attention"),
)
def decoder_sees_no_padding(seed: int, form: Score) -> Evidence:
    draw = stream(seed, "mask.decoder-causal-suffices")
    model, text = decoder_of(draw), ids(draw, 7)
    with torch.no_grad():
        alone, padded = nats(model, text), form(model, text, ids(draw, 4))
        other = form(model, text, torch.full((4,), BEGIN - 1))
    table = model.embedding.weight
    unused = torch.tensor([k for k in range(BEGIN) if k not in text])
    (moved,) = torch.autograd.grad(form(model, text, unused[:4]).sum(), table)
    q, k, v = (normal(draw, 1, HEADS, 9, 4) for _ in range(3))
    real = torch.arange(9)[None] >= 3
    shifted = softmax_attention(q, k, v, key_mask=real, causal=True)[:, :, 3:]
    cut = softmax_attention(q[:, :, 3:], k[:, :, 3:], v[:, :, 3:], causal=True)
    return evidence(
        at_most("nats of the text move when it is padded", padded.sum() - alone.sum(), ROUNDING),
        at_most("they move when the padding changes", error(padded, other), ROUNDING),
        exactly("largest gradient by the vector of a padding token", largest(moved[unused]), 0),
        at_most("left padding under a key mask, less no padding", error(shifted, cut), ROUNDING),
    )


# --------------------------------------------------------------------------- encoder and decoder

Translate = Callable[[TransformerTranslator, PaddedBatch, Tensor], Tensor]  # (model, source, target) -> logits


def translator_of(draw: torch.Generator) -> TransformerTranslator:
    with torch.random.fork_rng(devices=[]):
        model = TransformerTranslator(24, 1, WIDTH, 2, HEADS)
    fill(model, draw)
    return model


def by_three_masks(model: TransformerTranslator, source: PaddedBatch, target: Tensor) -> Tensor:
    logits: Tensor = model(target, model.encode(source))[0]
    return logits


def without_a_mask(*, encoder: bool) -> Translate:
    """All of the source is read as real in the encoder, or in cross-attention."""

    def run(model: TransformerTranslator, source: PaddedBatch, target: Tensor) -> Tensor:
        whole = torch.full_like(source.lengths, source.ids.shape[1])
        encoded = model.encoded(PaddedBatch(source.ids, whole) if encoder else source)
        read = model.to_read(encoded, source.lengths if encoder else whole)
        logits: Tensor = model(target, Memory(source.ids, length_mask(whole, int(whole[0])), read))[0]
        return logits

    return run


def with_the_future(model: TransformerTranslator, source: PaddedBatch, target: Tensor) -> Tensor:
    return by_three_masks(model, source, target.flip(1)).flip(1)


@claim(
    "mask.encdec",
    statement=r"An encoder-decoder needs three masks: key padding of the source in the encoder's self-attention and in "
    r"cross-attention, and a causal mask in the decoder's self-attention.",
    note=r"With padding on the right; the loss leaves out the padding of the target.",
    verdict="true",
    method="identity",
    right=by_three_masks,
    wrong={
        "no mask in cross-attention": without_a_mask(encoder=False),
        "no mask in the encoder": without_a_mask(encoder=True),
        "the causal mask turned round": with_the_future,
    },
    about=("seqlab.models.translator:TransformerTranslator", "seqlab.layers:EncoderDecoderBlock"),
)
def three_masks(seed: int, form: Translate) -> Evidence:
    draw = stream(seed, "mask.encdec")
    model = translator_of(draw)
    source, target = ids(draw, 2, 6), ids(draw, 2, 5)
    lengths = torch.tensor([3, 6])
    longer = torch.cat([torch.where(length_mask(lengths, 6), source, ids(draw, 2, 6)), ids(draw, 2, 3)], 1)
    together = form(model, PaddedBatch(source, lengths), target)
    again = form(model, PaddedBatch(longer, lengths), target)
    parts = zip(torch.split(source, 1), torch.split(target, 1), lengths.tolist(), strict=True)
    alone = [form(model, PaddedBatch(x[:, :n], torch.tensor([n])), y) for x, y, n in parts]
    later = torch.cat([target[:, :3], (target[:, 3:] + 1) % 12], 1)
    moved = form(model, PaddedBatch(source, lengths), later)
    return evidence(
        at_most("logits move when padding changes or is added", error(together, again), ROUNDING),
        at_most("logits of two sentences less those of each alone", error(together, torch.cat(alone)), ROUNDING),
        exactly("logits of three tokens move when later ones change", error(together[:, :3], moved[:, :3]), 0),
        at_least("logits of the later ones move", error(together[:, 3:], moved[:, 3:]), 1e-6),
    )


Encoded = Callable[[TransformerTranslator, Tensor, Tensor], tuple[Tensor, Tensor]]  # -> encoder's vectors, a loss


def while_translating(model: TransformerTranslator, source: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """What the encoder puts out in a whole pass, and the decoder's loss."""
    seen: list[Tensor] = []
    hook = model.encoder.register_forward_hook(lambda module, given, y: seen.append(y))
    logits, _ = model(target, model.encode(PaddedBatch(source, torch.tensor([source.shape[1]]))))
    hook.remove()
    return seen[0], F.cross_entropy(logits[0, :-1], target[0, 1:])


def as_one_text(model: TransformerTranslator, source: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Source and target through the encoder together."""
    y = model.encoder(model.embedding(torch.cat([source, target], 1)))
    return y[:, : source.shape[1]], y.sum()


@claim(
    "encdec.encoder-independent",
    statement=r"The activations of the encoder do not depend on those of the decoder.",
    note=r"In the forward pass. The gradients of the encoder do depend on the decoder, and so do its keys and values, "
    r"which every decoder layer makes with matrices of its own.",
    verdict="true",
    method="identity",
    right=while_translating,
    wrong={
        "one stack reads both": as_one_text,
        "nothing flows back to the encoder": lambda model, source, target: (
            while_translating(model, source, target)[0],
            model.embedding.weight.sum(),
        ),
    },
    about=("seqlab.models.translator:TransformerTranslator",),
)
def encoder_by_itself(seed: int, form: Encoded) -> Evidence:
    draw = stream(seed, "encdec.encoder-independent")
    model = translator_of(draw)
    source, target, other = ids(draw, 1, 5), ids(draw, 1, 4, low=12, high=24), ids(draw, 1, 6, low=12, high=24)
    encoded, loss = form(model, source, target)
    moved = error(encoded, form(model, source, other)[0])
    by_table = torch.autograd.grad(encoded.sum(), model.embedding.weight, retain_graph=True)[0]
    inner = model.encoder.get_parameter("blocks.0.mlp.0.weight")
    by_encoder = largest(torch.autograd.grad(loss, inner, materialize_grads=True)[0])
    return evidence(
        exactly("the encoder's vectors move with another target", moved, 0),
        exactly("their largest gradient by the vectors of the target", largest(by_table[12:24]), 0),
        at_least("gradient of the decoder's loss by the encoder's weights", by_encoder, 1e-9),
    )
