"""The page of an estimate."""

from __future__ import annotations

from seqlab.core.units import human_bytes, human_count, human_flops, human_moment, number_of
from seqlab.pages.cost_charts import parts_picture
from seqlab.pages.render import embedded, render
from seqlab.workflows.cost import words
from seqlab.workflows.cost.estimate import CostEstimate
from seqlab.workflows.cost.record import optimiser_shares


def cost_page(found: CostEstimate) -> str:
    return render(
        "cost.html.j2",
        title=words.title(found),
        basis=_sentence(words.basis(found)),
        assumed=_sentence(words.assumed(found)),
        not_measured=_sentence(words.not_measured(found)),
        headline=_headline(found),
        prediction=[(f"{_sentence(line)}.", found.fits is False) for line in words.prediction(found)],
        recompute=words.recompute(found),
        bottleneck=_sentence(words.bottleneck(found)),
        memory=_sentence(words.memory(found)),
        pictures=_pictures(found),
        header=words.HEADER,
        rows=words.rows(found),
        notes=_sentence(words.NOTES),
        symbols=words.symbols(found),
        formulas=[(_sentence(what), rows) for what, rows in words.formulas(found)],
        textbook_header=words.TEXTBOOK,
        textbook=words.textbook_rows(found),
        textbook_notes=_sentence(words.TEXTBOOK_NOTES),
    )


def _sentence(line: str | None) -> str | None:
    """With a capital, but for what is written as on the command line."""
    return line if line is None else line[:1].upper() + line[1:]


def _headline(found: CostEstimate) -> list[tuple[str, str]]:
    cost, prediction = found.cost, found.prediction
    figures = [
        (human_count(cost.parameters), "parameters"),
        (human_flops(cost.flops_forward + cost.flops_backward), "operations of a step, forward and backward"),
        (human_bytes(cost.memory_bytes), "memory by count"),
    ]
    if prediction is not None:
        figures.append((human_moment(prediction.step.seconds), "a step, predicted"))
        figures.append((human_bytes(prediction.memory.peak), "at most held by the process, predicted"))
    if found.seconds is not None and found.steps is not None:
        figures.append((human_moment(found.seconds), f"for {number_of(found.steps, 'step')}, predicted"))
    return figures


def _pictures(found: CostEstimate) -> list[tuple[str, str]]:
    parts = found.cost.parts
    names = [part.name for part in parts]
    optimiser = optimiser_shares(found.cost)
    work = {"forward": [p.flops_forward for p in parts], "backward": [p.flops_backward for p in parts]}
    held = {"activations": [float(p.saved) for p in parts], "optimiser": [float(optimiser[name]) for name in names]}
    return [
        (
            embedded(parts_picture(names, work, label="operations of a step", unit="FLOP")),
            "Operations of a step by part, forward and backward",
        ),
        (
            embedded(parts_picture(names, held, label="memory", unit="B")),
            "Memory of activations and of the optimiser by part",
        ),
    ]
