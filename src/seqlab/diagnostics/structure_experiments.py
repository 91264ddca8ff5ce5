"""What the form of a layer alone decides: who can hear whom, what a norm depends on, whether order is seen."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from seqlab.core.settings.experiments import Normalisation, Permutation, ReceptiveField, listed
from seqlab.diagnostics.drawing import normal
from seqlab.diagnostics.experiments import Experiment, Line, Picture, described, exact
from seqlab.layers.attention import MultiHeadAttention
from seqlab.layers.blocks import DecoderBlock, EncoderBlock
from seqlab.layers.norms import TokenBatchNorm, build_norm
from seqlab.layers.positions import RotaryPosition, SinusoidalPosition

ROUNDING = 1e-9
SHARP = 1e4  # e^-SHARP is 0: such a softmax is an argmax

# --------------------------------------------------------------------------- who hears whom


def receptive_field_formula(heads: int, layers: int, length: int) -> int:
    """min(T, (k + 1)^n): the k places that the heads look at and the residual, n times"""
    return int(min(length, (heads + 1) ** layers))


def receptive_field(asked: ReceptiveField) -> Experiment:
    """Positions whose content has a derivative in what the first position holds after n layers."""
    draw = torch.Generator().manual_seed(asked.seed)
    kinds = listed("heads", asked.heads, 1, 8)
    T = asked.length
    findings, lines, worst = [], [], 0
    above = 0
    for k in kinds:
        best = [spread([offsets(k, depth, T) for depth in range(n)], T) for n in range(asked.layers + 1)]
        for n in range(1, asked.layers + 1):
            findings.append(exact(f"k = {k}, n = {n}: positions heard", receptive_field_formula(k, n, T), best[n], 0.0))
        patterns = [
            [torch.randint(0, T, (T, k), generator=draw) for _ in range(asked.layers)] for _ in range(asked.draws)
        ]
        random = [spread(pattern, T) for pattern in patterns]
        worst = max(worst, *random)
        above += sum(count > receptive_field_formula(k, asked.layers, T) for count in random)
        axis = [float(n) for n in range(asked.layers + 1)]
        lines.append(Line(f"{k} head{'s' if k > 1 else ''}", axis, [float(count) for count in best]))
        formula = [float(receptive_field_formula(k, n, T)) for n in range(asked.layers + 1)]
        lines.append(Line(f"{k}: min(T, {k + 1}ⁿ)", axis, formula, dashed=True))
    findings.append(exact("random patterns of attention that hear of more", 0, above, 0.0))
    k = kinds[-1]
    alone = spread([offsets(k, depth, T, base=k) + 1 for depth in range(2)], T, residual=False)
    findings.append(exact(f"k = {k}, n = 2 without the residual: positions heard", min(T, k**2), alone, 0.0))
    return described(
        "receptive-field",
        asked,
        "at most (k + 1)ⁿ positions, and not more than there are; kⁿ without the residual. Reached where head j of "
        "layer l looks j(k + 1)^l places back",
        f"The best pattern reaches the bound everywhere; the widest of {len(kinds) * asked.draws} random patterns "
        f"hears of {worst} positions. Only values are counted: which place wins an argmax depends on every key.",
        findings,
        [Picture("Positions that one position can hear of", "layers n", "positions", lines, log_y=True)],
    )


def offsets(heads: int, layer: int, length: int, base: int | None = None) -> Tensor:
    """Where each position's heads look: head j, 1 … k, (j)(k + 1)^l places back, around the end.    (T, k)"""
    base = heads + 1 if base is None else base
    first = 1 if base > heads else 0
    back = (torch.arange(heads) + first) * base**layer
    places: Tensor = (torch.arange(length)[:, None] - back) % length
    return places


def spread(pattern: Sequence[Tensor], length: int, *, residual: bool = True) -> int:
    """Positions of the input whose content reaches the first position, by gradient support."""
    content = torch.ones(1, length, 1, dtype=torch.float64, requires_grad=True)
    x = torch.cat([torch.eye(length, dtype=torch.float64)[None], content], -1)
    for targets in pattern:
        heard, _, _ = looking(targets % length)(x, x, x)
        places, added = x[..., :-1], heard[..., -1:]
        x = torch.cat([places, x[..., -1:] + added if residual else added], -1)
    if not pattern:
        return 1
    (gradient,) = torch.autograd.grad(x[0, 0, -1], content)
    return int(torch.count_nonzero(gradient))


def looking(targets: Tensor) -> MultiHeadAttention:
    """Attention on (place, content) whose head j looks from position i at targets[i, j] and hands its content on."""
    length, heads = targets.shape
    width = length + 1
    sharp = SHARP * math.sqrt(length)  # the layer divides by √d
    q = torch.zeros(heads, length, width, dtype=torch.float64)
    k, v = torch.zeros_like(q), torch.zeros_like(q)
    out = torch.zeros(width, heads, length, dtype=torch.float64)
    for head in range(heads):
        q[head, targets[:, head], torch.arange(length)] = sharp
        k[head, :, :length] = torch.eye(length, dtype=torch.float64)
    v[:, 0, -1], out[-1, :, 0] = 1.0, 1.0
    rows = [part.flatten(0, 1) for part in (q, k, v)]
    layer = MultiHeadAttention.from_matrices(
        (rows[0], None), (rows[1], None), (rows[2], None), (out.flatten(1), None), heads
    )
    return layer.eval().requires_grad_(False)


# --------------------------------------------------------------------------- norms


def norm_formula(width: int, gain: float, variance: float = 1.0, epsilon: float = 0.0) -> float:
    """‖y − β1‖ = |γ| √(dσ²/(σ² + ε)), so |γ|√d for ε = 0"""
    return abs(gain) * math.sqrt(width * variance / (variance + epsilon))


def normalisation(asked: Normalisation) -> Experiment:
    draw = torch.Generator().manual_seed(asked.seed)
    B, d = asked.rows, asked.width
    x = normal(draw, B, 1, d)
    layer, batch = build_norm("layer", d, eps=0.0).double(), TokenBatchNorm(d).double()
    own = influence(layer, x)
    findings = [
        exact("LayerNorm: numbers that y_ij depends on", d, int(own.sum()), 0.0),
        exact("LayerNorm: of those, in its own row", d, int(own[0].sum()), 0.0),
    ]
    training = influence(batch.train(), x)
    findings += [
        exact("BatchNorm in training: numbers that y_ij depends on", B, int(training.sum()), 0.0),
        exact("BatchNorm in training: of those, in its own column", B, int(training[:, 0].sum()), 0.0),
        exact("BatchNorm in evaluation: numbers that y_ij depends on", 1, int(influence(batch.eval(), x).sum()), 0.0),
    ]
    longest = norm_formula(d, asked.gain)
    for words, epsilon in (("ε = 0", 0.0), (f"ε = {asked.epsilon:g}", asked.epsilon)):
        norm: Any = build_norm("layer", d, eps=epsilon).double()
        with torch.no_grad():
            norm.weight.fill_(asked.gain)
            norm.bias.fill_(asked.shift)
            lengths = (norm(x)[:, 0] - asked.shift).norm(dim=-1)
        variances = x[:, 0].var(-1, correction=0)
        predicted = [norm_formula(d, asked.gain, float(v), epsilon) for v in variances]
        away = max(abs(float(a) - b) for a, b in zip(lengths, predicted, strict=True))
        findings.append(exact(f"{words}: ‖y − β1‖ of the first example", predicted[0], float(lengths[0]), ROUNDING))
        findings.append(exact(f"{words}: largest deviation of all {B} examples", 0.0, away, ROUNDING))
    widths = [4.0, 9.0, 16.0, 36.0, 64.0, 144.0, 256.0]
    return described(
        "normalisation",
        asked,
        "LayerNorm: y_ij depends on row i of x, BatchNorm on column j (in evaluation on x_ij alone); ‖y − β1‖ = |γ|√d "
        "for one γ, one β and ε = 0, else |γ|√(dσ²/(σ² + ε))",
        f"LayerNorm mixes the {d} features of one example, BatchNorm the {B} examples of one feature. Whatever x is, "
        f"LayerNorm puts every example on a sphere of radius |γ|√d = {longest:.3f}; ε pulls it inside.",
        findings,
        [
            Picture(
                "How long LayerNorm's output is (ε = 0)",
                "features d",
                "‖y − β1‖",
                [
                    Line("measured", widths, [_length(int(w), asked, draw) for w in widths]),
                    Line("|γ|√d", widths, [norm_formula(int(w), asked.gain) for w in widths], dashed=True),
                ],
            )
        ],
    )


@torch.no_grad()
def _length(width: int, asked: Normalisation, draw: torch.Generator) -> float:
    norm = build_norm("layer", width, eps=0.0).double()
    y = asked.gain * norm(normal(draw, 1, width)) + asked.shift
    return float((y - asked.shift).norm())


def influence(norm: nn.Module, x: Tensor) -> Tensor:
    """Which numbers of x the first number of y depends on.    (B, 1, d) -> (B, d) bool"""
    x = x.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(norm(x)[0, 0, 0], x)
    return gradient[:, 0].abs() > 1e-14


# --------------------------------------------------------------------------- order

HEADS = 2


def changed_formula(order: Tensor, kind: str, depth: int) -> float:
    """The share of tokens whose vector changes: none without positions; with them all, moved or not, since others
    stand elsewhere now; under a causal mask alone those before which other tokens stand, and above the first layer
    also the same in another order."""
    T = len(order)
    if kind == "none" or bool((order == torch.arange(T)).all()):
        return 0.0
    if kind != "causal":
        return 1.0
    place = {int(token): p for p, token in enumerate(order)}
    count = 0
    for token in range(T):
        before, now = list(range(token)), [int(t) for t in order[: place[token]]]
        count += before != now if depth > 1 else sorted(before) != sorted(now)
    return count / T


def permutation(asked: Permutation) -> Experiment:
    """One input in many orders: position p of the new order holds token order[p]."""
    draw = torch.Generator().manual_seed(asked.seed)
    x = normal(draw, 1, asked.length, asked.width)
    orders = [torch.randperm(asked.length, generator=draw) for _ in range(asked.draws)]
    some = sorted({2, 3, 5, *(asked.length * part // 8 for part in range(1, 9))} & set(range(2, asked.length + 1)))
    fewer = [_moving(count, asked.length, draw) for count in some]
    findings, shares, lines = [], {}, []
    for kind, words in KINDS.items():
        stack = _Stack(kind, asked)
        away = [stack.change(x, order) for order in orders]
        shares[kind] = sum(float((a > ROUNDING).double().mean()) for a in away) / len(away)
        expected = sum(changed_formula(order, kind, asked.depth) for order in orders) / len(orders)
        findings.append(exact(f"{words}: share of tokens whose vector changed", expected, shares[kind], 1e-12))
        if kind == "none":
            largest = max(float(a.max()) for a in away)
            findings.append(exact(f"{words}: largest change of a number", 0.0, largest, ROUNDING))
        changes = [max(float(stack.change(x, order).mean()), 1e-17) for order in fewer]
        lines.append(Line(words, [float(count) for count in some], changes))
    return described(
        "permutation",
        asked,
        "without positions f(Px) = P f(x): every token's vector stays; with positions all change, moved or not; under "
        "a causal mask alone those whose predecessors changed",
        f"Without positions no vector changes when the input is shuffled; with sinusoidal or rotary positions "
        f"{100 * shares['sinusoidal']:.0f} % and {100 * shares['rotary']:.0f} % do, under a causal mask without any "
        f"positions {100 * shares['causal']:.0f} %: a decoder sees order even so.",
        findings,
        [
            Picture(
                "How far vectors change when tokens trade places",
                "tokens that trade places",
                "largest change in a token's vector, mean",
                lines,
                log_y=True,
            )
        ],
    )


def _moving(count: int, length: int, draw: torch.Generator) -> Tensor:
    """An order in which `count` tokens trade places in a circle."""
    chosen = torch.randperm(length, generator=draw)[:count]
    order = torch.arange(length)
    order[chosen] = chosen.roll(1)
    return order


KINDS = {
    "none": "no positions",
    "sinusoidal": "sinusoidal positions",
    "rotary": "rotary positions",
    "causal": "causal mask, no positions",
}


class _Stack(nn.Module):
    """Blocks with positions of one kind; all kinds have the same weights."""

    def __init__(self, kind: str, asked: Permutation) -> None:
        super().__init__()
        rotary = RotaryPosition(asked.width // HEADS) if kind == "rotary" else None
        block: Any = DecoderBlock if kind == "causal" else EncoderBlock
        self.positions = SinusoidalPosition(asked.width) if kind == "sinusoidal" else nn.Identity()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(asked.seed)
            layers = [block(MultiHeadAttention(asked.width, HEADS, rotary=rotary)) for _ in range(asked.depth)]
        self.blocks = nn.ModuleList(layers)
        self.double().eval()

    @torch.no_grad()
    def change(self, x: Tensor, order: Tensor) -> Tensor:
        """How far each token's vector is from what it is in the old order: its largest number.    (T,)"""
        changes: Tensor = (self(x[:, order])[0] - self(x)[0][order]).abs().amax(-1)
        return changes

    def forward(self, x: Tensor) -> Tensor:
        x = self.positions(x)
        for block in self.blocks:
            y = block(x)
            x = y[0] if isinstance(y, tuple) else y
        return x
