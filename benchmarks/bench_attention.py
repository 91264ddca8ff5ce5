"""Attention: the fused path against torch's, how time and memory grow, and the linear kinds against their peers.

python benchmarks/bench_attention.py
"""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from seqlab.ops import linear_attention as linear
from seqlab.ops.attention import softmax_attention
from timing import alternate, exponent, geometric_mean, largest_difference, two_threads, verdict

HEADS, WIDTH, FEATURES = 8, 64, 256
LENGTHS = (1024, 2048, 4096, 8192, 16384, 32768)
KINDS = ("separable", "separable causal", "random_features", "random_features causal")


def inputs(B: int, N: int, T: int, d: int) -> list[Tensor]:
    torch.manual_seed(0)
    return [torch.randn(B, N, T, d, requires_grad=True) for _ in range(3)]


def attend(kind: str, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """One layer's worth of attention without its projections."""
    name, _, causal = kind.partition(" ")
    if name == "softmax":
        return softmax_attention(q, k, v, causal=bool(causal))
    features = linear.SEPARABLE if name == "separable" else linear.random_features(DIRECTIONS)
    return linear.attend(features, q, k, v, causal=bool(causal))[0]


DIRECTIONS = linear.gaussian_directions(FEATURES, WIDTH, generator=torch.Generator().manual_seed(0))


def forward_and_backward(run: Callable[[], Tensor], leaves: list[Tensor]) -> Callable[[], None]:
    grad = torch.randn_like(run().detach())

    def both() -> None:
        for leaf in leaves:
            leaf.grad = None
        run().backward(grad)

    return both


# --------------------------------------------------------------------------- softmax


def softmax_against_torch() -> None:
    print("softmax_attention against scaled_dot_product_attention, forward + backward (target: within 5 %)")
    ratios = []
    for B, N, T, d in ((32, 4, 64, 32), (64, 4, 64, 32), (16, 8, 128, 32), (32, 8, 128, 32), (1, 4, 256, 32)):
        for causal in (False, True):
            q, k, v = inputs(B, N, T, d)
            runs = [
                lambda q=q, k=k, v=v, c=causal: F.scaled_dot_product_attention(q, k, v, is_causal=c),
                lambda q=q, k=k, v=v, c=causal: softmax_attention(q, k, v, causal=c),
            ]
            assert largest_difference([runs[1]()], [runs[0]()]) < 1e-5
            sides = [forward_and_backward(run, [q, k, v]) for run in runs]
            peer, mine = alternate(sides, 60, warm_up=10)
            ratios.append(peer / mine)
            print(
                f"  (B {B}, N {N}, T {T}, d {d}){' causal' if causal else ''}: {peer / mine:.3f} of its speed",
                flush=True,
            )
    print(f"  geometric mean {geometric_mean(ratios):.3f}, least {min(ratios):.3f}: {verdict(min(ratios) >= 0.95)}")


# --------------------------------------------------------------------------- growth


def peak_memory(kind: str, T: int, heads: int) -> float:
    """Megabytes that one forward and backward adds to a fresh process at its peak."""
    command = [sys.executable, str(Path(__file__)), "--memory", kind, str(T), str(heads)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def print_memory(kind: str, T: int, heads: int) -> None:
    two_threads()
    small = inputs(1, heads, 64, WIDTH)
    forward_and_backward(lambda: attend(kind, *small), small)()  # what torch itself allocates once
    before = memory_now()
    leaves = inputs(1, heads, T, WIDTH)
    reset_peak()
    attend(kind, *leaves).sum().backward()
    print(memory_now("VmHWM") - before)


def memory_now(which: str = "VmRSS") -> float:
    """Megabytes of this process: now, or at its peak."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{which}:")) / 1024


def reset_peak() -> None:
    """A process starts with its parent's peak, which would hide its own."""
    Path("/proc/self/clear_refs").write_text("5")


def softmax_memory() -> None:
    print("softmax attention at T = 16,384, one head of 64, forward + backward: peak memory")
    quadratic = 16384**2 * 4 / 2**20
    for kind in ("softmax", "softmax causal"):
        used = peak_memory(kind, 16384, 1)
        print(f"  {kind:16} {used:6.0f} MB (a T × T matrix: {quadratic:.0f} MB): {verdict(used < quadratic / 4)}")


def growth() -> None:
    print(f"time and memory from T = 1k to 32k, {HEADS} heads of {WIDTH}, forward + backward (target: exponent ≤ 1.1)")
    for kind in KINDS:
        seconds, megabytes = [], []
        for T in LENGTHS:
            leaves = inputs(1, HEADS, T, WIDTH)
            run = forward_and_backward(lambda k=kind, x=leaves: attend(k, *x), leaves)  # type: ignore[misc]
            seconds += alternate([run], 3, warm_up=1)
            megabytes.append(peak_memory(kind, T, HEADS))
        times, memory = exponent(LENGTHS, seconds), exponent(LENGTHS, megabytes)
        reached = verdict(max(times, memory) <= 1.1)
        print(
            f"  {kind:24} time T^{times:.2f} ({seconds[0] * 1e3:.0f} ms … {seconds[-1]:.2f} s), "
            f"memory T^{memory:.2f} ({megabytes[0]:.0f} … {megabytes[-1]:.0f} MB): {reached}",
            flush=True,
        )


# --------------------------------------------------------------------------- peers


def performer(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """performer-pytorch's causal path on the CPU; its additive constants, which bias the kernel, set to zero."""
    from performer_pytorch.performer_pytorch import causal_linear_attention_noncuda, softmax_kernel

    features = [
        softmax_kernel(u, projection_matrix=DIRECTIONS, is_query=query, eps=0.0) for u, query in ((q, True), (k, False))
    ]
    result: Tensor = causal_linear_attention_noncuda(*features, v, eps=0.0)
    return result


def against_performer() -> None:
    T = 4096
    print(
        f"causal random features against performer-pytorch, T = {T}, {FEATURES} features "
        "(targets for the least of three runs: forward 12 times as fast, forward + backward 10)"
    )
    q, k, v = leaves = inputs(1, HEADS, T, WIDTH)
    with torch.no_grad():
        apart = largest_difference([attend("random_features causal", q, k, v)], [performer(q, k, v)])
        assert apart < 1e-3, f"outputs differ by {apart}"
        print(f"  outputs agree to {apart:.0e}")
        print_three_runs("forward", 12, [lambda: attend("random_features causal", q, k, v), lambda: performer(q, k, v)])
    sides = [
        forward_and_backward(lambda: attend("random_features causal", q, k, v), leaves),
        forward_and_backward(lambda: performer(q, k, v), leaves),
    ]
    print_three_runs("forward + backward", 10, sides)


def print_three_runs(what: str, target: float, sides: list[Callable[[], Any]]) -> None:
    """How many times as fast the first side is as the second, three times over; the least counts."""
    ratios = []
    for _ in range(3):
        mine, peer = alternate(sides, 3, warm_up=1)
        ratios.append(peer / mine)
    listed = ", ".join(f"{ratio:.1f}" for ratio in ratios)
    print(f"  {what:18} {listed} times as fast: {verdict(min(ratios) >= target)}", flush=True)


def against_softmax() -> None:
    print("from which length the linear kinds are faster than causal softmax attention (forward + backward)")
    crossed: dict[str, int] = {}
    for T in (256, 512, *LENGTHS[:4]):
        leaves = inputs(1, HEADS, T, WIDTH)
        kinds = ("softmax causal", "separable causal", "random_features causal")
        sides = [forward_and_backward(lambda k=k, x=leaves: attend(k, *x), leaves) for k in kinds]  # type: ignore[misc]
        seconds = alternate(sides, 5, warm_up=1)
        print(
            f"  T {T:6}: " + ", ".join(f"{k} {s * 1e3:.0f} ms" for k, s in zip(kinds, seconds, strict=True)), flush=True
        )
        for kind, s in zip(kinds[1:], seconds[1:], strict=True):
            if s < seconds[0]:
                crossed.setdefault(kind, T)
    for kind in ("separable causal", "random_features causal"):
        print(f"  {kind}: from T = {crossed.get(kind, 'none of these')} on")


def main() -> None:
    if "--memory" in sys.argv:
        kind, T, heads = sys.argv[2:]
        return print_memory(kind, int(T), int(heads))
    two_threads()
    if "--growth" in sys.argv:
        return growth()
    if "--performer" in sys.argv:
        return against_performer()
    softmax_against_torch()
    softmax_memory()
    against_performer()
    against_softmax()
    growth()


if __name__ == "__main__":
    main()
