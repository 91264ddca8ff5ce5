"""The help of a duel lists what the duel accepts, and what it refuses it refuses at once, with a reason."""

import re
import subprocess
import sys
from collections.abc import Sequence

import pytest
from tests.cli.conftest import Command

from seqlab.core.settings.classify import CLASSIFY_RULES
from seqlab.core.settings.duel import LM_RULES, OPTIMISER_RULES
from seqlab.core.settings.fields import dashed, flags_of
from seqlab.core.settings.translate import TRANSLATE_RULES

DUELS = {
    "lm compare": (LM_RULES, ("text",), "--models gru,lstm", "t.txt"),
    "classify compare": (CLASSIFY_RULES, ("data",), "--models gru,lstm", "t.csv"),
    "translate compare": (TRANSLATE_RULES, ("data", "beside"), "--models gru,lstm", "t.tsv"),
    "diagnose optimisers": (OPTIMISER_RULES, ("text",), "--duel adamw,sgd --on t.txt", ""),
}
every_duel = pytest.mark.parametrize("command", DUELS)


@every_duel
def test_help_lists_what_is_accepted_and_nothing_else(seqlab_command: Command, command: str) -> None:
    rules, named_otherwise, *_ = DUELS[command]
    page = seqlab_command(*command.split(), "--help").out
    listed = set(re.findall(r"^  --(?:\[no-\])?([a-z-]+)", page, re.MULTILINE))
    refused = {dashed(name) for name in rules.elsewhere}
    assert listed.isdisjoint(refused)
    assert listed >= {dashed(name) for name in flags_of(rules.settings_type)} - refused - set(named_otherwise)


@every_duel
def test_what_is_not_listed_is_refused_with_a_reason(seqlab_command: Command, command: str) -> None:
    rules, named_otherwise, duel, place = DUELS[command]
    for name in set(rules.elsewhere) - set(named_otherwise):
        value = [] if name == "bias_correction" else ["0.5" if name in ("momentum", "learning_rate") else "1"]
        words = [*command.split(), *place.split(), *duel.split(), f"--{dashed(name)}", *value]
        answer = seqlab_command(*words)
        assert (answer.code, answer.err.count("\n")) == (2, 1), answer.err
        assert f"--{dashed(name)} is not a choice for a duel: {rules.elsewhere[name]}" in answer.err


def test_a_flag_that_is_not_listed_is_no_remedy(seqlab_command: Command) -> None:
    answer = seqlab_command("lm", "compare", "t.txt", "--models", "gru,rnn", "--sed", "3")
    assert answer.code == 2
    assert "unknown option --sed; did you mean '--seeds'?" in answer.err


def test_one_model_alone_is_refused_before_data_and_torch() -> None:
    lines: list[Sequence[str]] = [
        [*command.split(), *place.split(), *duel.replace(",lstm", "").replace(",sgd", "").split()]
        for command, (_, _, duel, place) in DUELS.items()
    ]
    script = f"""
import sys
from seqlab.cli import main
codes = [main(words) for words in {lines!r}]
sys.exit(f"{{codes}}, loaded torch: {{'torch' in sys.modules}}")
"""
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    said = answer.stderr.splitlines()
    assert said[-1] == "[2, 2, 2, 2], loaded torch: False"
    assert [("alone; a duel needs two" in line, "t." in line) for line in said[:-1]] == [(True, False)] * 4
