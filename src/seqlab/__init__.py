"""seqlab: train, measure and explain sequence models on your own text.

run = seqlab.train_lm("my.txt", model="gru", budget="60s", out="runs/mine")
run = seqlab.load("runs/mine")
run.generate("To be", tokens=200)
run.score("any text").nats
seqlab.mix("runs/mine", "runs/counts", out="runs/both").generate("To be")
duel = seqlab.compare_lms("my.txt", models="lstm,transformer", match="parameters", seeds=3)
run = seqlab.train_classifier("reviews.csv", text="review", label="stars", out="runs/reviews")
run.predict(["not half bad"])
run = seqlab.train_translator("pairs.tsv", budget="1h", out="runs/pairs")
run.translate(["a sentence"], to="de")
sheet = seqlab.perplexity_sheet(["runs/mine", "runs/other"], ["new.txt"])
matrix = seqlab.domain_matrix(["novels.txt", "letters.txt"], budget="60s")

seqlab.diagnose_gradients("runs/mine").models[0].verdict
seqlab.gradient_flow(torch.nn.LSTM(8, 8, batch_first=True), torch.randn(4, 100, 8)).verdict
seqlab.estimate_cost(model="transformer", size="medium", context=1024, batch=8).seconds
seqlab.check_claims(seed=1, jobs=2).holds
seqlab.theory.claims()[0].check().figure

A model of your own, or anybody's, in three lines (module(ids) gives logits):

scorer = seqlab.scorer(module, tokenizer, context=256)
surprisals = scorer.score(text)
seqlab.figures(surprisals, text).bits_per_byte

What happens inside a model, under stable names:

with seqlab.taps(model, "*.weights") as seen:
    model(ids)
seen["blocks.0.attention.weights"]
"""

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from seqlab import theory as theory
    from seqlab.core.taps import tap_names as tap_names
    from seqlab.core.taps import taps as taps
    from seqlab.diagnostics.cost import cost as cost
    from seqlab.diagnostics.gradient_flow import gradient_flow as gradient_flow
    from seqlab.evaluation.outsiders import ModuleScorer
    from seqlab.evaluation.perplexity import figures_of
    from seqlab.runs.run import load as load
    from seqlab.workflows.claims.check import check_claims as check_claims
    from seqlab.workflows.classify.train import train_classifier as train_classifier
    from seqlab.workflows.cost.crossover import measure_crossover as measure_crossover
    from seqlab.workflows.cost.estimate import estimate_cost as estimate_cost
    from seqlab.workflows.cost.scaling import measure_scaling as measure_scaling
    from seqlab.workflows.diagnose.approximation import diagnose_approximation as diagnose_approximation
    from seqlab.workflows.diagnose.attention import diagnose_attention as diagnose_attention
    from seqlab.workflows.diagnose.experiments import diagnose_experiments as diagnose_experiments
    from seqlab.workflows.diagnose.experiments import diagnose_optimisers as diagnose_optimisers
    from seqlab.workflows.diagnose.experiments import run_experiment as run_experiment
    from seqlab.workflows.diagnose.gradients import diagnose_gradients as diagnose_gradients
    from seqlab.workflows.diagnose.memory import diagnose_memory as diagnose_memory
    from seqlab.workflows.duel.classify import compare_classifiers as compare_classifiers
    from seqlab.workflows.duel.lm import compare_lms as compare_lms
    from seqlab.workflows.duel.optimisers import compare_optimisers as compare_optimisers
    from seqlab.workflows.duel.translate import compare_translators as compare_translators
    from seqlab.workflows.lm.mix import mix as mix
    from seqlab.workflows.lm.train import train_lm as train_lm
    from seqlab.workflows.sheet.matrix import domain_matrix as domain_matrix
    from seqlab.workflows.sheet.sheet import perplexity_sheet as perplexity_sheet
    from seqlab.workflows.translate.train import train_translator as train_translator

    scorer, figures = ModuleScorer, figures_of

__version__ = "0.1.0"

# Waiting OpenMP threads spin; when another program wants the core, that makes training several times slower
# (docs/log.md). A short spin costs nothing on a quiet machine. It counts only if torch is not loaded yet.
os.environ.setdefault("GOMP_SPINCOUNT", "1000")

_PUBLIC = {
    "train_lm": "seqlab.workflows.lm.train:train_lm",
    "mix": "seqlab.workflows.lm.mix:mix",
    "train_classifier": "seqlab.workflows.classify.train:train_classifier",
    "train_translator": "seqlab.workflows.translate.train:train_translator",
    "compare_classifiers": "seqlab.workflows.duel.classify:compare_classifiers",
    "compare_translators": "seqlab.workflows.duel.translate:compare_translators",
    "compare_lms": "seqlab.workflows.duel.lm:compare_lms",
    "perplexity_sheet": "seqlab.workflows.sheet.sheet:perplexity_sheet",
    "domain_matrix": "seqlab.workflows.sheet.matrix:domain_matrix",
    "compare_optimisers": "seqlab.workflows.duel.optimisers:compare_optimisers",
    "cost": "seqlab.diagnostics.cost:cost",
    "estimate_cost": "seqlab.workflows.cost.estimate:estimate_cost",
    "measure_scaling": "seqlab.workflows.cost.scaling:measure_scaling",
    "measure_crossover": "seqlab.workflows.cost.crossover:measure_crossover",
    "gradient_flow": "seqlab.diagnostics.gradient_flow:gradient_flow",
    "diagnose_memory": "seqlab.workflows.diagnose.memory:diagnose_memory",
    "diagnose_approximation": "seqlab.workflows.diagnose.approximation:diagnose_approximation",
    "diagnose_attention": "seqlab.workflows.diagnose.attention:diagnose_attention",
    "diagnose_experiments": "seqlab.workflows.diagnose.experiments:diagnose_experiments",
    "run_experiment": "seqlab.workflows.diagnose.experiments:run_experiment",
    "diagnose_optimisers": "seqlab.workflows.diagnose.experiments:diagnose_optimisers",
    "diagnose_gradients": "seqlab.workflows.diagnose.gradients:diagnose_gradients",
    "check_claims": "seqlab.workflows.claims.check:check_claims",
    "theory": "seqlab.theory",
    "load": "seqlab.runs.run:load",
    "scorer": "seqlab.evaluation.outsiders:ModuleScorer",
    "figures": "seqlab.evaluation.perplexity:figures_of",
    "taps": "seqlab.core.taps:taps",
    "tap_names": "seqlab.core.taps:tap_names",
}


def __dir__() -> list[str]:
    return ["__version__", *_PUBLIC]


def __getattr__(name: str) -> Any:
    # torch is loaded by the first call that needs it, not by `import seqlab`.
    if name in _PUBLIC:
        module, _, attribute = _PUBLIC[name].partition(":")
        found = import_module(module)
        return getattr(found, attribute) if attribute else found
    raise AttributeError(f"module 'seqlab' has no attribute '{name}'")
