"""Mathematics on a page: LaTeX becomes MathML, which browsers draw themselves. Nothing is fetched."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from seqlab.core.errors import one_line

if TYPE_CHECKING:
    from markupsafe import Markup

PARTS = re.compile(r"\$([^$]*)\$")
TAKES = {  # what an element has inside
    **dict.fromkeys(("mfrac", "msub", "msup", "mover", "munder", "mroot"), 2),
    **dict.fromkeys(("msubsup", "munderover"), 3),
}
OPEN = r'<mo stretchy="false">(?:&#x00028;|\[)</mo>'
NICER = (  # spaces and signs as they are set in books
    # a bar is a bracket here, never a relation: no room on either side
    (r"<mo>(&#x02016;|&#x0007C;|‖|\|)</mo>", r'<mo lspace="0" rspace="0">\1</mo>'),
    # the name of a function stands apart from its argument, unless that has brackets
    (rf"<m([io])>([A-Za-z]{{2,}})</m\1>(?={OPEN})", r'<mo lspace="0.1em" rspace="0">\2</mo>'),
    (r"<m([io])>([A-Za-z]{2,})</m\1>", r'<mo lspace="0.1em" rspace="0.17em">\2</mo>'),
    # a minus after a bracket, a comma or a relation is a sign
    (rf"({OPEN}|<mo>&#x0(?:003D|002C|2264|2265|003C|003E|2248|2192);</mo>)<mo>&#x02212;</mo>",
     r'\1<mo form="prefix" lspace="0" rspace="0">&#x02212;</mo>'),
    (r"<mi>&#x0007E;</mi>", "<mo>&#x0223C;</mo>"),
    (r"<mi>&#x0(27F9|00B1|2032);</mi>", r"<mo>&#x0\1;</mo>"),
)  # fmt: skip


TOKENS = re.compile(r"\\[A-Za-z]+|\\.|[^\s]")
OPENS = frozenset(("{", "(", "[", r"\{", r"\left", r"\lVert", r"\lvert", r"\langle", r"\lfloor", r"\lceil"))
CLOSES = frozenset(("}", ")", "]", r"\}", r"\right", r"\rVert", r"\rvert", r"\rangle", r"\rfloor", r"\rceil"))
RELATIONS = frozenset(("=", "<", ">", r"\le", r"\ge", r"\ne", r"\approx", r"\to", r"\propto", r"\Rightarrow"))
BREAKS = RELATIONS | {"+", "-", r"\quad"}
UNSEEN = frozenset(("{", "}", "^", "_", r"\left", r"\right", r"\mathrm", r"\mathbb", r"\frac", r"\tilde", r"\hat"))
LONG, WIDE = 20, 36  # signs: a shorter formula stays on one line; a longer piece of one scrolls where there is no room


def signs(latex: str) -> int:
    """How long a formula is, about."""
    return sum(sign not in UNSEEN for sign in TOKENS.findall(latex))


def pieces(latex: str) -> list[str]:
    """A long formula, cut before its outermost relations and signs: the places where a line may end."""
    if r"\begin" in latex or signs(latex) <= LONG:
        return [latex]
    cuts, depth, before = [0], 0, "="
    for token in TOKENS.finditer(latex):
        sign = token[0]
        if sign in BREAKS and depth == 0 and latex[: token.start()].count("|") % 2 == 0 and before not in BREAKS:
            cuts.append(token.start())
        depth += (sign in OPENS) - (sign in CLOSES)
        before = sign
    return [latex[a:b] for a, b in zip(cuts, [*cuts[1:], len(latex)], strict=True)]


def mathml(latex: str, *, block: bool = False) -> Markup:
    """The formula as MathML; a ValueError with the LaTeX if it is not understood to its last sign."""
    from latex2mathml.converter import convert
    from markupsafe import Markup

    try:
        drawn = convert(latex, display="block" if block else "inline")
        _check(drawn)
    except Exception as error:
        raise ValueError(f"no mathematics: {latex!r} ({one_line(error)})") from error
    for pattern, better in NICER:
        drawn = re.sub(pattern, better, drawn)
    return Markup(drawn)


def _check(drawn: str) -> None:
    """Every command was known, and every fraction has two parts."""
    from xml.etree import ElementTree

    for element in ElementTree.fromstring(drawn).iter():
        name = element.tag.rpartition("}")[2]
        if "\\" in (element.text or ""):
            raise ValueError(f"unknown command {element.text}")
        if len(element) != TAKES.get(name, len(element)):
            raise ValueError(f"{name} with {len(element)} parts")


def with_mathematics(text: str, *, strict: bool = False) -> Markup:
    """Text as HTML, with what stands between dollar signs as MathML; what is not understood is shown as it is."""
    from markupsafe import Markup, escape

    if strict and text.count("$") % 2:
        raise ValueError(f"a dollar sign without its partner: {text!r}")
    begin, *pairs = PARTS.split(text)
    drawn = [escape(begin)]
    for latex, after in zip(pairs[::2], pairs[1::2], strict=True):
        sign = after[:1] if after[:1] in tuple(".,;:)") else ""
        *first, last = [mathml(latex)] if strict else _cut(latex)
        kind = "formula scrolls" if max(map(signs, pieces(latex))) > WIDE else "formula"
        drawn += [Markup('<span class="{}">{}</span><wbr>').format(kind, part) for part in first]
        drawn.append(Markup('<span class="{}">{}{}</span>').format(kind, last, sign) + escape(after[len(sign) :]))
    return Markup("").join(drawn)


def _cut(latex: str) -> list[Markup]:
    """The pieces of a formula; what begins one stands between two sides, as it does in the whole."""
    from markupsafe import Markup

    try:
        first, *others = [mathml(piece) for piece in pieces(latex)]
    except ValueError:
        return [_shown(latex)]
    begin = re.compile(r"(<math[^>]*><mrow><mo)\b")
    return [first, *(Markup(begin.sub(r'\1 form="infix"', str(part))) for part in others)]


def line_of_mathematics(latex: str) -> Markup:
    """A step of a derivation on a line of its own; words with dollar signs are a sentence."""
    return with_mathematics(latex) if "$" in latex else _shown(latex, block=True)


def _shown(latex: str, *, block: bool = False) -> Markup:
    """As it is, where it is not understood."""
    from markupsafe import Markup

    try:
        return mathml(latex, block=block)
    except ValueError:
        return Markup("<code>{}</code>").format(latex)
