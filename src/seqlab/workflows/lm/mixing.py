"""The weights of a mixture, fitted on the validation text, and figures that do not count what they were fitted on.

The test text is scored with weights from the whole validation text. Each half of the validation text is scored with
weights from the other half, so that this figure is honest too, and is all there is where there is no test text: the
last tenth of the training text would not do, since the runs have learnt it (an n-gram finds every line of it).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from seqlab.core.errors import UsageError
from seqlab.core.reporting import Reporter
from seqlab.core.settings.fields import filled
from seqlab.core.units import human_count
from seqlab.evaluation.mixed import Readings, policies_of, read_members
from seqlab.models.gate import fit_gate
from seqlab.models.mixture import MixtureLM
from seqlab.runs.run import Run
from seqlab.workflows.lm.measure import HELD_OUT, PartScore, final_figures, held_out, score_of
from seqlab.workflows.lm.members import FIT_TOKENS

if TYPE_CHECKING:
    from seqlab.workflows.lm.data import Prepared


def fitted_mixture(data: Prepared, reporter: Reporter) -> MixtureLM:
    """The mixture of finished runs with the weights that suit the validation text."""
    members = filled(data.mixed)
    if not members.models:
        raise UsageError("the weights of this mixture are lost; mix its runs again with 'seqlab lm mix'")
    model = MixtureLM(members.models).eval()
    if members.fit is None:
        known = _readings(model, data, "validation", reporter).first(FIT_TOKENS)
        with reporter.task("fitting the weights", None):
            members.fit = fit_gate(known.log_p, known.features)
    model.gate = members.fit.gate
    return model


def _readings(model: MixtureLM, data: Prepared, name: str, reporter: Reporter) -> Readings:
    """What the members make of the validation or test text; kept, since fitting and measuring both need it."""
    known = filled(data.mixed).readings
    if name not in known:
        held = held_out(data, name)
        with reporter.task(f"reading the {name} text", 1.0):
            known[name] = read_members(
                model, held.ids, data.tokenizer.begin_id, impossible=held.impossible, progress=reporter.advance
            )
    return known[name]


# --------------------------------------------------------------------------- figures


def measure_mixture(run: Run, data: Prepared, reporter: Reporter) -> dict[str, Any]:
    """As `measure_run`, with the figures of the members beside."""
    model: MixtureLM = run.model
    names = [name for name in HELD_OUT if data.parts[name].facts.tokens]
    read = {name: _readings(model, data, name, reporter) for name in names}
    scored = {
        name: score_of(some.nats(_log_weights(model, some, name, data)), data, name) for name, some in read.items()
    }
    run.measured.update(scored)
    alone = [
        {name: score_of(read[name].nats_alone(k), data, name) for name in names} for k in range(len(model.members))
    ]
    mixture = run.record["mixture"]
    members = [member | _figures(scores) for member, scores in zip(mixture["members"], alone, strict=True)]
    return {
        "context": str(policies_of(model, filled(data.mixed).names)),
        "tokens": mixture["tokens"],
        **final_figures(scored, run, data, reporter),
        "mixture": mixture | {"members": members, "sentence": sentence(mixture, measured=True)},
    }


def _figures(scored: dict[str, PartScore]) -> dict[str, Any]:
    return {name: scored[name].figures.as_json() if name in scored else None for name in HELD_OUT}


def _log_weights(model: MixtureLM, readings: Readings, name: str, data: Prepared) -> Tensor:
    """ln w at every token; on the validation text by weights that were not fitted to it."""
    final = model.gate.log_weights(readings.features)
    if name != "validation":
        return final
    known = readings.first(FIT_TOKENS)
    fit = filled(data.mixed).fit or fit_gate(known.log_p, known.features)
    return torch.cat([fit.unseen_log_weights(known.features), final[FIT_TOKENS:]])


def sentence(mixture: dict[str, Any], *, measured: bool = False) -> str:
    """What the weights are and where they come from."""
    how = "weights by context" if mixture["per_context"] else "the same weights everywhere"
    means = ", ".join(f"{member['name']} {member['weight']:.2f}" for member in mixture["members"])
    mean = "on average " if mixture["per_context"] else ""
    found = f"{how} ({mean}{means}), fitted on {human_count(mixture['tokens'])} tokens of the validation text"
    both = "; in the validation figure each half is scored with weights from the other half"
    return found + (both if measured else "")
