"""The error analysis in words, pictures and coloured text."""

from __future__ import annotations

import itertools
from typing import Any

from markupsafe import Markup, escape

from seqlab.diagnostics.attribution import Pushes
from seqlab.evaluation.causes import Causes
from seqlab.evaluation.challenge import ChallengeResult, sentiment_classes
from seqlab.evaluation.edits import KINDS, MEANINGS
from seqlab.pages.class_charts import slice_picture
from seqlab.pages.render import embedded
from seqlab.runs.run import Run
from seqlab.workflows.classify.data import Prepared
from seqlab.workflows.classify.errors import ErrorAnalysis, Mistake
from seqlab.workflows.classify.errors_words import (
    causes_sentence,
    challenge_sentence,
    excess,
    percent,
    shuffled_sentence,
)
from seqlab.workflows.classify.explain import method_of

CHOSEN, RIGHT = (213, 94, 0), (0, 114, 178)  # Okabe and Ito's vermilion and blue
STRONGEST = 0.55  # opacity of the strongest push: dark text stays legible on it
SHOWN_WORDS = 240  # of a text; of a longer one its beginning and its end


def error_values(run: Run, data: Prepared, errors: ErrorAnalysis | None) -> dict[str, Any]:
    """What the template shows of the errors; nothing without an analysis."""
    if errors is None:
        return {"slices_picture": None}
    overall = 1 - errors.measured.figures.accuracy.value
    rates = [(one.name, rate.value, rate.low, rate.high, rate.n) for one, rate in errors.slices if rate.n]
    return {
        "slices_picture": embedded(slice_picture(rates, overall)),
        "slices": [(one.name, one.explanation) for one, rate in errors.slices if rate.n],
        "challenge": _challenge_rows(errors.challenge),
        "challenge_sentence": challenge_sentence(errors.challenge),
        "method": _method(run, errors.mistakes),
        "directions": _directions(errors.mistakes, data),
        "causes_sentence": causes_sentence(errors.causes),
        "causes": _cause_rows(errors.causes),
        "no_cause": f"{errors.causes.none:,} of {len(errors.causes.examined):,}",
        "shuffled": shuffled_sentence(errors.causes),
    }


def _method(run: Run, mistakes: list[Mistake]) -> str:
    gap = max((mistake.pushes.gap for mistake in mistakes), default=0.0)
    off = f"; they add up to the change of the margin, off by {gap:.2g} at most" if gap else ""
    return method_of(run) + off  # type: ignore[arg-type]


def _challenge_rows(found: ChallengeResult | None) -> list[list[str]]:
    if found is None:
        return []
    return [
        [
            one.kind,
            f"{one.pairs:,}",
            f"{one.texts_right:,} of {one.texts:,}",
            f"{one.pairs_right:,} ({percent(one.pairs_right, one.pairs)})",
            f"{one.unchanged:,} ({percent(one.unchanged, one.pairs)})",
        ]
        for one in (*found.kinds, found.total)
    ]


def _directions(mistakes: list[Mistake], data: Prepared) -> list[tuple[str, list[dict[str, Any]]]]:
    found, sentiment = [], sentiment_classes(data.labels)
    for (direction, kind), some in itertools.groupby(mistakes, key=lambda m: (m.example.direction, m.example.kind)):
        true, chosen = (data.labels[k] for k in direction)
        words = "the most confident" if kind == "confident" else "the nearest to undecided"
        name = "" if sentiment is None else _name_of(direction, *sentiment)
        found.append((f"{true} taken for {chosen}{name}: {words}", [_mistake(m, data) for m in some]))
    return found


def _name_of(direction: tuple[int, int], negative: int, positive: int) -> str:
    known = {(negative, positive): " (false positives)", (positive, negative): " (false negatives)"}
    return known.get(direction, "")


def _mistake(mistake: Mistake, data: Prepared) -> dict[str, Any]:
    chosen = data.labels[mistake.example.direction[1]]
    causes = ""
    if mistake.causes:
        causes = f"What mends it: {'; '.join(mistake.causes[:3])}."
    elif mistake.causes == ():
        causes = "No edit that was tried mends it."
    return {
        "what": f"row {mistake.row:,}; {chosen} with {100 * mistake.example.confidence:.1f} %",
        "words": coloured(mistake.text, mistake.pushes),
        "causes": causes,
    }


def coloured(text: str, pushes: Pushes) -> Markup:
    """The text with each word's push as its colour; the strongest of the text has the strongest colour."""
    if len(text.lower()) != len(text):  # the spans are those of the lower-cased text, as in `pushes_of`
        text = text.lower()
    strongest = max((abs(float(value)) for value in pushes.values), default=0.0) or 1.0
    hidden = range(0)
    if len(pushes.spans) > SHOWN_WORDS:
        hidden = range(SHOWN_WORDS // 2, len(pushes.spans) - SHOWN_WORDS // 2)
    parts, done = [], 0
    for place, ((start, end), value) in enumerate(zip(pushes.spans, pushes.values, strict=True)):
        if place in hidden:
            if place == hidden[0]:
                parts.append(escape(f" … ({len(hidden):,} words) … "))
            done = end
            continue
        parts += [escape(text[done:start]), _word(text[start:end], float(value), strongest)]
        done = end
    parts.append(escape(text[done:]))
    return Markup("").join(parts)


def _word(word: str, push: float, strongest: float) -> Markup:
    strength = STRONGEST * abs(push) / strongest
    if strength < 0.03:
        return escape(word)
    red, green, blue = CHOSEN if push > 0 else RIGHT
    style = f"background:rgba({red},{green},{blue},{strength:.2f})"
    return Markup('<span style="{}" title="{:+.3f}">{}</span>').format(style, push, word)


def _cause_rows(causes: Causes) -> list[list[str]]:
    rows = []
    for kind in KINDS:
        mended, tried = causes.counts[kind], causes.applicable[kind]
        upset, controls = causes.base_rates[kind]
        shares = [
            f"{part:,} of {whole:,} ({percent(part, whole)})" for part, whole in ((mended, tried), (upset, controls))
        ]
        rows.append([kind, MEANINGS[kind], *shares, excess(*causes.excess(kind))])
    return rows
