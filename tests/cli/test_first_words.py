"""The first line comes before anything heavy is loaded, and torch's compiler is never loaded."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from seqlab.core import eager
from seqlab.core.eager import never_compiled, without_numbers
from seqlab.models import build_lm

SCRIPT = """
import sys
from seqlab.cli import main

heard = []
class Watching:
    def write(self, text):
        if text.strip() and not heard:
            heard.append((text, "torch" in sys.modules))
        return len(text)
    def flush(self): pass
    def isatty(self): return False

sys.stderr = Watching()
code = main(sys.argv[1:])
sys.stderr = sys.__stderr__
assert code == 0, code
text, loaded = heard[0]
assert not loaded and "loading torch" in text, heard
compilers = sorted(name for name in sys.modules if name.startswith(("torch._dynamo", "torch._inductor")))
sys.exit(f"loaded: {compilers[:5]}" if compilers else 0)
"""
SIZES = "--width 16 --depth 1 --batch 4 --context 8 --budget 4steps --eval-every 2 --threads 1 --accumulate 2 --ema 0.9"


@pytest.mark.parametrize("more", ["--model transformer --heads 2 --optimiser muon", "--model lstm --watch-gradients 2"])
def test_a_training_begins_to_speak_at_once_and_loads_no_compiler(small_text: Path, tmp_path: Path, more: str) -> None:
    words = ["lm", "train", str(small_text), "--out", str(tmp_path / "run"), *SIZES.split(), *more.split()]
    answer = subprocess.run([sys.executable, "-c", SCRIPT, *words], capture_output=True, text=True)
    assert answer.returncode == 0, answer.stderr


def test_what_torch_marks_is_called_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eager, "compiler_is_loaded", lambda: False)

    def plain(x: int) -> int:
        return x + 1

    marked = torch._disable_dynamo(plain)
    never_compiled(marked)
    assert getattr(plain, eager.MARK) is plain
    assert marked(1) == 2
    never_compiled(plain)  # not marked by torch: left alone


def test_a_compiler_that_is_there_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eager, "compiler_is_loaded", lambda: True)
    asked: list[bool] = []
    monkeypatch.setattr(torch, "use_deterministic_algorithms", asked.append)
    eager.use_deterministic_algorithms(True)
    marked = torch._disable_dynamo(lambda: None)
    never_compiled(marked)
    assert asked == [True]
    assert not hasattr(marked.__wrapped__, eager.MARK)


def test_determinism_is_switched_on_and_off() -> None:
    former = torch.are_deterministic_algorithms_enabled()
    for mode in (True, False):
        eager.use_deterministic_algorithms(mode)
        assert torch.are_deterministic_algorithms_enabled() is mode
        assert not torch.is_deterministic_algorithms_warn_only_enabled()
    eager.use_deterministic_algorithms(former)


@pytest.mark.parametrize("kind", ["rnn", "gru", "lstm", "attentive-rnn", "transformer", "bigram"])
def test_a_model_without_numbers_has_the_shapes_of_one_with_them(kind: str) -> None:
    before = torch.get_rng_state()
    with without_numbers():
        outline = build_lm(kind, vocab_size=30, width=16)
    assert torch.equal(torch.get_rng_state(), before)
    whole = build_lm(kind, vocab_size=30, width=16)
    shapes = {name: tuple(value.shape) for name, value in whole.state_dict().items()}
    assert {name: tuple(value.shape) for name, value in outline.state_dict().items()} == shapes
    assert all(value.is_meta for value in outline.parameters())


def test_what_has_numbers_is_filled_all_the_same() -> None:
    with without_numbers():
        real = torch.zeros(3, device="cpu")
        nn.init.ones_(real)
        real.normal_()
    assert real.device.type == "cpu"
    assert float(real.abs().sum()) > 0
    assert not torch.equal(real, torch.ones(3))
