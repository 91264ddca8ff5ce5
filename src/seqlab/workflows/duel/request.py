"""What can be refused of a duel before torch is loaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from seqlab.core.errors import UsageError
from seqlab.core.settings.classify import CLASSIFY_RULES, ClassifierDuelSettings
from seqlab.core.settings.duel import LM_RULES, OPTIMISER_RULES, DuelSettings, Rules, check_duel
from seqlab.core.settings.fields import check_threads, with_flags
from seqlab.core.settings.translate import TRANSLATE_RULES, TranslateSettings, TranslatorDuelSettings
from seqlab.data.folders import check_glob
from seqlab.data.sources import check_encoding, check_source
from seqlab.runs.folder import holds_nothing
from seqlab.workflows.classify.request import check_data
from seqlab.workflows.translate.request import check_places


def check_compare(text: str, asked: dict[str, Any], said: dict[str, Any], out: str | None, threads: int | None) -> None:
    """Refuse, in one line, what `compare_lms` could never do."""
    _check_on_text(text, asked, said, out, threads, LM_RULES)


def check_compare_optimisers(
    text: str, asked: dict[str, Any], said: dict[str, Any], out: str | None, threads: int | None
) -> None:
    """Refuse, in one line, what `compare_optimisers` could never do."""
    _check_on_text(text, asked, said, out, threads, OPTIMISER_RULES)


def _check_on_text(
    text: str, asked: dict[str, Any], said: dict[str, Any], out: str | None, threads: int | None, rules: Rules
) -> None:
    check_threads(threads)
    check_duel(DuelSettings(**asked), said, rules)
    check_encoding(said.get("encoding", "utf-8"))
    check_glob(said.get("glob", ""))
    check_source(text, said.get("glob", ""))
    check_out(out)


def check_compare_classifiers(
    data: str, asked: dict[str, Any], said: dict[str, Any], out: str | None, threads: int | None
) -> None:
    """Refuse, in one line, what `compare_classifiers` could never do."""
    check_threads(threads)
    check_duel(ClassifierDuelSettings(**asked), said, CLASSIFY_RULES)
    check_encoding(said.get("encoding", "utf-8"))
    check_data(data)
    check_out(out)


def check_compare_translators(
    data: str, asked: dict[str, Any], said: dict[str, Any], out: str | None, threads: int | None
) -> None:
    """Refuse, in one line, what `compare_translators` could never do."""
    check_threads(threads)
    check_duel(TranslatorDuelSettings(**asked), said, TRANSLATE_RULES)
    check_encoding(said.get("encoding", "utf-8"))
    check_places(with_flags(TranslateSettings(), {**said, "data": data}).data)
    check_out(out)


def check_out(out: str | None) -> None:
    """Refuse a folder that holds something else than a duel."""
    if out is None or not Path(out).exists() or (Path(out) / "duel.json").exists():
        return
    place = Path(out)
    if not place.is_dir() or not holds_nothing(place):
        raise UsageError(f"{place} exists already and holds no duel; choose another --out")
