"""Formulas on a page: where their lines may end, and how wide they may be."""

from __future__ import annotations

import pytest

from seqlab.pages.mathematics import pieces, with_mathematics
from seqlab.theory.ledger import claims


@pytest.mark.parametrize(
    ("latex", "cut"),
    [
        (r"a = b + c", [r"a = b + c"]),  # short
        (r"dC_t = i_t \tilde{C}_t + f_t dC_{t-1} + \frac{\partial C_t}{\partial h_{t-1}} dh_{t-1} - \eta (a + b - c)",
         ["dC_t ", r"= i_t \tilde{C}_t ", "+ f_t dC_{t-1} ", r"+ \frac{\partial C_t}{\partial h_{t-1}} dh_{t-1} ",
          r"- \eta (a + b - c)"]),
        (r"| a b c d e f g h - i j k l m n | \le \left( o + p q r s t \right)",
         [r"| a b c d e f g h - i j k l m n | ", r"\le \left( o + p q r s t \right)"]),
        (r"a b c d e f g h i j k l m n o p = -q r s t u", ["a b c d e f g h i j k l m n o p ", "= -q r s t u"]),
    ],
)  # fmt: skip
def test_a_long_formula_is_cut_at_its_outermost_signs(latex: str, cut: list[str]) -> None:
    assert pieces(latex) == cut


def test_nothing_is_lost_and_every_piece_is_mathematics() -> None:
    for claim in claims():
        for text in (claim.statement, claim.conditions, claim.correction, claim.note):
            for latex in text.split("$")[1::2]:
                assert "".join(pieces(latex)) == latex
                assert "<code>" not in with_mathematics(f"${latex}$"), latex


def test_a_piece_begins_with_a_sign_between_two_sides() -> None:
    drawn = with_mathematics(r"$a b c d e f g h i j k l m n o p q r s = t + u \quad (v)$.")
    assert drawn.count("<math") == drawn.count('class="formula"') == 4
    assert drawn.count('<mo form="infix">') == drawn.count('<mo stretchy="false">') == 2
    assert drawn.endswith("</math>.</span>")
