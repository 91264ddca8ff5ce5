"""Half a character is never written, whoever asks and however little is asked for."""

import pytest
from tests.conftest import TINY

import seqlab
from seqlab.cli import main
from seqlab.core.reporting import Reporter
from seqlab.core.seeding import torch_generator
from seqlab.data.tokenizers import WholeCharacters
from seqlab.generation.sampling import Choice, generate_each
from seqlab.workflows.lm.generate import stream_text, write_texts
from seqlab.workflows.lm.run import LMRun

CHINESE = "今天天气很好,我和他一起去了学校。明天我们在家里看书!"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> LMRun:
    folder = tmp_path_factory.mktemp("chinese")
    (folder / "text.txt").write_text(CHINESE * 150, encoding="utf-8")
    how = TINY | {"model": "gru", "guide": "none", "context": 16, "budget": "20steps"}
    return seqlab.train_lm(folder / "text.txt", tokenizer="byte", out=folder / "run", **how)


def test_no_sample_has_half_a_character(run: LMRun) -> None:
    """Bytes are the shortest tokens there are, and this model has hardly learnt which follow each other."""
    for seed in range(4):
        written = b"".join(run.stream("今", 60, seed=seed))
        assert "\ufffd" not in written.decode()  # raises if it is not UTF-8
        assert run.generate("今", 60, seed=seed) == written.decode()
    raw = [token for seed in range(4) for _, token in tokens_of(run, 60, seed)]
    with pytest.raises(UnicodeDecodeError):
        bytes(raw).decode()


def tokens_of(run: LMRun, tokens: int, seed: int) -> list[tuple[int, int]]:
    ids = [run.tokenizer.begin_id, *run.tokenizer.encode("今").ids.tolist()]
    return list(generate_each(run.model, [ids], tokens, Choice(), [torch_generator(seed, "sampling")]))


def test_every_way_to_write_agrees(run: LMRun, capfd: pytest.CaptureFixture[str]) -> None:
    one = run.generate("今", 50, seed=3)
    how = {"tokens": 50, "seed": 3, "threads": 1, "reporter": Reporter()}
    assert b"".join(stream_text(run.folder, "今", **how)).decode() == one
    assert write_texts(run.folder, ["今"], **how) == [one]
    words = ["lm", "generate", str(run.folder), "--prompt", "今", "--tokens", "50", "--seed", "3"]
    assert main(words) == 0
    assert capfd.readouterr().out == f"今{one}\n"


def test_what_is_whole_is_written_at_once_and_the_rest_left_out() -> None:
    whole = WholeCharacters()
    written = [whole(bytes([byte])) for byte in "aé今🙂".encode()]
    assert written == [b"a", b"", "é".encode(), b"", b"", "今".encode(), b"", b"", b"", "🙂".encode()]
    damaged = WholeCharacters()
    assert b"".join(map(damaged, [b"\xe4", b"\xbb", b"x", b"\xff", b"y", b"\xe4"])) == b"xy"
