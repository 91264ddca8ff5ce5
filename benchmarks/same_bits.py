"""Did a change of the code change a bit? Digests of weights and figures of two dozen short runs.

    PYTHONPATH=before/src python benchmarks/same_bits.py before.json
    python benchmarks/same_bits.py after.json before.json          # prints what differs; exit 1 if anything does

Every model kind, tokenizer, resume, `--from`, n-gram, bigram, normalisation, the sheet and a duel, on the corpus
`pydoc`, in steps, on one thread. Only names that users script against are used, so that trees of any age can be
compared on one machine.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

import seqlab

TINY: dict[str, Any] = dict(width=24, batch=8, context=16, budget="24steps", eval_every=6, threads=1)
RUNS: dict[str, dict[str, Any]] = {
    "rnn": dict(model="rnn", tokenizer="char"),
    "gru": dict(model="gru", tokenizer="bpe", vocab_size=400),
    "lstm": dict(model="lstm", tokenizer="word", vocab_size=500, dropout=0.2),
    "lstm-tied": dict(model="lstm", tokenizer="char", tied=True, depth=2, dropout=0.1),
    "lstm-accumulate": dict(model="lstm", tokenizer="byte", accumulate=3),
    "lstm-windows": dict(model="lstm", tokenizer="char", carry=False),
    "sgd": dict(model="gru", tokenizer="char", optimiser="sgd", learning_rate=0.5, weight_decay=0.1),
    "normalised": dict(model="gru", tokenizer="char", normalise="lower,digits"),
    "attentive-rnn": dict(model="attentive-rnn", tokenizer="char", score="additive"),
    "transformer": dict(model="transformer", tokenizer="bpe", vocab_size=400, heads=2, depth=2, dropout=0.1),
    "transformer-learned": dict(model="transformer", tokenizer="char", heads=2, depth=1, positions="learned"),
    "transformer-sinusoidal": dict(model="transformer", tokenizer="char", heads=2, depth=1, positions="sinusoidal"),
    "transformer-separable": dict(model="transformer", tokenizer="char", heads=2, depth=1, attention="separable"),
    "transformer-random": dict(model="transformer", tokenizer="char", heads=2, depth=1, attention="random_features"),
    "bigram-full": dict(model="bigram", vocab_size=400),
    "bigram-drawn": dict(model="bigram", vocab_size=400, full_gradient=False),
    "early": dict(model="rnn", tokenizer="char", patience=2, learning_rate=1.0, budget="60steps"),
}
FITTED: dict[str, dict[str, Any]] = {
    "ngram-char": dict(model="ngram", tokenizer="char"),
    "ngram-word": dict(model="ngram", tokenizer="word", vocab_size=500, order=3),
    "ngram-normalised": dict(model="ngram", tokenizer="bpe", vocab_size=400, normalise="lower"),
}
# Times, paths, and what one of two trees may log beside the rest.
TIMES = ("seconds", "crc", "run", "folder", "runs", "headline", "validation_bits_per_byte")


def digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def weights_of(folder: Path) -> str:
    tensors = load_file(folder / "model.safetensors")
    hashed = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name].contiguous()
        hashed.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        hashed.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return hashed.hexdigest()[:16]


def without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: without_times(v) for k, v in value.items() if k not in TIMES}
    return [without_times(v) for v in value] if isinstance(value, list) else value


def facts(folder: Path, run: Any) -> dict[str, str]:
    lines = [without_times(line) for line in run.metrics]
    return {
        "weights": weights_of(folder),
        "figures": digest(lines[-1]),
        "curve": digest(lines[:-1]),
        "samples": hashlib.sha256((folder / "samples.txt").read_bytes()).hexdigest()[:16],
    }


def all_facts(place: Path, text: Path) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, how in (RUNS | FITTED).items():
        given = how | {"threads": 1} if name in FITTED else TINY | how
        run = seqlab.train_lm(text, out=place / name, **given)
        found[name] = facts(place / name, run)
    run = seqlab.train_lm(text, out=place / "gru", resume=True, budget="40steps")
    found["longer"] = facts(place / "gru", run)
    small = {k: v for k, v in TINY.items() if k not in ("width", "context")}
    run = seqlab.train_lm(text, out=place / "from", from_run=place / "rnn", seed=3, **small)
    found["from"] = facts(place / "from", run)
    shown = [run.generate("The", tokens=80, temperature=0.9, top_p=0.9, seed=5) for run in _loaded(place)]
    found["generated"] = {"texts": digest(shown)}
    found["sheet"] = {"json": digest(without_times(_sheet(place, text)))}
    duel = seqlab.compare_lms(
        text, models="lstm,transformer,ngram", match="parameters", seeds=2, out=place / "duel", threads=1, **_duel()
    )
    found["duel"] = {"json": digest(without_times(duel.as_json()))}
    return found


def _loaded(place: Path) -> list[Any]:
    return [seqlab.load(place / name) for name in ("rnn", "lstm", "transformer", "transformer-learned", "ngram-char")]


def _sheet(place: Path, text: Path) -> Any:
    """Through the command line, whose keys are fixed."""
    import contextlib
    import io

    from seqlab.cli import main

    out = io.StringIO()
    here = os.getcwd()
    os.chdir(place)
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
        words = ["lm", "perplexity", "lstm", "transformer", "normalised", "ngram-word", "--on", str(text)]
        assert main([*words, "--json", "--threads", "1"]) == 0
    os.chdir(here)
    return json.loads(out.getvalue())


def _duel() -> dict[str, Any]:
    return dict(budget="12steps", batch=8, tokenizer="char", width=24)


def main_() -> int:
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        os.environ["SEQLAB_CACHE"] = str(place / "cache")
        text = place / "pydoc.txt"
        from seqlab.data.corpora import corpus_path

        text.write_bytes(corpus_path("pydoc").read_bytes()[:150_000])
        found = all_facts(place, text)
    Path(sys.argv[1]).write_text(json.dumps(found, indent=1))
    if len(sys.argv) < 3:
        return 0
    before = json.loads(Path(sys.argv[2]).read_text())
    differing = [
        f"{name}.{key}" for name, row in before.items() for key in row if found.get(name, {}).get(key) != row[key]
    ]
    print("\n".join(differing) or f"the same bits in all {len(before)} rows")
    return int(bool(differing))


if __name__ == "__main__":
    raise SystemExit(main_())
