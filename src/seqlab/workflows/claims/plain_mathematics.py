"""Mathematics for a terminal: simple LaTeX becomes Unicode, the rest stays as it is.

$\\lVert q \\rVert^2 \\le \\frac{1}{2}$ -> ‖q‖² ≤ 1/2
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from unicodedata import normalize


def _pairs(words: str) -> dict[str, str]:
    """Names and characters by turns."""
    names = words.split()
    return dict(zip(names[::2], names[1::2], strict=True))


def _names(words: str) -> frozenset[str]:
    return frozenset(words.split())


LETTERS = _pairs("""
    alpha α beta β gamma γ delta δ epsilon ε varepsilon ε zeta ζ eta η theta θ iota ι kappa κ lambda λ mu μ nu ν xi ξ
    pi π rho ρ sigma σ tau τ upsilon υ phi φ varphi φ chi χ psi ψ omega ω Gamma Γ Delta Δ Theta Θ Lambda Λ Xi Ξ Pi Π
    Sigma Σ Phi Φ Psi Ψ Omega Ω partial ∂ nabla ∇ infty ∞ ell ℓ top ⊤ prime ′ ldots … dots … cdots ⋯ emptyset ∅
    int ∫ sum Σ prod Π lVert ‖ rVert ‖ Vert ‖ lvert | rvert | langle ⟨ rangle ⟩ lfloor ⌊ rfloor ⌋ lceil ⌈ rceil ⌉
    forall ∀ exists ∃ | ‖ { { } } _ _ % % & &
""")
RELATIONS = _pairs("""
    le ≤ leq ≤ ge ≥ geq ≥ ne ≠ neq ≠ approx ≈ sim ~ propto ∝ ll ≪ gg ≫ in ∈ notin ∉ subset ⊂ to → rightarrow →
    leftarrow ← mapsto ↦ Rightarrow ⇒ implies ⇒ iff ⇔ Leftrightarrow ⇔ equiv ≡ times × pm ± colon : cup ∪ cap ∩ otimes ⊗
    oplus ⊕ perp ⊥ land ∧ lor ∨ circ ∘ odot ⊙ cdot · mid |
""")
OPENING = _names("lVert lvert langle lfloor lceil partial nabla sum prod int forall exists")
CLOSING = frozenset(("\\rVert", "\\rvert", "\\rangle", "\\rfloor", "\\rceil"))
FUNCTIONS = _names("sin cos tan tanh exp log ln max min sup inf lim det rank Pr arg argmax argmin")
SPACES = {",": "", ";": " ", ":": " ", "!": "", " ": " ", "quad": "  ", "qquad": "  "}
IGNORED = _names("left right bigl bigr Bigl Bigr big Big displaystyle textstyle limits nolimits")
UPRIGHT = _names("mathrm text operatorname mathbf mathit mathsf boldsymbol mathcal textbf textit")
ACCENTS = {"hat": "\u0302", "tilde": "\u0303", "bar": "\u0304", "dot": "\u0307", "vec": "\u20d7", "overline": "\u0304"}
FRACTIONS = frozenset(("frac", "tfrac", "dfrac"))
DOUBLE = {"E": "𝔼", "R": "ℝ", "N": "ℕ", "Z": "ℤ", "P": "ℙ", "C": "ℂ", "1": "𝟙", "V": "𝕍"}
RAISED = dict(
    zip("0123456789+-−=()niTabcdefghjklmoprstuvwxyz′⊤", "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁻⁼⁽⁾ⁿⁱᵀᵃᵇᶜᵈᵉᶠᵍʰʲᵏˡᵐᵒᵖʳˢᵗᵘᵛʷˣʸᶻ′ᵀ", strict=True)
)
LOWERED = dict(zip("0123456789+-−=()aehijklmnoprstuvx", "₀₁₂₃₄₅₆₇₈₉₊₋₋₌₍₎ₐₑₕᵢⱼₖₗₘₙₒₚᵣₛₜᵤᵥₓ", strict=True))

TOKEN = re.compile(r"\\[A-Za-z]+|\\.|\s+|.", re.DOTALL)
MATHS = re.compile(r"\$([^$]+)\$")


class _NotSimple(Exception):
    """It has no form in plain characters."""


SCRIPT = re.compile(r"(?<=\w)[_^](?:\{[^{}$]+\}|\w\b)")


def readable(text: str) -> str:
    """Text with mathematics between dollar signs, for a terminal."""
    return MATHS.sub(lambda found: _plain(found[1]) or found[0], text)


def label(text: str) -> str:
    """What a figure is called: mathematics as everywhere, and h_{t−1} without dollar signs."""
    return readable(text) if "$" in text else SCRIPT.sub(lambda found: _plain(found[0]) or found[0], text)


def _plain(latex: str) -> str | None:
    try:
        words = _sequence(iter(TOKEN.findall(latex)))
    except _NotSimple:
        return None
    called = re.sub(r"(?<=\w) \((?=\S)", "(", words)
    return normalize("NFC", re.sub(r" {2,}", " ", called).strip())


def _sequence(tokens: Iterator[str], end: str = "") -> str:
    """Up to the closing brace, or the end."""
    parts: list[str] = []
    before = ""
    for token in tokens:
        if token == end:
            return "".join(parts)
        if token in CLOSING and parts:
            parts[-1] = parts[-1].rstrip()
        if token[1:] in FUNCTIONS and parts and parts[-1][-1:].isalnum():
            parts.append(" ")
        if not (token.isspace() and before[1:] in OPENING):
            parts.append(_script(token, tokens) if token in "^_" else _atom(token, tokens))
        before = token
    if end:
        raise _NotSimple
    return "".join(parts)


def _atom(token: str, tokens: Iterator[str]) -> str:
    if token == "{":
        return _sequence(tokens, "}")
    if token in ("}", "&", "\\\\"):
        raise _NotSimple
    if token.startswith("\\"):
        return _command(token[1:], tokens)
    return {"'": "′"}.get(token, " " if token.isspace() else token)


def _command(name: str, tokens: Iterator[str]) -> str:
    if name in LETTERS:
        return LETTERS[name]
    if name in RELATIONS:
        return f" {RELATIONS[name]} "
    if name in SPACES or name in IGNORED:
        return SPACES.get(name, "")
    if name in FUNCTIONS:
        return f"{name} "
    if name in UPRIGHT:
        return _argument(tokens)
    if name == "mathbb":
        letter = _argument(tokens)
        return DOUBLE.get(letter, letter)
    if name in ACCENTS and len(letter := _argument(tokens)) == 1:
        return letter + ACCENTS[name]
    if name in FRACTIONS:
        above, below = _argument(tokens), _argument(tokens)
        return f"{_grouped(above)}/{_grouped(below)}"
    if name == "sqrt":
        return f"√{_grouped(_argument(tokens), SINGLE)}"
    raise _NotSimple


def _argument(tokens: Iterator[str]) -> str:
    """The next group, or the next character."""
    for token in tokens:
        if not token.isspace():
            return _atom(token, tokens)
    raise _NotSimple


SINGLE = re.compile(r"\d+|[^\W\d]\W*[₀-ₜᵀ]*|\W")  # a number or one letter, with what stands at it
NAMED = re.compile(r"√?(?:\d+|[^\W\d]\w*)|\W")  # and a name of several letters


def _grouped(words: str, alone: re.Pattern[str] = NAMED) -> str:
    return words if alone.fullmatch(words) else f"({words.strip()})"


def _script(sign: str, tokens: Iterator[str]) -> str:
    """Raised or lowered, where there are such characters."""
    words = _argument(tokens).strip()
    known = RAISED if sign == "^" else LOWERED
    small = re.sub(r"\s", "", words)
    if small and all(letter in known for letter in small):
        return "".join(known[letter] for letter in small)
    return f"{sign}{words if len(words) == 1 else f'({words})'}"
