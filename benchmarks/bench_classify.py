"""Text classification: accuracy and CPU seconds against fastText and scikit-learn's linear models.

python benchmarks/bench_classify.py [choice] [average] [plain] [tomatoes] [recurrent]

Everything is measured on texts that were held out by a seeded split with duplicates on one side. CPU seconds are those
of the whole process, all threads.
"""

import dataclasses
import re
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqlab.core.reporting import Reporter
from seqlab.core.seeding import initialising, seed_dropout
from seqlab.core.settings.classify import ClassifySettings, fill_classify
from seqlab.core.settings.fields import with_flags
from seqlab.core.units import parse_budget
from seqlab.data.duplicates import clusters_of, duplicate_sets
from seqlab.data.labelled import Labelled, read_labelled
from seqlab.data.splitting import Split, split_rows
from seqlab.evaluation.decisions import logits_of
from seqlab.evaluation.paired import mcnemar
from seqlab.evaluation.text_baselines import fit_baselines
from seqlab.training.loop import Position, training_step
from seqlab.training.optim import optimiser_for
from seqlab.training.plan import count_steps, make_plan
from seqlab.workflows.classify import data as reading
from seqlab.workflows.classify.data import Prepared, prepared_for, read_texts
from seqlab.workflows.classify.task import Classifying
from seqlab.workflows.classify.train import train_classifier
from timing import two_threads, verdict

SEEDS = (0, 1, 2)
FOLD_SEEDS = (7, 8, 9)
SILENT = Reporter()
TASK = Classifying()
Rows = NDArray[np.int64]


def settings_of(corpus: str, **flags: Any) -> ClassifySettings:
    return fill_classify(with_flags(ClassifySettings(), {"data": corpus, **flags}))


def told(what: str, value: float, target: float, *, at_least: bool) -> None:
    reached = value >= target if at_least else value <= target
    sign = "≥" if at_least else "≤"
    print(f"  {what}: {value:,.4g} (target {sign} {target:g}): {verdict(reached)}", flush=True)


def accuracy(model: Any, data: Prepared, rows: Rows) -> float:
    return float((logits_of(model, data.inputs, rows).argmax(1) == data.truth[rows]).mean())


def fitted(settings: ClassifySettings, data: Prepared) -> Any:
    """The model after its budget of steps; no validation, no folder."""
    seed = settings.training.seed
    seed_dropout(seed)
    with initialising(seed):
        model = TASK.build(settings, data, SILENT)
    learning = TASK.learning(settings, data, model)
    steps = count_steps(parse_budget(settings.training.budget), learning.batches, lambda: (0.0, 0.0), 1).steps
    plan = make_plan(dataclasses.replace(settings.training, eval_every=steps), steps)
    optimiser, position = optimiser_for(model, settings.training), Position()
    model.train()
    for step in range(steps):
        batch = learning.batches(step)
        training_step(model, learning.objective, optimiser, batch, plan, position, plan.schedule(step))
    return model.eval()


# --------------------------------------------------------------------------- the default on imdb


class Phases(Reporter):
    """CPU seconds at which the training loop ended; what follows measures, draws and fits the baselines."""

    end = 0.0

    def start(self, task: str, total: float | None) -> None:
        self.task_name = task

    def finish(self) -> None:
        if self.task_name == "training":
            self.end = time.process_time()


def spaced(text: str) -> str:
    """As fastText's own examples prepare reviews: small letters, signs apart, one line."""
    return " ".join(re.sub(r"([^\w\s'])", r" \1 ", text.lower()).split())


def fasttext_run(source: Labelled, train: Rows, test: Rows, epochs: int) -> tuple[float, float]:
    """Accuracy, and CPU seconds of its training alone (writing its file is not counted)."""
    import fasttext

    with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8") as file:
        file.writelines(f"__label__{source.labels[row]} {spaced(source.texts[row])}\n" for row in train)
        file.flush()
        begun = time.process_time()
        model = fasttext.train_supervised(file.name, wordNgrams=2, epoch=epochs, lr=0.5, thread=2, verbose=0)
        seconds = time.process_time() - begun
    found = [answer[0][1] for answer in (model.f.predict(spaced(source.texts[row]) + "\n", 1, 0.0, "") for row in test)]
    right = [f"__label__{source.labels[row]}" == label for row, label in zip(test, found, strict=True)]
    return float(np.mean(right)), seconds


def default_on_imdb() -> None:
    source = read_labelled("imdb")
    print(f"imdb, {len(source.texts):,} reviews, 72 % training, 8 % validation, 20 % test (fastText: 80 % training)")
    reading.read_labelled = lambda *_, **__: source  # type: ignore[assignment]  # from raw strings, not from a file
    accuracies, seconds, speeds = [], [], []
    for seed in SEEDS:
        phases = Phases()
        with tempfile.TemporaryDirectory() as folder:
            begun = time.process_time()
            run = train_classifier("imdb", out=Path(folder) / "run", seed=seed, reporter=phases, threads=2)
            seconds.append(phases.end - begun)
            final = run.final
            accuracies.append(final["test"]["accuracy"])
            if seed == SEEDS[0]:
                for row in final["baselines"]:
                    print(f"  {row['name']}: {row['accuracy']:.4f}")
            texts = [source.texts[row] for row in split_of(source).test]
            run.predict(texts[:10])
            begun = time.process_time()
            run.predict(texts)
            speeds.append(len(texts) / (time.process_time() - begun))
    split = split_of(source)
    outside = np.random.default_rng(0).permutation(np.concatenate([split.train, split.validation]))  # it reads in order
    peers = [fasttext_run(source, outside, split.test, epochs) for epochs in (5, 5, 5, 25)]
    print(f"  fastText bigrams, 5 epochs: {[f'{a:.4f}' for a, _ in peers[:3]]}, 25 epochs: {peers[3][0]:.4f}")
    print(f"  average, seeds {SEEDS}: {[f'{a:.4f}' for a in accuracies]}")
    told("test accuracy, mean of three seeds", float(np.mean(accuracies)), 0.920, at_least=True)
    ratio = float(np.median(seconds)) / float(np.median([s for _, s in peers[:3]]))
    print(f"  CPU s: average {[f'{s:.1f}' for s in seconds]}, fastText {[f'{s:.1f}' for _, s in peers[:3]]}")
    told("training CPU seconds over fastText's (5 epochs)", ratio, 1.0, at_least=False)
    told("predicted reviews per CPU second", float(np.median(speeds)), 5000, at_least=True)


def split_of(source: Labelled) -> Split:
    return split_rows(source.texts, source.labels, None, (0.72, 0.08, 0.2), 0)


# --------------------------------------------------------------------------- how its settings were chosen


def choice_inside_the_training_part() -> None:
    """Five folds inside the 80 % that the default is not tested on."""
    print("imdb, five folds inside the 80 %: accuracy of average")
    settings = settings_of("imdb")
    texts = read_texts(settings, SILENT)
    inside = np.concatenate([texts.split.train, texts.split.validation])
    fold = np.random.default_rng(11).permutation(int(texts.split.clusters.max()) + 1)[texts.split.clusters[inside]] % 5
    parts = []
    for k in range(5):
        train, held_out = np.sort(inside[fold != k]), np.sort(inside[fold == k])
        split = dataclasses.replace(texts.split, train=train, validation=held_out, test=held_out)
        parts.append(prepared_for(settings.model, dataclasses.replace(texts, split=split), SILENT))
    for flags in [
        *({"alpha": alpha} for alpha in (1.0, 2.0, 4.0, 6.0, 8.0, 16.0)),
        {"learning_rate": 0.05},
        {"batch": 128},
    ]:
        tried = settings_of("imdb", **flags)
        found = [accuracy(fitted(tried, data), data, data.split.validation) for data in parts]
        print(f"  {flags}: {np.mean(found):.4f}", flush=True)


# --------------------------------------------------------------------------- without naive Bayes


def plain_on_imdb() -> None:
    print("imdb, the plain averaging network without naive Bayes, mean of three seeds")
    for order, target in ((1, 0.885), (2, 0.908)):
        settings = settings_of("imdb", bayes=False, ngrams=order)
        data = prepared_for(settings.model, read_texts(settings, SILENT), SILENT)
        found = []
        for seed in SEEDS:
            one = dataclasses.replace(settings, training=dataclasses.replace(settings.training, seed=seed))
            found.append(accuracy(fitted(one, data), data, data.split.test))
        print(f"  n-grams up to {order}: {[f'{a:.4f}' for a in found]}")
        told(f"plain, n-grams up to {order}", float(np.mean(found)), target, at_least=True)


# --------------------------------------------------------------------------- short sentences


def folds_of(texts: tuple[str, ...], folds: int, seed: int) -> list[Rows]:
    """Rows in folds of equal size; those with the same text in one."""
    clusters = clusters_of(duplicate_sets(texts), None)
    order = np.random.default_rng(seed).permutation(int(clusters.max()) + 1)
    fold = np.empty(len(order), np.int64)
    fold[order] = np.arange(len(order)) * folds // len(order)
    return [np.flatnonzero(fold[clusters] == k) for k in range(folds)]


def ten_folds_of_tomatoes() -> None:
    """Several ways to draw the folds: one alone may be lucky."""
    found = [folds_with_glove(seed) for seed in FOLD_SEEDS]
    told("average with GloVe, mean over the ways to draw the folds", float(np.mean(found)), 0.788, at_least=True)


def folds_with_glove(seed: int) -> float:
    print(f"rotten-tomatoes, 10 folds drawn by seed {seed}, GloVe vectors")
    settings = settings_of("rotten-tomatoes", vectors="glove-6b-50d")
    texts = read_texts(settings, SILENT)
    everything = np.arange(len(texts.truth))
    ours, linear = np.zeros(len(everything), bool), {}
    for held_out in folds_of(texts.source.texts, 10, seed):
        rest = np.setdiff1d(everything, held_out)
        split = dataclasses.replace(texts.split, train=rest, validation=held_out[:1], test=held_out)
        data = prepared_for(settings.model, dataclasses.replace(texts, split=split), SILENT)
        ours[held_out] = logits_of(fitted(settings, data), data.inputs, held_out).argmax(1) == data.truth[held_out]
        for row in fit_baselines(data.bags, data.bits, data.truth, 2, rest, held_out):
            linear.setdefault(row.name, np.zeros(len(everything), bool))[held_out] = row.decided == data.truth[held_out]
    for name, right in linear.items():
        paired = mcnemar(ours, right)
        lead = f"{paired.difference:+.4f} [{paired.low:+.4f}, {paired.high:+.4f}]"
        print(f"  {name}: {right.mean():.4f}; average − it: {lead}")
    told("average with GloVe, 10 folds", float(ours.mean()), 0.788, at_least=True)
    paired = mcnemar(ours, linear["naive-Bayes-weighted linear model"])
    told("lower end of its lead over naive-Bayes weights", paired.low, 0.0, at_least=True)
    return float(ours.mean())


# --------------------------------------------------------------------------- recurrent networks


def recurrent_on_imdb() -> None:
    print("imdb, five minutes of training each")
    for kind in ("gru", "lstm", "transformer"):
        with tempfile.TemporaryDirectory() as folder:
            run = train_classifier("imdb", model=kind, budget="5m", out=Path(folder) / "run", threads=2)
            final = run.final
            print(
                f"  {kind}: test accuracy {final['test']['accuracy']:.4f} {np.round(final['test']['interval'], 4)}, "
                f"{final['step']:,} steps, {final['seconds']:.0f} s"
            )


PARTS = {
    "choice": choice_inside_the_training_part,
    "average": default_on_imdb,
    "plain": plain_on_imdb,
    "tomatoes": ten_folds_of_tomatoes,
    "recurrent": recurrent_on_imdb,
}

if __name__ == "__main__":
    two_threads()
    for name in sys.argv[1:] or PARTS:
        PARTS[name]()
