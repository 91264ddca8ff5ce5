"""What a person looks at after a run: loss.png, samples.txt and a self-contained report.html."""

from __future__ import annotations

from typing import Any

from seqlab.core.files import write_bytes, write_text
from seqlab.core.units import human_count, human_perplexity, human_seconds, number_of
from seqlab.data.overlap import Overlap
from seqlab.data.sources import Text
from seqlab.pages.charts import loss_curve
from seqlab.pages.render import embedded, flat, render, settings_rows
from seqlab.runs.folder import Line
from seqlab.runs.record import learning_curves
from seqlab.runs.run import Run
from seqlab.workflows.lm.words import (
    MEANING,
    METHODS,
    baselines_of,
    headline_part,
    interval_words,
    notes_of,
    who_is_ahead,
)

SAMPLE_TOKENS = 300
SAMPLES: tuple[tuple[str, dict[str, float]], ...] = (
    ("temperature 0.8, top-p 0.95", {"temperature": 0.8, "top_p": 0.95}),
    ("temperature 1.0 (the model's own distribution)", {"temperature": 1.0}),
    ("greedy", {"temperature": 0.0}),
)
FIGURES: tuple[tuple[str, str, str], ...] = (
    ("tokens", "tokens scored", ",d"),
    ("unknown_rate", "unknown tokens", ".3%"),
    ("nats_per_token", "nats per token", ".4f"),
    ("perplexity_per_token", "perplexity per token", ""),
    ("perplexity_per_word", "perplexity per word", ""),
    ("perplexity_per_character", "perplexity per character", ""),
    ("nats_per_character", "nats per character", ".4f"),
    ("bits_per_character", "bits per character", ".4f"),
    ("bits_per_byte", "bits per byte", ".4f"),
)


def write_report(run: Run, overlap: Overlap, text: Text) -> None:
    """Write all three; every figure comes from the run folder's own lines."""
    lines = run.files.read_metrics()
    final = lines[-1]
    title = f"{run.settings.model.kind} on {text.name}"
    unit, counted = run.task.unit, run.task.counted
    training, validation = learning_curves(lines, unit, counted)
    picture = loss_curve(training, validation, counted=counted, unit=unit, title=title) if training else None
    samples = [(name, _sample(run, **how)) for name, how in SAMPLES]
    if picture is not None:
        write_bytes(run.folder / "loss.png", picture)
    write_text(run.folder / "samples.txt", "\n\n".join(f"== {name} ==\n{sample}" for name, sample in samples) + "\n")
    page = _page(run, final, title, picture, samples, overlap)
    write_text(run.files.report_file, page)


def _sample(run: Any, **how: Any) -> str:
    sample: str = run.generate("", SAMPLE_TOKENS, seed=run.settings.training.seed, **how)
    return sample.strip()


def figure_rows(final: Line) -> list[tuple[str, list[str]]]:
    """(label, [validation, test]) with every figure written as a person reads it."""
    parts = [final[name] for name in ("validation", "test") if final.get(name)]
    return [
        (label, ["–" if part[key] is None else _written(part[key], form) for part in parts])
        for key, label, form in FIGURES
    ]


def _written(value: float, form: str) -> str:
    return format(value, form) if form else human_perplexity(value)


def _page(
    run: Run, final: Line, title: str, picture: bytes | None, samples: list[tuple[str, str]], overlap: Overlap
) -> str:
    return render(
        "report.html.j2",
        title=title,
        headline=_headline(run, final),
        picture=None if picture is None else embedded(picture),
        parts=[name for name in ("validation", "test") if final.get(name)],
        rows=figure_rows(final),
        context=final["context"],
        some_unknown=any(final[name]["unknown_rate"] for name in ("validation", "test") if final.get(name)),
        overlap=overlap.sentence(),
        meaning=MEANING,
        baselines=baseline_rows(final),
        part=headline_part(final),
        notes=notes_of(final),
        ahead=who_is_ahead(final),
        mixture=final.get("mixture"),
        samples=samples,
        settings=settings_rows(run.settings),
        record=flat(run.record),
        run=str(run.folder),
    )


def baseline_rows(final: Line) -> list[tuple[str, str, float, bool]]:
    """(name, what it is, bits per byte, whether it is the run itself), best first; none without baselines."""
    own = final[headline_part(final)]["bits_per_byte"]
    found = [(one["name"], METHODS.get(one["name"], ""), one["bits_per_byte"], False) for one in baselines_of(final)]
    if not found:
        return []
    found.append(("this model", interval_words(final), own, True))
    if final.get("reading_on"):
        bits = final["reading_on"]["bits_per_byte"]
        found.append(("this model, reading on", "goes on learning from the text, as compressors do", bits, True))
    return sorted(found, key=lambda row: row[2])


def _headline(run: Run, final: Line) -> list[tuple[str, str]]:
    part = headline_part(final)
    score, interval = final[part], interval_words(final)
    return [
        (f"{score['bits_per_byte']:.3f}", f"bits per byte of the {part} text{f', {interval}' if interval else ''}"),
        (
            human_perplexity(score["perplexity_per_token"]),
            f"perplexity per {run.settings.tokenizer.kind} token of the {part} text",
        ),
        (human_count(run.record["parameters"]), _what_was_learnt(run, final)),
        (human_seconds(final["seconds"]), _how_long(final)),
    ]


def _what_was_learnt(run: Run, final: Line) -> str:
    if "mixture" in run.record:
        return "numbers that its members have learnt"
    return "parameters" if final["step"] else "n-grams counted"


def _how_long(final: Line) -> str:
    if "mixture" in final:
        return "fitting the weights"
    return f"training, {number_of(final['step'], 'step')} ({final['outcome']})" if final["step"] else "counting"
