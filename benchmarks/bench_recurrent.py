"""seqlab's RNN, GRU and LSTM against torch.nn: forward and backward, float32, 2 threads, both shown equal first.

Targets: LSTM 0.97 of torch.nn's speed everywhere; RNN and GRU never below 0.97, 1.25 in geometric mean, 1.5 at batch 1.
Padded batches, lengths even from T/4 to T, against torch.nn on packed sequences: never below 1.25.

    python benchmarks/bench_recurrent.py [repetitions]
"""

import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from seqlab.layers import GRU, LSTM, RNN
from timing import alternate, geometric_mean, largest_difference, two_threads, verdict

SHAPES = [(32, 64, 128, 256), (64, 64, 128, 128), (16, 128, 256, 256), (32, 128, 256, 512), (1, 256, 128, 256)]
CELLS: list[tuple[str, Any, Any]] = [
    ("rnn", RNN, torch.nn.RNN),
    ("gru", GRU, torch.nn.GRU),
    ("lstm", LSTM, torch.nn.LSTM),
]


def forward_and_backward(layer: Any, x: Tensor, grad: Tensor, lengths: Tensor | None) -> Callable[[], Tensor]:
    def run() -> Tensor:
        layer.zero_grad()
        x.grad = None
        y = output(layer, x, lengths)
        y.backward(grad)
        return y

    return run


def output(layer: Any, x: Tensor, lengths: Tensor | None) -> Tensor:
    y: Tensor
    if lengths is None:
        y = layer(x)[0]
    elif isinstance(layer, torch.nn.RNNBase):
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        y = pad_packed_sequence(layer(packed)[0], batch_first=True)[0]
    else:
        y = layer(x, None, lengths)[0]
    return y


def compare(
    mine_type: Any, peer_type: Any, shape: tuple[int, ...], repetitions: int, padded: bool = False
) -> tuple[float, float]:
    """How much faster than torch.nn, and how far the two lie apart."""
    B, T, D, H = shape
    torch.manual_seed(0)
    theirs = peer_type(D, H, batch_first=True)
    mine = mine_type.from_torch(theirs)
    x, grad = torch.randn(B, T, D, requires_grad=True), torch.randn(B, T, H)
    lengths = torch.linspace(T / 4, T, B).round().long()[torch.randperm(B)] if padded else None
    sides = [forward_and_backward(layer, x, grad, lengths) for layer in (theirs, mine)]
    found: list[list[Tensor]] = []
    for layer, side in zip((theirs, mine), sides, strict=True):
        y = side()
        gradients = [mine._converted(p.grad) if layer is theirs else p.grad for p in layer.parameters()]
        found.append([y.detach(), x.grad, *gradients])  # type: ignore[list-item]
    seconds = alternate(sides, repetitions)
    return seconds[0] / seconds[1], largest_difference(found[1], found[0])


def main() -> None:
    two_threads()
    repetitions = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    print(f"speed relative to torch.nn, medians of {repetitions}; shapes (B, T, D, H)")
    for name, mine, peer in CELLS:
        ratios = []
        for shape in SHAPES:
            ratio, apart = compare(mine, peer, shape, repetitions)
            assert apart < 1e-4, f"{name} {shape}: values or gradients differ by {apart}"
            ratios.append(ratio)
            print(f"  {name:5} {shape!s:20} {ratio:5.2f}   (largest relative difference {apart:.0e})", flush=True)
        mean, least, single = geometric_mean(ratios), min(ratios), ratios[-1]
        reached = least >= 0.97 and (name == "lstm" or (mean >= 1.25 and single >= 1.5))
        print(f"  {name:5} geometric mean {mean:.2f}, least {least:.2f}, batch 1 {single:.2f}: {verdict(reached)}")
    for name, mine, peer in CELLS:
        ratios = []
        for shape in SHAPES[:-1]:
            ratio, apart = compare(mine, peer, shape, repetitions, padded=True)
            assert apart < 1e-4, f"padded {name} {shape}: values or gradients differ by {apart}"
            ratios.append(ratio)
        print(f"  padded {name:5} {', '.join(f'{ratio:.2f}' for ratio in ratios)}: {verdict(min(ratios) >= 1.25)}")


if __name__ == "__main__":
    main()
