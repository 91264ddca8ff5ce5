"""Translation: speed against torch.nn.Transformer and Marian, encoding once for many targets, BLEU in an hour.

python benchmarks/bench_translate.py [training] [decoding] [targets] [quality]

`quality` trains for an hour.
"""

import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from seqlab.core.seeding import torch_generator
from seqlab.core.types import IGNORED, PairBatch
from seqlab.data.pair_batches import Pairs, Rows, source_batch
from seqlab.generation.beam import Search, beam_search, decode_one_by_one
from seqlab.generation.sampling import Choice
from seqlab.models.translator import TransformerTranslator
from timing import two_threads, verdict

VOCABULARY, WIDTH, DEPTH, HEADS = 4000, 192, 3, 4
SENTENCES, LENGTHS = 48, (25, 45)
END = VOCABULARY - 1


def some_pairs(targets: int = 1) -> Pairs:
    draw = np.random.default_rng(0)

    def rows() -> Rows:
        return Rows.of([draw.integers(0, END, size) for size in draw.integers(*LENGTHS, SENTENCES)])

    everyone = np.arange(SENTENCES)
    return Pairs(rows(), (rows(),) * targets, everyone, np.zeros(SENTENCES, np.int64), END, VOCABULARY)


# --------------------------------------------------------------------------- training


class TorchTranslator(nn.Module):
    """torch.nn.Transformer of the same sizes, with the same loss."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY + 1, WIDTH)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.layers = nn.Transformer(
                WIDTH, HEADS, DEPTH, DEPTH, 4 * WIDTH, 0.1, activation="gelu", batch_first=True, norm_first=True
            )
        self.output = nn.Linear(WIDTH, VOCABULARY)
        self.output.weight = nn.Parameter(self.embedding.weight[:VOCABULARY].detach().clone())

    def nats(self, batch: PairBatch, smoothing: float) -> Tensor:
        padding = torch.arange(batch.source.ids.shape[1])[None] >= batch.source.lengths[:, None]
        causal = nn.Transformer.generate_square_subsequent_mask(batch.inputs.shape[1])
        h = self.layers(
            self.embedding(batch.source.ids),
            self.embedding(batch.inputs),
            tgt_mask=causal,
            src_key_padding_mask=padding,
            memory_key_padding_mask=padding,
            tgt_is_causal=True,
        )
        logits = self.output(h).flatten(0, 1)
        return nn.functional.cross_entropy(
            logits, batch.targets.flatten(), ignore_index=IGNORED, reduction="sum", label_smoothing=smoothing
        )


def training_speed() -> None:
    print(f"training, {DEPTH} + {DEPTH} layers of {WIDTH}, {VOCABULARY:,} pieces, {SENTENCES} pairs a step")
    torch.manual_seed(0)
    batch = some_pairs().batch(np.arange(SENTENCES))
    models: dict[str, Any] = {
        "torch.nn.Transformer": TorchTranslator(),
        "seqlab": TransformerTranslator(VOCABULARY, 1, WIDTH, DEPTH, HEADS, dropout=0.1),
        "seqlab with a pointer": TransformerTranslator(VOCABULARY, 1, WIDTH, DEPTH, HEADS, dropout=0.1, pointer=True),
    }
    optimisers = {name: torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True) for name, model in models.items()}
    seconds: dict[str, list[float]] = {name: [] for name in models}
    for _ in range(25):
        for name, model in models.items():
            begun = time.perf_counter()
            (model.train().nats(batch, 0.1) / batch.count).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimisers[name].step()
            optimisers[name].zero_grad()
            seconds[name].append(time.perf_counter() - begun)
    found = {name: statistics.median(times[3:]) for name, times in seconds.items()}
    for name, median in found.items():
        ratio = found["torch.nn.Transformer"] / median
        told = "" if name.startswith("torch") else f" (target ≥ 1): {verdict(ratio >= 1)}"
        print(f"  {name}: {batch.count / median:,.0f} target tokens/s, ×{ratio:.2f}{told}", flush=True)


# --------------------------------------------------------------------------- decoding


def marian() -> Any:
    from transformers import MarianConfig, MarianMTModel

    config = MarianConfig(
        vocab_size=VOCABULARY,
        d_model=WIDTH,
        encoder_layers=DEPTH,
        decoder_layers=DEPTH,
        encoder_attention_heads=HEADS,
        decoder_attention_heads=HEADS,
        encoder_ffn_dim=4 * WIDTH,
        decoder_ffn_dim=4 * WIDTH,
        max_position_embeddings=128,
        pad_token_id=0,
        eos_token_id=END,
        decoder_start_token_id=1,
        forced_eos_token_id=None,
        bad_words_ids=None,
    )
    torch.manual_seed(0)
    return MarianMTModel(config).eval()


def decoding_speed() -> None:
    """Both write exactly 40 tokens: neither may end before."""
    tokens = 40
    print(f"decoding with a cache, the same sizes, {SENTENCES} sources, {tokens} tokens each, encoding included")
    torch.manual_seed(0)
    ours, theirs = TransformerTranslator(VOCABULARY, 1, WIDTH, DEPTH, HEADS).eval(), marian()
    with torch.no_grad():
        ours.output.bias[END] = -1e4
    sources = [some_pairs().sources[k] for k in range(SENTENCES)]
    batch = source_batch(sources, END)
    mask = (torch.arange(batch.ids.shape[1])[None] < batch.lengths[:, None]).long()
    limits = [tokens] * SENTENCES

    def greedy() -> Any:
        draws = [torch_generator(0, k) for k in range(SENTENCES)]
        return decode_one_by_one(ours, ours.encode(batch), VOCABULARY, limits, END, Choice(0.0), draws)

    def beam() -> Any:
        return beam_search(ours, ours.encode(batch), VOCABULARY, limits, END, Search(4))

    def generate(beams: int) -> Callable[[], Any]:
        how = dict(num_beams=beams, max_new_tokens=tokens, min_new_tokens=tokens, do_sample=False, use_cache=True)
        return lambda: theirs.generate(input_ids=batch.ids, attention_mask=mask, **how)

    with torch.inference_mode():
        for name, mine, other in (("greedy", greedy, generate(1)), ("beam 4", beam, generate(4))):
            assert {len(one.ids) if name == "greedy" else len(one[0].ids) for one in mine()} == {tokens}
            assert other().shape[1] >= tokens
            times = ([], [])
            for _ in range(21):
                for calls, run in zip(times, (mine, other), strict=True):
                    begun = time.perf_counter()
                    run()
                    calls.append(time.perf_counter() - begun)
            seconds = [statistics.median(calls) for calls in times]
            ratio = seconds[1] / seconds[0]
            speed = SENTENCES * tokens / seconds[0]
            print(
                f"  {name}: {speed:,.0f} tokens/s, ×{ratio:.2f} of Marian (target ≥ 1): {verdict(ratio >= 1)}",
                flush=True,
            )


# --------------------------------------------------------------------------- encode once


def projections(n: int, m: int, k: int) -> tuple[int, int, int]:
    """Multiply-adds of a layer without its feed-forward network: encoder, decoder for one target, both attentions.

    encoder: self-attention 2m²k + 4mk²; decoder: self-attention n²k (causal) + 4nk², cross-attention 2mnk + 2nk²; and
    the projection of the source, 2mk², which all targets share.
    """
    encoder = 2 * m * m * k + 4 * m * k * k
    source = 2 * m * k * k
    decoder = n * n * k + 4 * n * k * k + 2 * m * n * k + 2 * n * k * k
    return encoder, source, decoder


def counted_products(run: Callable[[], Any]) -> float:
    """Multiply-adds that torch counts; attention by its formula, since the fused kernel counts as nothing."""
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils.flop_counter import FlopCounterMode

    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        run()
    return counter.get_total_flops() / 2


def many_targets() -> None:
    print("one encoding for 1 … 8 targets against separate runs (greedy, 40 tokens)")
    torch.manual_seed(0)
    tokens, k = 40, WIDTH
    model = TransformerTranslator(VOCABULARY, 8, WIDTH, DEPTH, HEADS).eval()
    with torch.no_grad():
        model.output.bias[END] = -1e4
    sources = [some_pairs().sources[j] for j in range(SENTENCES)]
    batch = source_batch(sources, END)
    limits = [tokens] * SENTENCES

    def decode(memory: Any, target: int) -> Any:
        draws = [torch_generator(0, j) for j in range(SENTENCES)]
        return decode_one_by_one(model, memory, VOCABULARY + target, limits, END, Choice(0.0), draws)

    m = batch.ids.shape[1]  # padding is computed too
    feed = 8 * k * k
    encoder, source, decoder = projections(tokens, m, k)
    once = DEPTH * (encoder + source + m * feed)
    each = DEPTH * (decoder + tokens * feed) + tokens * k * (VOCABULARY + k)
    reading = counted_products(lambda: model.encode(batch))
    both = counted_products(lambda: decode(model.encode(batch), 0))
    for name, formula, found in (("encoding", once, reading), ("each target", each, both - reading)):
        share = found / (formula * SENTENCES)
        print(f"  multiply-adds of {name}: {formula:,} a sentence by the formula, ×{share:.3f} counted")
    rows = []
    with torch.inference_mode():
        for targets in range(1, 9):
            begun = time.perf_counter()
            memory = model.encode(batch)
            shared = [decode(memory, target) for target in range(targets)]
            together = time.perf_counter() - begun
            begun = time.perf_counter()
            apart = [decode(model.encode(batch), target) for target in range(targets)]
            separate = time.perf_counter() - begun
            assert shared == apart
            expected = (once + targets * each) / (targets * (once + each))
            rows.append((targets, together / separate, expected))
            print(f"  {targets} targets: time ×{together / separate:.3f}, multiply-adds ×{expected:.3f}", flush=True)
    _plot(rows)


def _plot(rows: list[tuple[int, float, float]]) -> None:
    from seqlab.pages.canvas import blank_figure, plain, png

    figure = blank_figure(6.4, 3.6)
    axes = figure.subplots()
    targets = [row[0] for row in rows]
    axes.plot(targets, [row[1] for row in rows], marker="o", color="#0072B2", label="time, measured")
    axes.plot(targets, [row[2] for row in rows], linestyle="--", color="#D55E00", label="multiply-adds, by formula")
    axes.set_xlabel("targets")
    axes.set_ylabel("share of what separate runs take")
    axes.set_ylim(0, 1.1)
    plain(axes)
    axes.legend(frameon=False)
    place = Path(tempfile.gettempdir()) / "encode_once.png"
    place.write_bytes(png(figure))
    print(f"  picture: {place}")


# --------------------------------------------------------------------------- quality


def hour_of_kjv() -> None:
    from seqlab.cli.terminal import TerminalReporter
    from seqlab.workflows.translate.train import train_translator

    with tempfile.TemporaryDirectory() as folder:
        run = train_translator(
            "bible-kjv", to="bible-web", budget="1h", out=Path(folder) / "run", threads=2, reporter=TerminalReporter()
        )
        (found,) = run.final["targets"]
        lead = found["ahead_of_copying"]
        low, high = found["interval"]
        print(f"kjv → web, one hour: BLEU {found['bleu']:.2f} ({low:.2f} to {high:.2f}), chrF {found['chrf']:.2f}")
        reach = np.round(lead["interval"], 2)
        print(f"  copying {found['copying']['bleu']:.2f}; ahead by {lead['difference']:.2f} {reach}")
        print(f"  target +5: {verdict(lead['difference'] >= 5)}, aim +12: {verdict(lead['difference'] >= 12)}")
        for line in run.metrics:
            if "validation_bleu" in line:
                print(f"  {line['seconds'] / 60:5.1f} min: validation BLEU {line['validation_bleu']:.1f}")


PARTS = {"training": training_speed, "decoding": decoding_speed, "targets": many_targets, "quality": hour_of_kjv}

if __name__ == "__main__":
    two_threads()
    for name in sys.argv[1:] or PARTS:
        PARTS[name]()
