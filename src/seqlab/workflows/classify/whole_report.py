"""`seqlab classify report`: the page of a run with its error analysis."""

from __future__ import annotations

from pathlib import Path

from seqlab.core.errors import DataError, UsageError
from seqlab.core.reporting import Reporter
from seqlab.core.settings.fields import with_changes, with_flags
from seqlab.data.corpora import CORPORA
from seqlab.runs.run import load
from seqlab.runs.task import Kept
from seqlab.training.determinism import deterministic
from seqlab.workflows.classify.errors import ErrorAnalysis, analyse_errors
from seqlab.workflows.classify.report import measured_again, write_report
from seqlab.workflows.classify.request import check_run
from seqlab.workflows.classify.run import ClassifierRun


def report_classifier(
    folder: str | Path,
    *,
    data: str | Path | None = None,
    threads: int | None = None,
    reporter: Reporter | None = None,
) -> tuple[ClassifierRun, ErrorAnalysis]:
    """Read the data again, examine the errors and write report.html anew; returns the run and what was found.

    `data` says where the data lie now, if they were moved.
    """
    check_run(folder, threads)
    reporter = reporter or Reporter()
    run: ClassifierRun = load(folder, "classify")
    if run.final is None:
        raise UsageError(f"{folder} has not finished; go on with {run.task.way_on(run.folder)}")
    # Given vectors are in the weights by now: their file may be gone.
    settings = with_changes(run.settings, {"model": {"vectors": None}})
    settings = settings if data is None else with_flags(settings, {"data": str(data)})
    place = settings.data.data
    if place != "-" and not Path(place).exists() and place not in CORPORA:
        raise DataError(f"the data of {folder} are no longer at {place}; say where they are with --data")
    with deterministic(threads or run.record["threads"]):
        read = run.task.prepare(settings, reporter, Kept(run.kept, run.record["checksums"], data is not None))
        if read.checksums["data"] != run.record["checksums"]["data"]:
            raise DataError(
                f"the data of {folder} have changed since it was trained (the checksum differs); restore them"
            )
        errors = analyse_errors(run, read, measured_again(run, read, reporter), reporter)
        write_report(run, read, errors)
    return run, errors
