"""Finished runs of one text made one: a mixture that scores, writes and can be kept like any run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from seqlab.core.errors import SeqlabError, UsageError
from seqlab.core.files import sha256_of_file
from seqlab.core.registry import MIXTURE
from seqlab.core.reporting import Reporter
from seqlab.core.settings.fields import flags_of, value_of
from seqlab.core.settings.lm import LMSettings
from seqlab.models.mixture import MixtureLM
from seqlab.runs.folder import RunFolder
from seqlab.runs.run import load
from seqlab.runs.task import Kept
from seqlab.runs.train import asked_settings, train
from seqlab.training.determinism import deterministic
from seqlab.workflows.lm.data import TOKENIZER, Prepared, prepare_text
from seqlab.workflows.lm.members import Member, members_again, members_of
from seqlab.workflows.lm.mixing import sentence
from seqlab.workflows.lm.named import Candidate, check_alike, check_mix, runs_named
from seqlab.workflows.lm.run import LMRun
from seqlab.workflows.lm.task import LanguageModelling


def mix(
    *runs: str | Path | LMRun,
    out: str | Path | None = None,
    threads: int | None = None,
    reporter: Reporter | None = None,
) -> LMRun:
    """A mixture of finished runs of one text, one split and one tokenizer.

    Its weights are fitted on the validation text. With `out` it is measured and kept in a run folder; without, it has
    none yet, and `save(out)` does the same later.
    """
    reporter = reporter or Reporter()
    if out is not None:
        return mix_into(runs, out, threads=threads, reporter=reporter)
    with deterministic(threads):
        loaded, said, data = _prepared(runs, None, threads, reporter)
        return _unkept("+".join(str(run.folder) for run in loaded), said, data, threads, reporter)


def mix_into(
    runs: Sequence[str | Path | LMRun], out: str | Path | None, *, threads: int | None, reporter: Reporter
) -> LMRun:
    """The same, kept: in the next free folder that is called after the text, if no place is named."""
    with deterministic(threads):
        _, said, data = _prepared(runs, out, threads, reporter)
        return _kept(said, data, out, threads, reporter)


def named_run(name: str | Path, reporter: Reporter | None = None) -> LMRun:
    """The run in a folder, or the mixture of those that a name like runs/a+runs/b holds."""
    folders = runs_named(name)
    if len(folders) == 1:
        run: LMRun = load(folders[0], "lm")
        return run
    return mix(*folders, reporter=reporter)


@dataclass(eq=False, repr=False)
class Mixture(LMRun):
    """A mixture that no folder holds yet."""

    data: Prepared | None = None
    threads: int | None = None

    @property
    def interrupted(self) -> bool:
        return False

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.folder)!r}, {sentence(self.record['mixture'])}, not saved)"

    def save(self, out: str | Path | None = None, reporter: Reporter | None = None) -> LMRun:
        """Measure it and keep it in a run folder, runs/TEXT-mixture-1, -2, … unless one is named."""
        check_mix([], out, self.threads, others=len(self.model.members))
        assert self.data is not None
        return _kept(_said(self.settings), self.data, out, self.threads, reporter or Reporter())


def _said(settings: LMSettings) -> dict[str, Any]:
    """What one would have said of a text to have it read and cut in the same way."""
    groups = ("data", "tokenizer")
    fields = {name: (group, f) for name, (group, f) in flags_of(LMSettings).items() if group in groups}
    said = {name: value_of(settings, group, f) for name, (group, f) in fields.items()}
    return {name: value for name, value in said.items() if value not in (None, "")} | {"model": MIXTURE}


def _prepared(
    runs: Sequence[str | Path | LMRun], out: str | Path | None, threads: int | None, reporter: Reporter
) -> tuple[list[LMRun], dict[str, Any], Prepared]:
    """The runs, what was said of their text, and that text with what is to be mixed."""
    loaded = _loaded(runs, out, threads)
    members = [member for run in loaded for member in _members(run)]
    identities = [member.identity for member in members]
    for k, member in enumerate(members):
        if member.identity in identities[:k]:
            raise UsageError(f"{member.name} is named twice; name each run once")
    first = loaded[0]
    said = _said(first.settings)
    kept = Kept({TOKENIZER: first.kept[TOKENIZER]}, {"text": first.record["text_sha256"]})
    try:
        data = prepare_text(asked_settings(LanguageModelling(), said), reporter, kept)
    except SeqlabError as error:
        raise type(error)(f"{error} (the weights of a mixture are fitted on the text of its runs)") from None
    return loaded, said, replace(data, mixed=members_of(members))


def _loaded(runs: Sequence[str | Path | LMRun], out: str | Path | None, threads: int | None) -> list[LMRun]:
    """Every run that is named; refuses what cannot be mixed."""
    found: list[Path | LMRun] = []
    for run in runs:
        found += [run] if isinstance(run, LMRun) else runs_named(run)
    folders = [run for run in found if not isinstance(run, LMRun)]
    check_mix(folders, out, threads, others=len(found) - len(folders))
    loaded: list[LMRun] = [run if isinstance(run, LMRun) else load(run, "lm") for run in found]
    check_alike([Candidate(str(run.folder), run.settings, run.record) for run in loaded])
    return loaded


def _members(run: LMRun) -> list[Member]:
    """A run is one member; the members of a mixture are mixed anew."""
    if isinstance(run.model, MixtureLM):
        return members_again(run.kept, list(run.model.members))
    identity = run.files.identity or sha256_of_file(run.files.model_file)  # older runs have no identity
    own = {name: content for name, content in run.kept.items() if name != TOKENIZER}
    return [Member(run.name, identity, run.settings, run.model, own)]


def _kept(
    said: dict[str, Any], data: Prepared, out: str | Path | None, threads: int | None, reporter: Reporter
) -> LMRun:
    run: LMRun = train(LanguageModelling(), said, out=out, threads=threads, reporter=reporter, data=data)
    return run


def _unkept(name: str, said: dict[str, Any], data: Prepared, threads: int | None, reporter: Reporter) -> Mixture:
    task = LanguageModelling()
    settings = task.settle(asked_settings(task, said), data)
    model = task.build(settings, data, reporter).eval()
    record = {**data.facts, "checksums": data.checksums, "steps": 0}
    return Mixture(task, RunFolder(name), settings, record, data.files, model, 0, data, threads)
