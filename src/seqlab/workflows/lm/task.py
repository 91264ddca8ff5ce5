"""Language modelling as a task: which batches, which objective, which figures."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from torch import Tensor, nn

from seqlab.core.errors import UsageError
from seqlab.core.machine import multiplies_bfloat16
from seqlab.core.memory import available_bytes
from seqlab.core.registry import FITTED_MODELS, MIXTURE, look_up
from seqlab.core.reporting import Reporter
from seqlab.core.settings.fields import filled, with_changes
from seqlab.core.settings.lm import (
    FULL_GRADIENT_VOCABULARY,
    DataSettings,
    LMSettings,
    LMTrainingSettings,
    check_said,
    fill_lm,
    model_fields,
    precision_for,
    refuse_other_model,
    with_tokenizer,
)
from seqlab.core.traits import traits_of
from seqlab.core.units import human_count, number_of
from seqlab.data.batching import FEW_TOKENS, PairBatches, StreamBatches, WindowBatches
from seqlab.data.sources import full_place, stem_of
from seqlab.data.tokenizers import read_tokenizer
from seqlab.models.build import MODEL_SIZES, build_lm_from_settings, known_sizes, refuse_unknown_sizes
from seqlab.models.guided import Guide
from seqlab.runs.run import Run
from seqlab.runs.session import Session
from seqlab.runs.task import PICTURES, Kept, Task
from seqlab.training.objectives import NextToken, Score, counted_pairs
from seqlab.training.plan import Learning
from seqlab.workflows.lm.data import TOKENIZER, Prepared, prepare_text
from seqlab.workflows.lm.guide import guide_from
from seqlab.workflows.lm.measure import measure_run, quick_validation, read_part
from seqlab.workflows.lm.members import restored
from seqlab.workflows.lm.mixing import fitted_mixture, measure_mixture, sentence
from seqlab.workflows.lm.report import write_report
from seqlab.workflows.lm.vectors import start_from_vectors
from seqlab.workflows.lm.watching import watched_gradients

if TYPE_CHECKING:
    from seqlab.workflows.lm.run import LMRun

MUCH_MEMORY = 0.5  # of what is free
MUCH_SHARED = 0.05  # of the held-out text: from here on the figures flatter


class LanguageModelling(Task):
    kind: ClassVar[str] = "lm"
    unit: ClassVar[str] = "nats_per_token"
    counted: ClassVar[str] = "tokens"
    settings_type: ClassVar[type] = LMSettings
    may_move: ClassVar[tuple[str, ...]] = ("text",)

    # ---- settings

    def fill(self, settings: LMSettings) -> LMSettings:
        return settings if settings.model.kind == MIXTURE else fill_lm(settings)

    def check(self, settings: LMSettings, said: Mapping[str, Any]) -> None:
        if not settings.data.text:
            raise UsageError("no text is named; for example: seqlab lm train my.txt")
        check_said(settings, said)
        kind = settings.model.kind
        if model_fields(kind) is None and kind != MIXTURE:  # one of somebody's own, which its constructor describes
            refuse_unknown_sizes(kind, said.keys() & set(MODEL_SIZES), known_sizes(kind))

    def name(self, settings: LMSettings) -> str:
        return f"{stem_of(settings.data.text)}-{settings.model.kind}"

    def summary(self, settings: LMSettings, data: Prepared) -> dict[str, str]:
        kinds = [settings.model.kind] if data.mixed is None else data.mixed.kinds
        return {"model": " + ".join(kinds), "data": data.text.name}

    def way_on(self, folder: Path) -> str:
        return f"'seqlab lm train --out {folder} --resume'"

    def inherit(self, parent: Run, said: Mapping[str, Any]) -> LMSettings:
        """Model, tokenizer and normalisation are the parent's; only what they do not fix may be said."""
        have: LMSettings = parent.settings
        windowed = traits_of(parent.model).window is not None
        refuse_other_model(have, said, parent.folder, windowed=windowed)
        data = DataSettings(normalise=have.data.normalise)
        return LMSettings(data, have.tokenizer, have.model, LMTrainingSettings(context=have.training.context))

    # ---- data and model

    def prepare(self, settings: LMSettings, reporter: Reporter, kept: Kept | None = None) -> Prepared:
        return prepare_text(settings, reporter, kept)

    def settle(self, settings: LMSettings, data: Prepared) -> LMSettings:
        settings = with_tokenizer(settings, data.tokenizer.kind)
        changes: dict[str, dict[str, Any]] = {"data": {"text": full_place(settings.data.text)}}
        source = settings.model.vectors
        if data.vectors is not None and source is not None:
            changes["model"] = {"vectors": full_place(source), "vector_width": data.vectors.matrix.shape[1]}
        changes["training"] = {"precision": precision_for(settings, multiplies_bfloat16())}
        if settings.model.kind == "bigram" and settings.training.full_gradient is None:
            few = data.tokenizer.vocab_size <= FULL_GRADIENT_VOCABULARY
            changes["training"] |= {"full_gradient": few}
        return with_changes(settings, changes)

    def build(self, settings: LMSettings, data: Prepared, reporter: Reporter) -> Any:
        vocab_size = data.tokenizer.vocab_size
        if settings.model.kind == MIXTURE:
            return fitted_mixture(data, reporter)
        if settings.model.kind in FITTED_MODELS:
            with reporter.task("counting", None):
                fit = look_up(FITTED_MODELS, settings.model.kind, "model").fit
                return fit(data.parts["train"].ids, vocab_size, filled(settings.model.order))
        guide = Guide(filled(data.folded).model) if settings.model.guide == "ngram" else None
        model = build_lm_from_settings(settings, vocab_size, guide)
        if data.vectors is not None and settings.model.vectors is not None:
            start_from_vectors(model, data.vectors)
        return model

    def outline(self, settings: LMSettings, files: Mapping[str, bytes]) -> nn.Module:
        vocab_size = _tokenizer(files).vocab_size
        model: nn.Module = build_lm_from_settings(settings, vocab_size, guide_from(settings, files, vocab_size))
        return model

    def restore(
        self, settings: LMSettings, files: Mapping[str, bytes], weights: dict[str, Tensor], source: str
    ) -> nn.Module:
        if settings.model.kind == MIXTURE:
            return restored(self.restore, files, weights, source)
        if settings.model.kind not in FITTED_MODELS:
            return super().restore(settings, files, weights, source)
        made = look_up(FITTED_MODELS, settings.model.kind, "model").from_tensors
        model: nn.Module = made(_tokenizer(files).vocab_size, filled(settings.model.order), weights, source)
        return model

    def weights(self, model: Any) -> dict[str, Tensor]:
        found: dict[str, Tensor] = model.tensors() if _is_fitted(model) else super().weights(model)
        return found

    def parameters(self, model: Any) -> int:
        """Numbers that were learnt; of an n-gram, one count for each."""
        count: int = model.learnt if _is_fitted(model) else super().parameters(model)
        return count

    # ---- training and measuring

    def smaller(self, settings: LMSettings) -> tuple[str, ...]:
        learnt = settings.tokenizer.kind not in ("byte", "char")  # their vocabulary is no choice
        return ("size", "width", "vocab_size") if learnt else ("size", "width")

    def look_every(self, settings: LMSettings) -> int:
        return settings.training.watch_gradients

    def look(self, model: nn.Module, data: Prepared) -> dict[str, Any]:
        return {"gradients": watched_gradients(model, data.parts["validation"].ids, data.tokenizer.begin_id)}

    def learning(self, settings: LMSettings, data: Prepared, model: Any) -> Learning | None:
        training, traits = settings.training, traits_of(model)
        ids, begin_id = data.parts["train"].ids, data.tokenizer.begin_id
        if _is_fitted(model):
            return None
        if traits.learns_from == "pairs":
            size = None if training.full_gradient else filled(training.batch) * filled(training.context)
            pairs = PairBatches(ids, begin_id, model.vocab_size, size, training.seed)
            return Learning(pairs, counted_pairs, {"batch": pairs.batch})
        carry = bool(training.carry) and traits.carries_state
        make = StreamBatches if carry else WindowBatches
        guide = filled(data.folded).expected if settings.model.guide == "ngram" else None
        rows = make(ids, begin_id, filled(training.batch), filled(training.context), training.seed, guide)
        return Learning(
            rows, NextToken(carry, training.precision or "float32"), {"batch": rows.batch}, data.seconds_to_count
        )

    def validate(self, model: Any, data: Prepared) -> Score:
        return quick_validation(model, data)

    def read_held_out(self, model: Any, data: Prepared) -> None:
        read_part(model, data)

    def later_bytes(self, data: Prepared) -> int:
        """What could be left out never keeps a training from fitting."""
        simple: int = data.baseline_bytes
        return max(PICTURES, simple) if simple < MUCH_MEMORY * (available_bytes() or math.inf) else PICTURES

    def measure(self, run: Run, data: Prepared, reporter: Reporter) -> dict[str, Any]:
        measured = measure_run if data.mixed is None else measure_mixture
        return measured(run, data, reporter)

    def report(self, run: Run, data: Prepared) -> None:
        write_report(run, data.overlap, data.text)

    def describe(self, session: Session) -> None:
        data, settings, note = session.data, session.settings, session.reporter.note
        model, learning = settings.model, session.learning
        if data.mixed is not None:
            note(f"{data.text.name}: {sentence(session.record['mixture'])}")
            return
        if learning is None:
            note(
                f"{data.text.name}: {human_count(data.parts['train'].facts.tokens)} {settings.tokenizer.kind} tokens, "
                f"{human_count(session.record['parameters'])} n-grams up to order {model.order}"
            )
            return
        counts = " / ".join(f"{human_count(p.facts.tokens)}" for p in data.parts.values())
        note(
            f"{data.text.name}: {data.text.bytes:,} bytes, {settings.tokenizer.kind} tokens "
            f"{counts} (train / validation / test), vocabulary {data.tokenizer.vocab_size:,}"
        )
        if data.parts["train"].facts.tokens < FEW_TOKENS:
            learnt = number_of(data.parts["train"].facts.tokens, "token")
            session.reporter.warn(f"{learnt} to learn from: so few teach next to nothing; give more text")
        (session.reporter.warn if data.overlap.fraction > MUCH_SHARED else note)(data.overlap.sentence())
        depth = f", depth {model.depth}" if model.depth else ""
        note(
            f"{model.kind} {model.size}: width {model.width}{depth}, "
            f"{human_count(session.record['parameters'])} parameters; {number_of(session.record['steps'], 'step')} of "
            f"{number_of(learning.batches.count_per_step, 'token')}; {number_of(session.record['threads'], 'thread')}, "
            f"seed {settings.training.seed}"
        )

    def shown(self, data: Prepared, loss: float, speed: float) -> dict[str, str]:
        facts = data.parts["train"].facts
        bits = loss * facts.tokens / facts.characters / math.log(2)
        words = {"loss": f"loss {loss:.3f}", "bits": f"{bits:.3f} bits/char"}
        return words | {"speed": f"{human_count(speed)} tok/s"}

    @property
    def run_type(self) -> type[LMRun]:
        from seqlab.workflows.lm.run import LMRun

        return LMRun

    def trial(self, folder: Path) -> dict[str, Any]:
        text = folder / "trial.txt"
        lines = [f"{k * k % 97} is the square of {k} up to ninety-seven.\n" for k in range(300)]
        text.write_text("".join(lines), encoding="utf-8", newline="")
        sizes = dict(model="gru", tokenizer="char", width=16, depth=1, batch=4, context=8, dropout=0.2)
        return sizes | {"text": str(text), "budget": "12steps", "eval_every": 4}


def _is_fitted(model: Any) -> bool:
    return traits_of(model).learns_from in ("counts", "runs")


def _tokenizer(files: Mapping[str, bytes]) -> Any:
    return read_tokenizer(files[TOKENIZER], TOKENIZER)
