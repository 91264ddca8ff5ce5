"""What a model costs, counted on its shapes: by part, as formulas and as numbers.

One multiply-add is two operations. Only products are counted: what norms, gates and softmax add is small beside them.

    cost = seqlab.cost(model, batch=8, length=128)
    for part in cost.parts:
        print(part.name, part.parameters, part.flops_forward, part.formula)

A layer of your own is counted once its type says what it costs, everything inside it included:

    from seqlab.diagnostics.cost import FORWARD_FLOPS
    FORWARD_FLOPS[MyLayer] = lambda layer, context: 2.0 * layer.weight.numel()
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from torch import nn

from seqlab.core.errors import UsageError, nearest
from seqlab.core.settings.training import OPTIMISERS
from seqlab.diagnostics.cost_models import MODEL_TERMS
from seqlab.diagnostics.cost_terms import (
    BACKWARD,
    PARTS,
    Inside,
    Term,
    Use,
    formula,
    parameters,
    renamed,
    total,
)
from seqlab.layers import MultiHeadAttention
from seqlab.models.recurrent_translator import SourceAttention
from seqlab.training.optim import decay_groups

FlopCount = Callable[[Any, int], float]  # (module, context) -> operations of its forward pass for one token

FORWARD_FLOPS: dict[type[nn.Module], FlopCount] = {}  # layers of your own; part "other"

MOMENTS = {"sgd": 0, "momentum": 1, "momentum-average": 1}  # numbers kept for each weight; the others keep 2


# --------------------------------------------------------------------------- the figures


@dataclass(frozen=True)
class Part:
    """What one part costs, for a whole batch. A formula and its number come from the same terms."""

    name: str
    parameters: int
    flops_forward: float
    flops_backward: float
    saved: int  # bytes that are kept for the backward pass
    formula: str  # of flops_forward
    formula_parameters: str
    formula_saved: str


@dataclass(frozen=True)
class Cost:
    """What one training step on batch × length positions costs.

    flops_forward    2 for each multiply-add, of the whole batch
    flops_backward   two gradients of every product, so twice the forward pass, and less where a factor does not learn;
                     scores that a fused kernel computes again are not counted again
    memory_bytes     weights + gradients + what the optimiser keeps + activations saved for the backward pass
    symbols          what the symbols of the formulas mean here
    not_measured     layers of one's own, whose activations are not known and not in memory_bytes
    """

    batch: int
    length: int
    source_length: int | None
    optimiser: str
    parts: tuple[Part, ...]
    symbols: dict[str, int]
    weight_bytes: int
    gradient_bytes: int
    optimiser_bytes: int  # moments, and the average of the weights where there is one
    not_measured: tuple[str, ...]
    at: Callable[[int, bool], Cost] = field(
        repr=False, compare=False
    )  # another length; whether windows stay as they are

    @property
    def parameters(self) -> int:
        return sum(part.parameters for part in self.parts)

    @property
    def flops_forward(self) -> float:
        return sum(part.flops_forward for part in self.parts)

    @property
    def flops_backward(self) -> float:
        return sum(part.flops_backward for part in self.parts)

    @property
    def saved_bytes(self) -> int:
        return sum(part.saved for part in self.parts)

    @property
    def memory_bytes(self) -> int:
        return self.weight_bytes + self.gradient_bytes + self.optimiser_bytes + self.saved_bytes

    def part(self, name: str) -> Part:
        """One of PARTS; all its figures are 0 where the model has none."""
        return next((part for part in self.parts if part.name == name), Part(name, 0, 0, 0, 0, "0", "0", "0"))


def cost(
    model: Any,
    batch: int = 8,
    length: int = 128,
    *,
    source_length: int | None = None,
    optimiser: str = "adamw",
    ema: bool = False,
) -> Cost:
    """What a run of any task, a model or a layer costs in one training step.

    `length` positions of each of `batch` sequences; an encoder-decoder reads as many of the source, unless
    `source_length` says otherwise, and a bare attention layer with a `source_length` is asked across two texts. In a
    bag of features `length` is how many there are. memory_bytes holds weights, gradients, the optimiser's moments
    (adam, adamw: two; momentum: one; sgd: none; muon: one for matrices, two for the rest), with `ema` an average of the
    weights, and the activations that one step saves, in the weights' number type. A layer that is not known is
    refused. Models without numbers in them (torch's device "meta") are counted like others.
    """
    module = _module(model)
    _check(batch, length, source_length, optimiser)
    return _counted(module, _use(module, batch, length, source_length), optimiser, ema)


def _check(batch: int, length: int, source_length: int | None, optimiser: str) -> None:
    for name, number in (("batch", batch), ("length", length), ("source_length", source_length)):
        if number is not None and number < 1:
            raise UsageError(f"{name} {number} is too small; the least is 1")
    if optimiser not in OPTIMISERS:
        raise UsageError(f"optimiser '{optimiser}' is not known{nearest(optimiser, OPTIMISERS)}")


def _use(model: nn.Module, batch: int, length: int, source_length: int | None) -> Use:
    """A bare attention layer with a source is asked across two texts."""
    number = next((weight.element_size() for weight in model.parameters()), 4)
    across = source_length if isinstance(model, MultiHeadAttention | SourceAttention) else None
    return Use(batch, length, keys=across, source=source_length, number=number)


def _counted(model: nn.Module, use: Use, optimiser: str, ema: bool) -> Cost:
    walk = Walk(model)
    terms, symbols = renamed(walk.terms(use))
    weights = list(model.parameters())
    learning = [weight for weight in weights if weight.requires_grad]

    def at(length: int, windowed: bool = True) -> Cost:
        return _counted(model, replace(use, length=length, windowed=windowed), optimiser, ema)

    return Cost(
        *(use.batch, use.length, use.source, optimiser),
        parts=_parts(terms),
        symbols=symbols,
        weight_bytes=_bytes(weights),
        gradient_bytes=_bytes(learning),
        optimiser_bytes=optimiser_bytes(model, optimiser, ema=ema),
        not_measured=tuple(walk.own),
        at=at,
    )


def _module(model: Any) -> nn.Module:
    """A run has its model."""
    found = model if isinstance(model, nn.Module) else getattr(model, "model", None)
    if not isinstance(found, nn.Module):
        raise UsageError(f"a cost is counted of a run, a model or a layer, not of {type(model).__name__}")
    return found


def _parts(terms: list[Term]) -> tuple[Part, ...]:
    found = []
    for name in PARTS:
        own = [term for term in terms if term.part == name]
        products, sizes, kept = (
            [term for term in own if term.what == what] for what in ("flops", "parameters", "saved")
        )
        if own:
            backward = sum(term.value * term.backward for term in products)
            figures = int(total(sizes)), total(products), backward, int(total(kept))
            found.append(Part(name, *figures, formula(products), formula(sizes), formula(kept)))
    return tuple(found)


def _bytes(weights: list[nn.Parameter]) -> int:
    return sum(weight.numel() * weight.element_size() for weight in weights)


def optimiser_bytes(model: nn.Module, optimiser: str, *, ema: bool) -> int:
    """Moments of every weight that learns, and an average of all weights if there is one."""
    return sum(_moments(model, optimiser)) + (_bytes(list(model.parameters())) if ema else 0)


def _moments(model: nn.Module, optimiser: str) -> Iterator[int]:
    """Bytes that the optimiser keeps of each weight. Muon turns the matrices, AdamW moves the rest."""
    turned: set[int] = set()
    if optimiser == "muon":
        decayed = (group["params"] for group in decay_groups(model, 1.0) if group["weight_decay"])
        turned = {id(weight) for weights in decayed for weight in weights if weight.ndim == 2}
    for weight in model.parameters():
        if weight.requires_grad:
            yield _bytes([weight]) * (1 if id(weight) in turned else MOMENTS.get(optimiser, 2))


# --------------------------------------------------------------------------- the walk


class Walk:
    """From a model to its terms: a layer that is known says what it costs; a container costs what is inside it.

    A layer is counted once. One whose type is not known is refused: a silent zero would pass for a figure.
    """

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.own: list[str] = []  # layers that only FORWARD_FLOPS knows
        self._seen: set[Any] = set()  # ids of layers, and what layers share

    def terms(self, use: Use) -> Iterator[Term]:
        return self._of(self.model, use, "")

    def _of(self, module: nn.Module, use: Use, path: str) -> Iterator[Term]:
        if id(module) in self._seen:
            return
        self._seen.add(id(module))
        kind = next((kind for kind in type(module).__mro__ if kind in FORWARD_FLOPS or kind in MODEL_TERMS), None)
        if kind in FORWARD_FLOPS:
            self.own.append(path)
            yield from _own_terms(module, use, FORWARD_FLOPS[kind])
        elif kind is not None:
            for term in MODEL_TERMS[kind](module, use):
                if isinstance(term, Inside):
                    yield from self._of(getattr(module, term.name), term.use, _within(path, term.name))
                elif term.once not in self._seen and (use.kept or term.what != "saved"):
                    self._seen |= {term.once} - {None}
                    yield term
        elif _costs_nothing_itself(module):
            for name, child in module.named_children():
                yield from self._of(child, use, _within(path, name))
            return
        else:
            raise UsageError(_unknown(path, module))
        self._seen |= {id(part) for part in module.modules()}


def _own_terms(module: nn.Module, use: Use, count: FlopCount) -> Iterator[Term]:
    yield Term("flops", "other", count(module, use.length), use.rows)
    yield parameters("other", ("weights", count_parameters(module)))


def _within(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _costs_nothing_itself(module: nn.Module) -> bool:
    """A container, which costs what its parts cost, or one of torch's modules without parameters (dropout, …)."""
    if next(module.parameters(recurse=False), None) is not None:
        return False
    return next(module.children(), None) is not None or type(module).__module__.startswith("torch.nn.")


def _unknown(path: str, module: nn.Module) -> str:
    kind = type(module)
    place = f"layer '{path}'" if path else "the model"
    return (
        f"what a token costs in {place} ({kind.__module__}.{kind.__qualname__}) is not known; register it: "
        f"seqlab.diagnostics.cost.FORWARD_FLOPS[{kind.__name__}] = lambda module, context: FLOPs of one token"
    )


# --------------------------------------------------------------------------- for one token


def count_parameters(model: Any) -> int:
    return sum(weight.numel() for weight in model.parameters())


def training_flops(model: Any, context: int) -> float:
    """Operations of forward and backward pass for one token, each product with both its gradients."""
    return (1 + BACKWARD) * forward_flops(model, context)


def forward_flops(model: nn.Module, context: int) -> float:
    """Operations of the forward pass for one token, in training on windows of `context` tokens.

        Σ over the layers  2 · (entries of the matrices that a token is multiplied with)  +  what attending adds

    A window of the layers themselves is as wide as these.
    """
    terms = Walk(model).terms(Use(1, context, windowed=False))
    return total(term for term in terms if term.what == "flops") / context


# --------------------------------------------------------------------------- beside the textbook

TOTALS = {
    "encoder self-attention": "M²k + Mk²",
    "cross-attention": "MNk + (M+N)k²",
    "decoder self-attention": "N²k + Nk²",
    "separable attention": "nd²",
    "random-feature attention": "nmd",
}


@dataclass(frozen=True)
class Textbook:
    """Multiply-adds of the attention layers of one kind, for one sequence: as textbooks give them, and as counted.

    Textbooks leave out constants: the projections are four matrices, scores and mixing two products. What they give of
    the linear kinds replaces scores and mixing, so only those are counted beside it, in heads: nd²/heads twice.
    """

    what: str
    layers: int
    total: str  # in the textbook's symbols
    formula: str  # the same in those of the costs
    textbook: float
    counted: float
    counted_formula: str


def textbook(model: Any, length: int = 128, *, source_length: int | None = None) -> tuple[Textbook, ...]:
    """The textbook totals of a model's attention layers (M source positions, N target positions, k or d = d_model)."""
    module = _module(model)
    terms, _ = renamed(Walk(module).terms(_use(module, 1, length, source_length)))
    found = []
    for what, text in TOTALS.items():
        said = [term for term in terms if term.what == "textbook" and term.role == what]
        parts = ("scores", "mixing") if what in LINEAR else ("projections", "scores", "mixing")
        done = [term for term in terms if term.what == "flops" and term.role == what and term.part in parts]
        if said:
            layers = len(said) // (1 if what in LINEAR else 2)
            halves = [replace(term, coefficient=1, factors=term.factors[1:]) for term in done]  # 2·B·…, B = 1
            figures = formula(said), total(said), total(halves), formula(halves)
            found.append(Textbook(what, layers, text, *figures))
    return tuple(found)


LINEAR = ("separable attention", "random-feature attention")
