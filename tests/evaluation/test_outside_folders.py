"""Hugging Face folders: against plain loops and the model's own loss; what is refused, and what is said."""

import json
import logging
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.evaluation.outside_models import (
    CONTEXT,
    END,
    LONG,
    assert_partition,
    by_prefixes,
    byte_level,
    hf_tokenizer,
)

import seqlab
from seqlab.core.errors import DataError, UsageError
from seqlab.evaluation.outsiders import load_hf
from seqlab.workflows.sheet.sheet import perplexity_sheet

KINDS = ["gpt2", "llama", "gpt_neox"]


def hf_model(kind: str, vocab_size: int, **changes: Any) -> Any:
    import transformers

    torch.manual_seed(0)
    ids = dict(bos_token_id=0, eos_token_id=0, pad_token_id=None)
    if kind == "gpt2":
        config = transformers.GPT2Config(
            vocab_size=vocab_size, n_positions=CONTEXT, n_embd=16, n_layer=2, n_head=2, initializer_range=0.5, **ids
        )
        return transformers.GPT2LMHeadModel(config)
    sizes = dict(hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24)
    sizes |= dict(vocab_size=vocab_size, max_position_embeddings=CONTEXT, initializer_range=0.5, **ids) | changes
    if kind == "llama":
        return transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes))
    return transformers.GPTNeoXForCausalLM(transformers.GPTNeoXConfig(**sizes))


def save(folder: Path, kind: str = "gpt2", special: dict[str, str] | None = None, **changes: Any) -> Path:
    library = byte_level()
    hf_model(kind, library.get_vocab_size() + 3, **changes).save_pretrained(folder)  # a padded vocabulary
    hf_tokenizer(library, **({"bos_token": END} if special is None else special)).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {kind: save(tmp_path_factory.mktemp(kind), kind) for kind in KINDS}


def change_config(folder: Path, **changes: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


# --- figures --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_one_window_equals_a_plain_loop_over_prefixes(kind: str, folders: dict[str, Path]) -> None:
    scorer = load_hf(folders[kind])
    text = "the café 漢"
    ids = byte_level().encode(text).ids
    assert len(ids) <= CONTEXT // 2
    single = scorer.score(text).nats
    scorer.module.double()
    table = scorer.score(text)
    assert table.nats.tolist() == pytest.approx(by_prefixes(scorer.module, ids, 0, len(ids)), abs=1e-10)
    assert single == pytest.approx(table.nats, abs=1e-4)
    assert not table.unknown.any()
    assert not table.lossy


@pytest.mark.parametrize("kind", KINDS)
def test_the_sum_is_the_model_s_own_loss(kind: str, folders: dict[str, Path]) -> None:
    scorer = load_hf(folders[kind])
    scorer.module.double()
    ids = byte_level().encode("naïve, it is").ids
    row = torch.tensor([[0, *ids]])
    with torch.no_grad():
        loss = scorer.module(row, labels=row).loss.item()
    assert scorer.score("naïve, it is").total == pytest.approx(loss * len(ids), rel=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_a_text_beyond_the_context_counts_every_token_once(kind: str, folders: dict[str, Path]) -> None:
    scorer = load_hf(folders[kind])
    scorer.module.double()
    assert (scorer.policy.segment, scorer.policy.warmup) == (CONTEXT // 2, CONTEXT // 2)
    ids = byte_level().encode(LONG).ids
    assert len(ids) > 5 * CONTEXT
    expected, half = [], CONTEXT // 2
    for start in range(0, len(ids), half):
        counted = ids[start : start + half]
        read = ids[max(0, start - half) : start]
        begin, read = (read[0], read[1:]) if start else (0, read)
        expected += by_prefixes(scorer.module, read + counted, begin, len(counted))
    table = scorer.score(LONG)
    assert table.nats.tolist() == pytest.approx(expected, abs=1e-10)
    assert_partition(table, LONG)


@pytest.mark.parametrize("kind", KINDS)
def test_the_batch_size_does_not_show(kind: str, folders: dict[str, Path]) -> None:
    scorer = load_hf(folders[kind])  # rows of the first and the last segment are shorter: padded on the right
    tables = [scorer.score(LONG, batch=batch).nats for batch in (1, 3, 64)] + [scorer.score(LONG).nats]
    for nats in tables[1:]:
        assert nats.sum() == pytest.approx(tables[0].sum(), rel=1e-6)
        assert nats == pytest.approx(tables[0], abs=1e-4)
    scorer.module.double()
    assert scorer.score(LONG, batch=64).nats == pytest.approx(scorer.score(LONG, batch=1).nats, abs=1e-10)


# --- errors ---------------------------------------------------------------------------------------------------------


def one_line(error: pytest.ExceptionInfo[Exception]) -> bool:
    return "\n" not in str(error.value)


def test_folders_that_are_no_models(tmp_path: Path, folders: dict[str, Path]) -> None:
    with pytest.raises(UsageError, match="is not a folder"):
        load_hf(tmp_path / "none")
    with pytest.raises(DataError, match="no config.json"):
        load_hf(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "pytorch_model.bin").write_bytes(b"pickle")
    with pytest.raises(DataError, match="no model.safetensors; pickled weights are not read"):
        load_hf(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"junk")
    with pytest.raises(DataError, match="no tokenizer.json"):
        load_hf(tmp_path)
    (tmp_path / "tokenizer.json").write_bytes((folders["gpt2"] / "tokenizer.json").read_bytes())
    for config in ("{}", "no json", '{"model_type": "nonsense"}', (folders["gpt2"] / "config.json").read_text()):
        (tmp_path / "config.json").write_text(config)
        with pytest.raises(DataError, match="transformers cannot load") as error:
            load_hf(tmp_path)
        assert one_line(error)
    for kind in ("t5", "bart"):  # of the second, transformers would load half
        change_config(tmp_path, model_type=kind)
        with pytest.raises(DataError, match=f"holds a {kind} model, which is not a causal language model"):
            load_hf(tmp_path)


def test_missing_weights_are_not_drawn_at_random(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[logging.LogRecord] = []
    listener = logging.Handler()
    monkeypatch.setattr(listener, "emit", said.append)
    save(tmp_path, "llama")
    hf_model("llama", 303).model.save_pretrained(tmp_path)
    monkeypatch.setattr(logging.getLogger("transformers"), "handlers", [listener])
    with pytest.raises(DataError, match="lacks weights of LlamaForCausalLM: lm_head.weight and 0 more"):
        load_hf(tmp_path)
    assert said == []  # the report of transformers is not shown


def test_an_encoder_loaded_as_a_causal_model_is_refused(tmp_path: Path) -> None:
    import transformers

    config = transformers.BertConfig(
        vocab_size=310,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        is_decoder=True,
    )
    save(tmp_path)
    transformers.BertLMHeadModel(config).save_pretrained(tmp_path)
    load_hf(tmp_path).score("as a decoder")
    change_config(tmp_path, is_decoder=False)
    with pytest.raises(UsageError, match="looks ahead"):
        load_hf(tmp_path).score("as an encoder")


def test_without_transformers_the_extra_is_named(folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(UsageError, match=r"pip install 'seqlab\[hf\]'"):
        load_hf(folders["gpt2"])


# --- what is said, and what is not ----------------------------------------------------------------------------------


def test_the_begin_token_and_the_context_are_stated(tmp_path: Path) -> None:
    def note(special: dict[str, str], limit: int = CONTEXT) -> str:
        folder = save(tmp_path / f"{len(list(tmp_path.iterdir()))}", "llama", special, max_position_embeddings=limit)
        return str(load_hf(folder).policy)

    assert note({"bos_token": END}).endswith(f"follows the begin token {END}")
    assert note({"eos_token": END}).endswith(f"follows the end token {END}, there being no begin token")
    assert note({}).endswith("which follows nothing, costs ln V")
    capped = note({}, limit=4096)
    assert "segments of 512 tokens, each read after the 512 tokens" in capped
    assert capped.endswith("; the model could read 4,096 tokens")


def test_the_context_may_be_chosen_within_the_model_s_limit(folders: dict[str, Path]) -> None:
    assert load_hf(folders["gpt2"], context=10).policy.segment == 5
    with pytest.raises(UsageError, match="context 33 is more than the 32 positions"):
        load_hf(folders["gpt2"], context=33)


def test_loading_and_scoring_print_nothing_and_open_no_connection(
    folders: dict[str, Path], capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers.utils import logging as transformers_logging

    def refuse(*_: Any) -> None:
        raise AssertionError("a connection was asked for")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    logger = logging.getLogger("transformers")
    level = logger.level
    load_hf(folders["gpt2"]).score(LONG)
    assert logger.level == level
    assert transformers_logging.is_progress_bar_enabled()
    assert capfd.readouterr() == ("", "")


def test_a_folder_stands_in_the_sheet_beside_runs(folders: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text(LONG, encoding="utf-8", newline="")
    seqlab.train_lm(tmp_path / "text.txt", out=tmp_path / "run", model="ngram", tokenizer="byte", split="50/50")
    sheet = perplexity_sheet(
        [tmp_path / "run"], [str(tmp_path / "text.txt")], hf=[folders["gpt2"], folders["gpt2"]], baselines=False
    )
    row = next(r for r in sheet.rows if r["model"] == str(folders["gpt2"]))
    assert row["nats"] == load_hf(folders["gpt2"]).score(LONG).total
    assert row["bound"].startswith("upper bound")
    assert len(sheet.comparisons) == 1


def test_transformers_is_imported_only_when_a_folder_is_loaded() -> None:
    check = "import seqlab, sys; seqlab.scorer; assert 'torch' in sys.modules; assert 'transformers' not in sys.modules"
    subprocess.run([sys.executable, "-c", check], check=True)
