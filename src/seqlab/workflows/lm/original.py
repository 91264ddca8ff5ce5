"""The training text of a finished run, read again: baselines and frequency bands need it."""

from __future__ import annotations

from seqlab.core.errors import SeqlabError
from seqlab.core.reporting import Reporter
from seqlab.core.units import parse_split
from seqlab.data.normalise import normalise, parse_steps
from seqlab.data.prepare import documents_in, read_slice, split_bounds
from seqlab.data.sources import Text, open_text
from seqlab.workflows.lm.run import LMRun


def original_text(run: LMRun) -> Text | None:
    """The text a run was trained on, if it can still be found unchanged."""
    try:
        text = open_text(run.settings.data.text, run.settings.data.encoding, run.settings.data.glob)
    except SeqlabError:
        return None
    return text if text.sha256 == run.record["text_sha256"] else None


def part_of(run: LMRun, name: str, reporter: Reporter | None = None) -> str | None:
    """One part ("train", "validation", "test") of a run's text as it stands in the original, or None."""
    text = original_text(run)
    if text is None:
        if reporter is not None:
            reporter.note(f"the text that {run.name} was trained on is not at hand: no baselines from it")
        return None
    return read_slice(text, split_bounds(text, parse_split(run.settings.data.split))[name])


def documents_of(run: LMRun, name: str) -> tuple[int, ...]:
    """Where the documents of a part start, in bytes of it, as far as that is known."""
    text = original_text(run)
    return (0,) if text is None else documents_in(text, split_bounds(text, parse_split(run.settings.data.split))[name])


def text_read(run: LMRun) -> str | None:
    """The training part after the run's own normalisation: what the model has read."""
    text = part_of(run, "train")
    return None if text is None else normalise(text, parse_steps(run.settings.data.normalise)).text
