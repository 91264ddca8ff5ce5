import dataclasses
import tomllib

import pytest
import tomli_w

from seqlab.core.errors import UsageError
from seqlab.core.registry import MODELS
from seqlab.core.settings.fields import flags_of, from_table, to_table, with_flags
from seqlab.core.settings.lm import (
    CHARACTERS_BELOW,
    LMSettings,
    ModelSettings,
    check_said,
    default_vocab_size,
    fill_lm,
    precision_for,
    tokenizer_for,
    with_tokenizer,
)
from seqlab.core.settings.lm_presets import LED_PRESETS, PRESETS
from seqlab.core.settings.training import SIZES, TrainingSettings, size_for_budget


def test_what_a_person_says_beats_the_preset() -> None:
    said = {"model": "gru", "width": 99, "budget": "10m"}
    for guide, presets in (("none", PRESETS), ("ngram", LED_PRESETS)):
        fitted = fill_lm(with_flags(LMSettings(), said | {"guide": guide}))
        assert fitted.model.width == 99
        assert fitted.model.depth == presets["gru"][fitted.model.size or ""]["depth"]


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("size", SIZES)
def test_every_preset_fills_what_training_needs(kind: str, size: str) -> None:
    fitted = fill_lm(LMSettings(model=ModelSettings(kind=kind, size=size)))
    depth = 1 if kind == "bigram" else fitted.model.depth  # one hidden layer, always
    needed = (fitted.model.width, depth, fitted.training.batch, fitted.training.learning_rate)
    assert None not in needed


def test_longer_budgets_choose_sizes_that_are_not_smaller() -> None:
    chosen = [SIZES.index(size_for_budget(b)) for b in ("20s", "60s", "2m", "10m", "1h")]
    assert chosen == [0, 0, 1, 2, 3]
    assert size_for_budget("99s") == "small"
    assert size_for_budget("100s") == size_for_budget("299s") == "medium"
    assert size_for_budget("5m") == size_for_budget("29m") == "large"
    assert size_for_budget("500steps") == "small"


def test_the_bigram_reads_words_and_fewer_of_them() -> None:
    asked = {kind: with_flags(LMSettings(), {"model": kind}) for kind in ("ngram", "bigram")}
    kinds = {kind: fill_lm(settings).tokenizer.kind for kind, settings in asked.items()}
    assert kinds == {"ngram": "bpe", "bigram": "word"}
    said = with_flags(LMSettings(), {"model": "bigram", "tokenizer": "char"})
    assert fill_lm(said).tokenizer.kind == "char"
    assert default_vocab_size("word", 10**7, "bigram") == 4_000
    assert default_vocab_size("word", 10**7, "lstm") == 10_000


def test_the_size_of_the_text_chooses_the_tokens_of_a_led_network() -> None:
    open_yet = fill_lm(with_flags(LMSettings(), {"model": "lstm"}))
    assert (open_yet.tokenizer.kind, open_yet.model.order, open_yet.model.guide) == (None, None, "ngram")
    assert tokenizer_for(open_yet, CHARACTERS_BELOW - 1) == "char"
    assert tokenizer_for(open_yet, CHARACTERS_BELOW) == "bpe"
    orders = {kind: with_tokenizer(open_yet, kind).model.order for kind in ("char", "byte", "bpe", "word")}
    assert orders == {"char": 7, "byte": 7, "bpe": 6, "word": 3}
    assert default_vocab_size("bpe", 1_200_000, "lstm", "ngram") == default_vocab_size("bpe", 1_200_000, "ngram") == 600
    assert default_vocab_size("bpe", 10**7, "lstm", "ngram") == 1000
    assert default_vocab_size("bpe", 1_200_000, "lstm", "none") == 1333
    for said in ({"guide": "none"}, {"vocab_size": 500}, {"tokenizer": "bpe"}):
        decided = fill_lm(with_flags(LMSettings(), {"model": "lstm", **said}))
        assert decided.tokenizer.kind == tokenizer_for(decided, 10) == "bpe"
    asked = fill_lm(with_flags(LMSettings(), {"model": "lstm", "order": 3}))
    assert with_tokenizer(asked, "char").model.order == 3


@pytest.mark.parametrize(
    ("flags", "with_it", "without"),
    [
        ({"model": "lstm"}, "bfloat16", "float32"),
        ({"model": "lstm", "guide": "none"}, "float32", "float32"),
        ({"model": "transformer"}, "float32", "float32"),
        ({"model": "lstm", "precision": "float32"}, "float32", "float32"),
        ({"model": "transformer", "precision": "bfloat16"}, "bfloat16", "bfloat16"),
        ({"model": "gru"}, None, None),
    ],
)
def test_short_numbers_where_they_lose_nothing(
    flags: dict[str, object], with_it: str | None, without: str | None
) -> None:
    filled_in = fill_lm(with_flags(LMSettings(), flags))
    assert precision_for(filled_in, True) == with_it
    assert precision_for(filled_in, False) == without


def test_a_model_that_has_no_such_products_refuses_them() -> None:
    asked = with_flags(LMSettings(), {"model": "gru", "precision": "bfloat16"})
    with pytest.raises(UsageError, match="--precision is for lstm, transformer, not for model 'gru'"):
        check_said(asked, {"model", "precision"})


def test_settings_survive_toml() -> None:
    settings = fill_lm(with_flags(LMSettings(), {"text": "a.txt", "model": "transformer", "tied": True}))
    assert from_table(LMSettings, tomllib.loads(tomli_w.dumps(to_table(settings))), "file") == settings


def test_unknown_and_mistyped_settings_name_the_nearest() -> None:
    with pytest.raises(UsageError, match="did you mean 'dropout'"):
        with_flags(LMSettings(), {"dropuot": 0.1})
    with pytest.raises(UsageError, match=r"f: unknown setting 'model.witdh'; did you mean 'width'"):
        from_table(LMSettings, {"model": {"witdh": 3}}, "f")
    with pytest.raises(UsageError, match=r"f: unknown setting or table 'trainin'; did you mean 'training'"):
        from_table(LMSettings, {"trainin": {"seed": 3}}, "f")
    with pytest.raises(UsageError, match=r"f: 'model' is 3; it must be a table of settings"):
        from_table(LMSettings, {"model": 3}, "f")
    with pytest.raises(UsageError, match=r"model.width is 'wide'; it must be of type int"):
        from_table(LMSettings, {"model": {"width": "wide"}}, "f")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"model": "lstmm"}, "did you mean 'lstm'"),
        ({"tokenizer": "bpee"}, "did you mean 'bpe'"),
        ({"width": 0}, "--width 0 is too small"),
        ({"dropout": 1.5}, "--dropout 1.5 must be at least 0 and below 1"),
        ({"learning_rate": 0.0}, "--learning-rate 0.0 must be a number greater than 0"),
        ({"learning_rate": float("nan")}, "--learning-rate nan must be a number greater than 0"),
        ({"seed": -1}, "--seed -1 must be a number of 0 or more"),
        ({"decay": "cosin"}, "did you mean 'cosine'"),
        ({"budget": "soon"}, "budget 'soon'"),
        ({"weight_decay": float("nan")}, "--weight-decay nan must be a number of 0 or more"),
        ({"learning_rate": float("inf")}, "--learning-rate inf must be a number greater than 0"),
        ({"width": 10**9}, "--width 1000000000 is too large; the most is 1,000,000"),
        ({"width": 16.5}, "setting 'width' is 16.5; it must be of type int"),
        ({"budget": 60}, "setting 'budget' is 60; it must be of type str"),
        ({"tied": "no"}, "setting 'tied' is 'no'; it must be of type bool"),
        ({"seed": None}, "setting 'seed' is None; it must be of type int"),
        ({"split": "90/20"}, "split"),
    ],
)
def test_values_out_of_range_are_refused(flags: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        fill_lm(with_flags(LMSettings(), flags))


def test_every_setting_has_help_and_a_flag_of_its_own() -> None:
    flags = flags_of(LMSettings)
    fields = sum(len(dataclasses.fields(getattr(LMSettings(), g.name))) for g in dataclasses.fields(LMSettings))
    assert len(flags) == fields
    assert all(f.metadata["help"] for _, f in flags.values())
    assert "eval_every" in flags
    assert isinstance(TrainingSettings().seed, int)
