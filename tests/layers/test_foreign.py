"""Blocks that are told how public model types are made, against those types' own modules in `transformers`.

Random weights, values and the gradients of all weights, in float64. A few places of theirs compute in float32 whatever
the weights are (angles of rotary and sinusoidal positions, RMSNorm): as they are, they are compared at that
precision, and then again with those places in float64.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import transformers as hf
from tests.layers import foreign
from torch import Tensor, nn

from seqlab import layers
from seqlab.core.errors import UsageError
from seqlab.layers.positions import angles
from seqlab.models.transformer_lm import TransformerLM

V, D, T, B = 19, 24, 12, 3
LENGTHS = torch.tensor([12, 5, 9])
PLAIN: dict[str, Any] = dict(attn_implementation="sdpa", use_cache=False)
Convert = Callable[[foreign.Weights], foreign.Weights]


def shaken(module: Any) -> Any:
    """Random weights everywhere, norms and biases too, in float64."""
    module.double().eval()
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for weight in module.parameters():
            weight.add_(0.3 * torch.randn(weight.shape, generator=generator, dtype=torch.float64))
    return module


def ids(seed: int = 0, time: int = T) -> Tensor:
    """Never the last id: some modules of theirs take it for padding and give it no gradient."""
    return torch.randint(V - 1, (B, time), generator=torch.Generator().manual_seed(seed))


def taken_over(mine: Any, theirs: Any, convert: Convert) -> None:
    mine.double().eval()
    converted = convert({name: weight.detach().clone() for name, weight in theirs.named_parameters()})
    missing = mine.load_state_dict(converted, strict=False)
    assert not missing.unexpected_keys
    assert not missing.missing_keys


def agree(
    mine: Any,
    theirs: Any,
    out: Tensor,
    expected: Tensor,
    convert: Convert,
    *,
    shared: str = "",
    tolerance: float = 1e-10,
) -> None:
    """The same values, and the same gradients by every weight.

    `shared` names a norm of ours that has the same weights as norm_attention: theirs has the sum of both gradients.
    """
    assert torch.allclose(out, expected, rtol=0, atol=tolerance)
    factor = torch.randn(out.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(5))
    for module, value in ((mine, out), (theirs, expected)):
        module.zero_grad()
        (value * factor).sum().backward()
    found = {name: weight.grad for name, weight in mine.named_parameters()}
    if shared:
        for name in [name for name in found if shared in name]:
            other = name.replace(shared, "norm_attention")
            found[name] = found[other] = found[name] + found[other]
    for name, gradient in convert({name: weight.grad for name, weight in theirs.named_parameters()}).items():
        assert torch.allclose(found[name], gradient, rtol=10 * tolerance, atol=10 * tolerance), name


def in_float64(theirs: Any, rotary: Any, width: int, base: float) -> None:
    """Rotary angles and RMSNorm by the same formulas as theirs, without their detour over float32."""

    def turns(x: Tensor, position_ids: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        theta = angles(position_ids, width, base)
        return torch.cat([theta, theta], -1).cos(), torch.cat([theta, theta], -1).sin()

    rotary.forward = turns
    for norm in theirs.modules():
        if type(norm).__name__.endswith("RMSNorm"):
            norm.forward = lambda x, n=norm: (
                n.weight * (x * torch.rsqrt(x.square().mean(-1, keepdim=True) + n.variance_epsilon))
            )


def pieces_equal_the_whole(lm: TransformerLM) -> None:
    whole, _ = lm(ids())
    first, state = lm(ids()[:, :5])
    rest, _ = lm(ids()[:, 5:], state)
    assert torch.allclose(torch.cat([first, rest], 1), whole, rtol=0, atol=1e-10)


def test_gpt2() -> None:
    config = hf.GPT2Config(
        vocab_size=V, n_embd=D, n_head=3, n_layer=2, n_positions=16, n_inner=31, layer_norm_epsilon=1e-3, **PLAIN
    )
    theirs = shaken(hf.GPT2LMHeadModel(config))
    style = layers.BlockStyle(activation="gelu_tanh", hidden=31, eps=1e-3)
    mine = TransformerLM(V, D, 2, 3, 16, positions="learned", tied=True, style=style)
    taken_over(mine, theirs, foreign.gpt2)
    agree(mine, theirs, mine(ids())[0], theirs(ids()).logits, foreign.gpt2)
    pieces_equal_the_whole(mine)


LLAMAS: dict[str, tuple[Any, Any, dict[str, Any], dict[str, Any]]] = {
    "llama": (hf.LlamaConfig, hf.LlamaForCausalLM, {}, {}),
    "llama-biased": (hf.LlamaConfig, hf.LlamaForCausalLM, dict(attention_bias=True), dict(bias=True)),
    "mistral": (hf.MistralConfig, hf.MistralForCausalLM, dict(sliding_window=5, head_dim=8), dict(head_width=8)),
    "qwen2": (hf.Qwen2Config, hf.Qwen2ForCausalLM, {}, dict(bias=True, bias_out=False)),
}


@pytest.mark.parametrize("kind", LLAMAS)
@pytest.mark.parametrize("kv_heads", [1, 2, 6])
def test_llama_and_its_kin(kind: str, kv_heads: int) -> None:
    config_type, model_type, said, told = LLAMAS[kind]
    rope = dict(rope_type="default", rope_theta=500.0)
    config = config_type(
        vocab_size=V,
        hidden_size=D,
        intermediate_size=20,
        num_hidden_layers=2,
        num_attention_heads=6,
        num_key_value_heads=kv_heads,
        rms_norm_eps=1e-3,
        rope_parameters=rope,
        tie_word_embeddings=False,
        **said,
        **PLAIN,
    )
    theirs = shaken(model_type(config))
    norms = dict(norm="rms", eps=1e-3)
    network = dict(hidden=20, activation="silu", gated=True, bias_mlp=False)
    style = layers.BlockStyle(kv_heads=kv_heads, **(norms | network | dict(bias=False) | told))  # type: ignore[arg-type]
    mine = TransformerLM(
        V, D, 2, 6, said.get("sliding_window", 64), style=style, rotary=dict(base=500.0, pairing="halves")
    )
    taken_over(mine, theirs, foreign.llama)
    assert torch.allclose(mine(ids())[0], theirs(ids()).logits, rtol=0, atol=1e-4)  # as they are
    in_float64(theirs, theirs.model.rotary_emb, said.get("head_dim", D // 6), 500.0)
    agree(mine, theirs, mine(ids())[0], theirs(ids()).logits, foreign.llama)
    pieces_equal_the_whole(mine)


@pytest.mark.parametrize("parallel", [True, False])
def test_gpt_neox(parallel: bool) -> None:
    config = hf.GPTNeoXConfig(
        vocab_size=V,
        hidden_size=D,
        num_hidden_layers=2,
        num_attention_heads=3,
        intermediate_size=40,
        rope_parameters=dict(rope_type="default", rope_theta=700.0, partial_rotary_factor=0.5),
        use_parallel_residual=parallel,
        tie_word_embeddings=False,
        **PLAIN,
    )
    theirs = shaken(hf.GPTNeoXForCausalLM(config))
    style = layers.BlockStyle(hidden=40, placement="parallel" if parallel else "pre")
    mine = TransformerLM(V, D, 2, 3, 64, style=style, rotary=dict(base=700.0, pairing="halves", turned=4))

    def convert(weights: foreign.Weights) -> foreign.Weights:
        return foreign.neox(weights, heads=3)

    taken_over(mine, theirs, convert)
    in_float64(theirs, theirs.gpt_neox.rotary_emb, 4, 700.0)
    agree(mine, theirs, mine(ids())[0], theirs(ids()).logits, convert)


def test_gptj() -> None:
    """Neighbours are turned, attention has no biases, the output has one, one norm serves both parts.

    Their attention weights are formed in float32.
    """
    config = hf.GPTJConfig(
        vocab_size=V, n_embd=D, n_head=3, n_layer=2, n_positions=32, rotary_dim=6, tie_word_embeddings=False
    )
    theirs = shaken(hf.GPTJForCausalLM(config))
    theta = angles(torch.arange(32), 6)
    for block in theirs.transformer.h:
        block.attn.embed_positions = torch.cat([theta.sin(), theta.cos()], -1)
    style = layers.BlockStyle(activation="gelu_tanh", bias=False, placement="parallel")
    mine = TransformerLM(V, D, 2, 3, 32, style=style, rotary=dict(turned=6), output_bias=True)
    taken_over(mine, theirs, foreign.gptj)
    agree(mine, theirs, mine(ids())[0], theirs(ids()).logits, foreign.gptj, shared="norm_mlp", tolerance=1e-5)


class Encoder(nn.Module):
    def __init__(self, embedding: layers.TokenEmbedding, encoder: layers.TransformerEncoder) -> None:
        super().__init__()
        self.embedding, self.encoder = embedding, encoder

    def forward(self, ids: Tensor, lengths: Tensor, types: Tensor) -> Tensor:
        return self.encoder(self.embedding(ids, types=types), lengths)  # type: ignore[no-any-return]


def encoder_of(style: layers.BlockStyle, heads: int) -> layers.TransformerEncoder:
    blocks = [layers.EncoderBlock(style.attention(D, heads), **style.block(D)) for _ in range(2)]
    return layers.TransformerEncoder(blocks, style.last_norm(D))


def test_bert() -> None:
    config = hf.BertConfig(
        vocab_size=V,
        hidden_size=D,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=30,
        max_position_embeddings=16,
        layer_norm_eps=1e-3,
        pad_token_id=V - 1,
        **PLAIN,
    )
    theirs = shaken(hf.BertModel(config, add_pooling_layer=False))
    style = layers.BlockStyle(hidden=30, eps=1e-3, placement="post")
    embedding = layers.TokenEmbedding(
        V, D, position=layers.LearnedPosition(16, D), types=2, norm=nn.LayerNorm(D, eps=1e-3)
    )
    mine = Encoder(embedding, encoder_of(style, 4))
    taken_over(mine, theirs, foreign.bert)
    real = torch.arange(T) < LENGTHS[:, None]
    types = (torch.arange(T) > 3).long().expand(B, T)
    out = mine(ids(), LENGTHS, types)
    expected = theirs(ids(), attention_mask=real.long(), token_type_ids=types).last_hidden_state
    agree(mine, theirs, out[real], expected[real], foreign.bert)
    assert torch.count_nonzero(out[~real]) == 0


class Translator(nn.Module):
    """Shared embedding, encoder, decoder, tied output: Marian's arrangement."""

    def __init__(self, style: layers.BlockStyle) -> None:
        super().__init__()
        halves = layers.SinusoidalPosition(D, layout="halves")
        self.embedding = layers.TokenEmbedding(V, D, scale=D**0.5, position=halves)
        self.encoder = encoder_of(style, 4)
        self.decoder = nn.ModuleList(
            layers.EncoderDecoderBlock(style.attention(D, 4), style.attention(D, 4), **style.block(D)) for _ in range(2)
        )
        self.output = layers.OutputHead(D, V, tied=True)
        self.output.start(0.1)

    def forward(self, source: Tensor, lengths: Tensor, target: Tensor) -> Tensor:
        memory = self.encoder(self.embedding(source), lengths)
        x = self.embedding(target)
        for block in self.decoder:
            x, _ = block(x, memory, lengths)
        logits: Tensor = self.output(x, self.embedding)
        return logits


@pytest.mark.parametrize(("theirs_called", "activation"), [("swish", "silu"), ("relu", "relu"), ("gelu", "gelu")])
def test_marian(theirs_called: str, activation: str) -> None:
    config = hf.MarianConfig(
        vocab_size=V,
        d_model=D,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=28,
        decoder_ffn_dim=28,
        max_position_embeddings=16,
        activation_function=theirs_called,
        scale_embedding=True,
        pad_token_id=V - 1,
        eos_token_id=0,
        decoder_start_token_id=V - 1,
        **PLAIN,
    )
    theirs = shaken(hf.MarianMTModel(config))
    theta = angles(torch.arange(16), D)
    for side in (theirs.model.encoder, theirs.model.decoder):
        table = side.embed_positions
        assert torch.allclose(table.create_weight().double(), torch.cat([theta.sin(), theta.cos()], -1), atol=1e-6)
        table.weight = nn.Parameter(torch.cat([theta.sin(), theta.cos()], -1), requires_grad=False)
    theirs.final_logits_bias.normal_()
    mine = Translator(layers.BlockStyle(hidden=28, activation=activation, placement="post"))

    def convert(weights: foreign.Weights) -> foreign.Weights:
        return foreign.marian(weights) | {"output.bias": theirs.final_logits_bias[0]}

    taken_over(mine, theirs, convert)
    source, target = ids(), ids(seed=1, time=7)
    mask = (torch.arange(T) < LENGTHS[:, None]).long()
    expected = theirs(input_ids=source, attention_mask=mask, decoder_input_ids=target).logits
    agree(mine, theirs, mine(source, LENGTHS, target), expected, foreign.marian)


def test_attention_of_separate_matrices() -> None:
    """Queries of 3 heads of 5 numbers, one head of keys and values; only queries and values have a bias."""
    torch.manual_seed(0)
    q, v = (nn.Linear(D, rows).double() for rows in (15, 5))
    k, out = nn.Linear(D, 5, bias=False).double(), nn.Linear(15, D).double()
    layer = layers.MultiHeadAttention.from_matrices(
        *((m.weight, m.bias) for m in (q, k, v, out)),
        n_heads=3,  # type: ignore[misc]
    )
    assert (layer.n_kv_heads, layer.head_width, layer.d_model) == (1, 5, D)
    x = torch.randn(B, T, D, dtype=torch.float64)
    scores = torch.einsum("btnd,bsd->bnts", q(x).view(B, T, 3, 5), k(x)) / 5**0.5
    mixed = torch.einsum("bnts,bsd->btnd", scores.softmax(-1), v(x)).flatten(2)
    assert torch.allclose(layer(x, x, x)[0], out(mixed), rtol=0, atol=1e-12)
    for (weight, bias), given in zip(layer.matrices(), (q, k, v), strict=True):
        assert torch.equal(weight, given.weight)
        assert bias is not None
        assert torch.equal(bias, torch.zeros(5).double() if given.bias is None else given.bias)
    bare = layers.MultiHeadAttention.from_matrices(
        (k.weight, None), (k.weight, None), (k.weight, None), (q.weight.T[:, :5], None), 1
    )
    assert bare.project_in.bias is None
    assert bare.project_out.bias is None


def test_matrices_that_do_not_fit_each_other_are_named() -> None:
    def matrix(rows: int, columns: int = 16) -> tuple[Tensor, Tensor]:
        return torch.randn(rows, columns), torch.randn(rows)

    def refused(*matrices: Any, heads: int, match: str) -> None:
        with pytest.raises(UsageError, match=match):
            layers.MultiHeadAttention.from_matrices(*matrices, n_heads=heads)

    whole = matrix(16)
    refused(whole, whole, matrix(1), whole, heads=4, match=r"v has W and b of shapes \(\(1, 16\), \(1,\)\)")
    refused(matrix(10), matrix(10), matrix(10), matrix(16, 10), heads=3, match="10 rows cannot be cut into 3 heads")
    refused(whole, matrix(6), matrix(6), whole, heads=4, match="keys of 6 rows are no heads of 4 rows")
    refused(whole, whole, whole, matrix(8), heads=4, match="out has W and b of shapes")
    refused(whole, whole, whole, whole, heads=0, match="cannot be cut into 0 heads")
    one, other = (
        layers.MultiHeadAttention.from_matrices(whole, whole, whole, whole, n_heads=4, kind="random_features")
        for _ in range(2)
    )
    assert not torch.equal(one.directions, other.directions)
