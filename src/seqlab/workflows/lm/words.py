"""What a person is told of a finished run: the figure to look at, what it means, and who else was measured."""

from __future__ import annotations

from typing import Any

from seqlab.evaluation.baselines import COMPRESSORS

Final = dict[str, Any]
MEANING = "what a compressor that knows the model needs for a byte of the text; lower is better, 8 is knowing nothing"
READING_ON = "this model as it goes on learning from the text that it reads, as compressors do"
METHODS = {
    "uniform": "every character of the training text equally likely",
    "7-gram": "counts of each character after the six before it (modified Kneser–Ney)",
    "xz": "compressor that has read the training text and goes on learning",
    "ppmd": "compressor (prediction by partial matching) that has read the training text and goes on learning",
}


def told(final: Final) -> list[str]:
    """The headline, the baselines, those that are ahead, and what is counted; of a run of before, what there is."""
    part, interval = headline_part(final), interval_words(final)
    value = final[part]["bits_per_byte"]
    lines = [f"{part} text: {value:.3f} bits per byte{f' ({interval})' if interval else ''}"]
    simple = baselines_of(final)
    if simple:
        listed = ", ".join(f"{one['name']} {one['bits_per_byte']:.3f}" for one in simple)
        lines.append(f"beside it, on the same text: {listed}{''.join(f' ({note})' for note in notes_of(final))}")
    return [*lines, *filter(None, [who_is_ahead(final), as_it_reads_on(final)]), f"bits per byte: {MEANING}"]


def headline_part(final: Final) -> str:
    return "test" if final.get("test") else "validation"


def interval_words(final: Final) -> str:
    """With what is to be held against it; empty if there is none."""
    headline = final.get("headline", {})
    if not headline.get("interval"):
        return ""
    low, high = headline["interval"]
    speaks_of = headline.get("speaks_of")
    words = f"95 % interval {low:.3f} to {high:.3f}{f', of {speaks_of}' if speaks_of else ''}"
    return "; ".join(filter(None, [words, headline.get("caution")]))


def baselines_of(final: Final) -> list[Final]:
    """Best first; none of a run that was measured before there were any."""
    found: list[Final] = final.get("baselines") or []
    return found


def as_it_reads_on(final: Final) -> str | None:
    """One sentence: the model with what compressors have, beside the best of them."""
    if not final.get("reading_on"):  # not measured, or before it was
        return None
    said = f"{READING_ON}: {final['reading_on']['bits_per_byte']:.3f}"
    packed = [one for one in baselines_of(final) if one["name"] in COMPRESSORS]
    return said + (f" ({packed[0]['name']} {packed[0]['bits_per_byte']:.3f})" if packed else "")


def notes_of(final: Final) -> list[str]:
    return list(dict.fromkeys(one["note"] for one in baselines_of(final) if "note" in one))


def who_is_ahead(final: Final) -> str | None:
    """One sentence, if a simple method needs fewer bits than the model."""
    value = final[headline_part(final)]["bits_per_byte"]
    better = [one for one in baselines_of(final) if one["bits_per_byte"] < value]
    if not better:
        return None
    names = " and ".join(filter(None, [", ".join(one["name"] for one in better[:-1]), better[-1]["name"]]))
    are, go = ("are", "they go") if len(better) > 1 else ("is", "it goes")
    said = f"{names} {are} ahead of this model on the {headline_part(final)} text"
    if all(one["name"] in COMPRESSORS for one in better):
        return f"{said}; unlike the model {go} on learning from the text that is compressed"
    return f"{said}; a longer --budget may change that" if final["step"] else said
