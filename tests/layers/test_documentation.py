"""The examples of docs/layers.md run as they stand, one after the other, and what it names exists."""

import importlib
import re
from pathlib import Path

TEXT = (Path(__file__).parents[2] / "docs" / "layers.md").read_text()


def test_the_examples_run() -> None:
    blocks = re.findall(r"```python\n(.*?)```", TEXT, flags=re.S)
    assert len(blocks) >= 4
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, "docs/layers.md", "exec"), names)


def test_the_functions_of_the_table_exist() -> None:
    modules = ("ops.reference.recurrence", "ops.reference.attention", "ops.recurrence", "ops.attention", "layers")
    found = {name for module in modules for name in dir(importlib.import_module(f"seqlab.{module}"))}
    table = TEXT[: TEXT.index("`ops/reference/gradients.py`")]
    named = re.findall(r"`(?:\w+\.)*(\w+)(?:\([^`]*\))?`", table)
    assert len(named) > 15
    assert {name for name in named if name not in ("ops", "layers", "linear_attention")} <= found
