"""An estimate in words: what the terminal and the page both say."""

from __future__ import annotations

import re

from seqlab.core.settings.cost import COSTED
from seqlab.core.units import human_bytes, human_count, human_flops, human_moment, number_of, parse_budget
from seqlab.diagnostics.cost import Part
from seqlab.workflows.cost.estimate import CostEstimate
from seqlab.workflows.cost.record import optimiser_shares

HEADER = ["part", "parameters", "forward", "backward", "share", "kept", "share", "optimiser"]
NOTES = (
    "operations of one step, 2 for each multiply-add, and their share; kept: bytes of activations for the backward "
    "pass; optimiser: bytes of its moments, and of the average of the weights"
)
TEXTBOOK = ["attention", "layers", "textbook", "multiply-adds", "counted", "ratio"]
TEXTBOOK_NOTES = (
    "of one sequence; M source and N target positions, k or d the width, m random features; textbooks leave out "
    "constants: four projections, two products of scores and mixing"
)
FORMULAS = ("operations, forward", "parameters", "bytes kept")
SYMBOLS_OF = {
    "lm": {"n_t": "tokens of a sequence", "V": "tokens to choose from"},
    "classify": {"n_t": "words of a text, or its n-grams", "V": "classes to choose from"},
    "translate": {"n_t": "tokens of a target sentence", "V": "tokens to choose from"},
}
SYMBOLS = {
    "B": "sequences of a step",
    "n_s": "tokens of a source sentence",
    "d_model": "numbers in the vector of a token",
    "d_ff": "units of a feed-forward network",
    "d_in": "numbers that a projection reads",
    "d_out": "numbers that a projection writes",
    "d_vector": "numbers in a word vector",
    "d_encoded": "numbers in a vector that the encoder writes",
    "d_start": "numbers that the decoder starts from",
    "d_joint": "numbers of the decoder's state and of what it attends to, side by side",
    "D": "numbers that a recurrent layer reads",
    "H": "units of a recurrent layer",
    "H_decoder": "units of the decoder",
    "H_out": "units that are carried on",
    "V_guide": "tokens that the guide has counted",
    "V_in": "rows of a table that is looked up",
    "heads": "attention heads",
    "kv_heads": "heads of keys and values",
    "head_width": "numbers in a head",
    "columns": "columns of sums: a class each, or one for two",
    "m": "random features of a head",
    "taps": "positions that a convolution reads",
    "positions": "learned positions",
    "turned": "pairs of numbers that rotary positions turn",
    "masks": "entries of the masks of a window",
}


def title(found: CostEstimate) -> str:
    request = found.request
    model = request.settings.model
    size = getattr(model, "size", None)
    name = f"{model.kind} ({request.task})" if size is None else f"{model.kind} {size} ({request.task})"
    return name if request.run is None else f"{request.run}: {name}"


def basis(found: CostEstimate) -> str:
    """What one step is."""
    cost, training = found.cost, found.request.settings.training
    lengths = f"{cost.length:,} positions"
    if cost.source_length is not None:
        lengths = f"{cost.source_length:,} source and {cost.length:,} target positions"
    average = ", average of the weights" if training.ema else ""
    pieces = f", cut into {training.accumulate:,} pieces" if training.accumulate > 1 else ""
    return f"one step: {cost.batch:,} sequences of {lengths}{pieces}; optimiser {training.optimiser}{average}"


def assumed(found: CostEstimate) -> str | None:
    known = found.request.shapes.assumed
    return f"assumed: {', '.join(known)}" if known else None


# --------------------------------------------------------------------------- tables


def rows(found: CostEstimate) -> list[list[str]]:
    """Every part, and all of them."""
    cost = found.cost
    optimiser = optimiser_shares(cost)
    work = cost.flops_forward + cost.flops_backward
    found_rows = [_row(part, optimiser[part.name], work, cost.saved_bytes) for part in cost.parts]
    whole = Part("all", cost.parameters, cost.flops_forward, cost.flops_backward, cost.saved_bytes, "", "", "")
    return [*found_rows, _row(whole, cost.optimiser_bytes, work, cost.saved_bytes)]


def _row(part: Part, optimiser: int, work: float, kept: int) -> list[str]:
    operations = part.flops_forward + part.flops_backward
    return [
        *(part.name, f"{part.parameters:,}"),
        *(_or_none(human_flops, part.flops_forward), _or_none(human_flops, part.flops_backward)),
        _share(operations, work),
        *(_or_none(human_bytes, part.saved), _share(part.saved, kept)),
        _or_none(human_bytes, optimiser),
    ]


def _or_none(words: object, amount: float) -> str:
    return words(amount) if amount and callable(words) else "–"


def _share(amount: float, whole: float) -> str:
    return f"{amount / whole:.1%}" if whole else "–"


def textbook_rows(found: CostEstimate) -> list[list[str]]:
    return [
        [
            *(row.what, f"{row.layers}", row.total),
            *(human_count(row.textbook), human_count(row.counted), f"{row.counted / row.textbook:.2f}"),
        ]
        for row in found.textbook
    ]


def formulas(found: CostEstimate) -> list[tuple[str, list[tuple[str, str, str]]]]:
    """Of each quantity, of each part that has any: its name, formula and number."""
    parts = found.cost.parts
    return [
        (FORMULAS[0], [(p.name, p.formula, human_flops(p.flops_forward)) for p in parts if p.flops_forward]),
        (FORMULAS[1], [(p.name, p.formula_parameters, f"{p.parameters:,}") for p in parts if p.parameters]),
        (FORMULAS[2], [(p.name, p.formula_saved, human_bytes(p.saved)) for p in parts if p.saved]),
    ]


def symbols(found: CostEstimate) -> list[tuple[str, int, str]]:
    """What each symbol is here; one with a number at its end is the same of another layer."""
    known = SYMBOLS | SYMBOLS_OF[found.request.task]
    return [
        (name, value, known.get(name) or known.get(re.sub(r"_\d+$", "", name), ""))
        for name, value in found.cost.symbols.items()
    ]


def names_in(formula: str) -> set[str]:
    """The symbols of a formula."""
    return set(re.findall(r"[A-Za-z]\w*", formula))


# --------------------------------------------------------------------------- sentences


def memory(found: CostEstimate) -> str:
    cost = found.cost
    return (
        f"memory by count: {human_bytes(cost.memory_bytes)} = weights {human_bytes(cost.weight_bytes)} + gradients "
        f"{human_bytes(cost.gradient_bytes)} + optimiser {human_bytes(cost.optimiser_bytes)} + activations "
        f"{human_bytes(cost.saved_bytes)}"
    )


def bottleneck(found: CostEstimate) -> str:
    """The part with most operations, and at which lengths another is."""
    slowest, length = found.bottleneck, found.cost.length
    if slowest is None:
        return "bottleneck: none; nothing is multiplied, rows of tables are looked up and added"
    words = f"bottleneck at {length:,} positions: {slowest.part}, {slowest.share:.0%} of the operations"
    if slowest.since is not None:
        words += f"; from {slowest.since:,} positions on, below them {slowest.before}"
    if slowest.until is not None:
        return f"{words}; overtaken at {slowest.until:,} positions by {slowest.after}"
    return f"{words}; no other part overtakes it at any length"


def recompute(found: CostEstimate) -> str | None:
    """What --recompute trades: predicted where it is asked for, otherwise counted."""
    if found.recomputed is None:
        return None
    if found.prediction is not None and found.prediction.traded is not None:
        return found.prediction.traded.sentence(found.prediction.memory, found.prediction.step)
    on = found.request.settings.training.recompute
    with_it, without = (found.cost, found.recomputed) if on else (found.recomputed, found.cost)
    share = found.extra_forward / (found.cost.flops_forward + found.cost.flops_backward)
    if not on and with_it.saved_bytes > 0.8 * without.saved_bytes and found.fits is not False:
        return None
    words = "--recompute keeps" if on else "--recompute would keep"
    return (
        f"{words} {human_bytes(with_it.saved_bytes)} of activations instead of {human_bytes(without.saved_bytes)}, for "
        f"{share:.0%} more operations (the blocks' forward pass again)"
    )


def prediction(found: CostEstimate) -> list[str]:
    """Seconds, the budget, the worst moment of the memory, and whether it fits."""
    if found.prediction is None:
        return [f"no prediction: {found.unpredicted}", _fits_by_count(found)]
    step, held = found.prediction.step, found.prediction.memory
    how = "timed on the whole step" if step.timed else "from pieces of it and the calibration of this machine"
    first = (
        f"a step takes {human_moment(step.seconds)} ({human_moment(step.low)} to {human_moment(step.high)}; {how}; "
        f"{number_of(found.threads, 'thread')})"
    )
    peak = (
        f"the process holds at most {human_bytes(held.peak)}; {human_bytes(held.process)} are held now, "
        f"{human_bytes(held.moments)} for the optimiser, {human_bytes(held.step)} for a step, "
        f"{human_bytes(held.reading)} for measuring"
    )
    return [first, budget(found), peak, fits(found)]


def budget(found: CostEstimate) -> str:
    """steps · seconds of a step, or how many steps a time buys."""
    assert found.prediction is not None
    step, training = found.prediction.step, found.request.settings.training
    if found.steps is None:
        flag = COSTED[found.request.task].examples
        return f"--budget {training.budget}: how many steps that is depends on the data; add --{flag} N"
    if found.request.steps is None and parse_budget(training.budget).seconds is not None:
        amount = parse_budget(training.budget).amount
        if amount < step.seconds:
            return f"--budget {training.budget} is less than a step takes; the training takes one step all the same"
        low, high = (int(amount / s) for s in (step.high, step.low))
        return (
            f"--budget {training.budget} buys about {number_of(found.steps, 'step')} ({low:,} to {high:,}), "
            "validations not counted; the training times a step again before it starts"
        )
    between = " to ".join(human_moment(found.steps * s) for s in (step.low, step.high))
    planned = "the run's" if found.request.steps is not None else f"--budget {training.budget}:"
    take = "takes" if found.steps == 1 else "take"
    return (
        f"{planned} {number_of(found.steps, 'step')} {take} {human_moment(found.steps * step.seconds)} ({between}); "
        "validations and the report come on top"
    )


def fits(found: CostEstimate) -> str:
    assert found.prediction is not None
    spare, needed = found.prediction.spare, human_bytes(found.prediction.memory.needed)
    if spare is None:
        return f"it needs {needed} more than now; this system does not say how much there is"
    if found.fits:
        return f"it fits: {needed} more than now, and {human_bytes(spare)} can be had here"
    return (
        f"it does not fit: {needed} more than now, and {human_bytes(spare)} can be had here; {found.prediction.remedy}"
    )


def _fits_by_count(found: CostEstimate) -> str:
    needed = human_bytes(found.cost.memory_bytes)
    if found.spare is None:
        return f"by count it needs {needed}; this system does not say how much there is"
    verdict = "may fit" if found.fits else "does not fit"
    return f"by count it {verdict}: {needed}, and {human_bytes(found.spare)} can be had here"


def not_measured(found: CostEstimate) -> str | None:
    layers = found.cost.not_measured
    if not layers:
        return None
    return f"not in the bytes kept: the activations of {', '.join(name or 'the model' for name in layers)}"
