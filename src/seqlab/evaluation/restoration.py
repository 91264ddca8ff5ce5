"""What it costs to undo a normalisation: the price of a text's own spelling, paid to a simple adaptive coder.

The decoder has the normalised text y and writes the source x from left to right. At every place of y it is
told whether a piece was dropped there, and at every character of y whether something else stood in x:

    nothing was dropped / this was:  "(1539)"
    unchanged / it was:  "A", in place of the next 1 character of y

Each answer is coded with the counts of the answers before it in ever longer contexts c_1, c_2, …, blended as

    p_k(e) = (n_k(e) + α p_{k−1}(e)) / (n_k + α),     n_k: answers seen so far in context c_k

which sums to one over e whenever p_0 does. For yes and no p_0 = ½; for the piece itself p_0 spells it
character by character with the same blend, down to a fixed code for a character that never stood before.
A context may use all of y and what is already restored of x, nothing else. As the counts before an answer do
not depend on the answers after it, the whole text is computed at once, by sorting.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from seqlab.data.normalise import Edits, Normalised, code_points

Integers = NDArray[np.int64]
Nats = NDArray[np.float64]

LN2 = math.log(2)
ALPHA = 4.0  # how many answers the shorter context is worth
END = 0x110000  # of a spelled piece; also stands for whatever is outside the text
# p_0 of the end of a piece and of a character, by the number of bytes of its UTF-8: sums to one
END_SHARE = 1 / 4
SHARES = ((0x80, 1 / 2), (0x800, 1 / 8), (0x10000, 1 / 16), (0x110000, 1 / 16))


@dataclass(frozen=True)
class StepCost:
    """The nats that restore one step's source from its output."""

    step: str
    nats: float
    changes: int
    spread: Nats
    """The same nats laid on the characters of the original text, the last place being its end."""


def restoration_costs(normalised: Normalised) -> list[StepCost]:
    """For each step the cost of undoing it; the costs of all steps add up to the cost of the original text."""
    costs = []
    for done, (step, edits) in enumerate(zip(normalised.steps, normalised.edits, strict=True)):
        nats = edit_nats(edits)
        spread = np.zeros(len(normalised.original) + 1)
        np.add.at(spread, normalised.origin(done), nats)
        costs.append(StepCost(step, float(nats.sum()), len(edits), spread))
    return costs


def edit_nats(edits: Edits) -> Nats:
    """Nats of undoing one step, laid on the positions of its source, the end included: (len(source) + 1,)."""
    nats = np.zeros(len(edits.source) + 1)
    nats[0] = 2 * LN2  # whether anything was dropped at all, and whether anything else changed
    view = _View(edits)
    if view.dropped.any():
        np.add.at(nats, *_dropped_nats(view))
    if not view.dropped.all():
        np.add.at(nats, *_changed_nats(view))
    return nats


def _dropped_nats(view: _View) -> tuple[Integers, Nats]:
    """At every place of y: was a piece dropped before it, and which? (position in x, nats)"""
    edits, pieces, starts = view.edits, view.pieces(view.dropped), view.edits.output_start[view.dropped]
    told, at = np.zeros(len(view.codes), bool), edits.origin.copy()
    told[starts] = True
    at[starts] = edits.start[view.dropped]

    last_letters = np.array([END, *(ord(piece[-1]) for piece in pieces)])
    last = last_letters[np.cumsum(told) - told]  # how the last dropped piece ended: brackets and quotes are closed
    around = _hashed(_before(view.kinds), view.kinds)
    next_word = np.where(view.kinds == BLANK, _after(view.words), view.words)
    contexts = [
        around,
        _hashed(around, last),
        _hashed(_before(view.words), view.codes),
        _hashed(_before(view.codes), next_word, view.places),
    ]
    asked = view.outside
    nats = yes_no_nats([context[asked] for context in contexts], told[asked])
    which = piece_nats([around[starts], _hashed(around, last)[starts]], pieces, np.zeros(len(pieces), np.int64))
    return np.concatenate([at[asked], at[starts]]), np.concatenate([nats, which])


def _changed_nats(view: _View) -> tuple[Integers, Nats]:
    """At every character of y: did something else stand in x, and what? (position in x, nats)"""
    edits, changed = view.edits, ~view.dropped
    pieces, starts = view.pieces(changed), edits.output_start[changed]
    told = np.zeros(len(view.codes), bool)
    told[starts] = True

    restored = _hashed(view.restored_kinds[edits.origin], view.mark[edits.origin])
    contexts = [
        restored,
        _hashed(restored, view.codes, view.places > 0),
        _hashed(restored, view.codes, _after(view.codes), _after(view.codes, 2)),
        _hashed(restored, view.words, view.places),
    ]
    asked = view.outside[:-1]
    nats = yes_no_nats([context[asked] for context in contexts], told[asked])
    here, before = view.codes[starts], _before(view.codes)[starts]
    which = piece_nats([here, _hashed(here, before)], pieces, (edits.output_end - edits.output_start)[changed])
    return np.concatenate([edits.origin[asked], edits.origin[starts]]), np.concatenate([nats, which])


# What the decoder can see

BLANK, BREAK, LOWER, UPPER, LETTER, DIGIT, STOP, COMMA, MARK, OUTSIDE = range(10)


class _View:
    """y and, at its place j, the characters of x before `edits.origin[j]`; arrays run over j = 0 … len(y)."""

    def __init__(self, edits: Edits) -> None:
        self.edits = edits
        self.dropped = edits.output_start == edits.output_end
        self.codes = np.append(code_points(edits.output), END)
        self.kinds = _kinds(self.codes)
        self.words, self.places = _words(self.codes, self.kinds)
        self.restored_kinds = _kinds(np.append(END, code_points(edits.source)))  # of the character before

    @cached_property
    def mark(self) -> Integers:
        """The kind of the last character of x, blanks apart, before each position of x."""
        solid = np.where(self.restored_kinds != BLANK, np.arange(len(self.restored_kinds)), 0)
        last: Integers = self.restored_kinds[np.maximum.accumulate(solid)]
        return last

    @cached_property
    def outside(self) -> Integers:
        """The places that are not inside a piece already told: there is nothing to ask there."""
        depth = np.zeros(len(self.codes) + 1, np.int64)
        kept = ~self.dropped
        np.add.at(depth, self.edits.output_start[kept] + 1, 1)
        np.add.at(depth, self.edits.output_end[kept], -1)
        return np.flatnonzero(np.cumsum(depth)[:-1] == 0)

    def pieces(self, chosen: NDArray[np.bool_]) -> list[str]:
        spans = zip(self.edits.start[chosen].tolist(), self.edits.end[chosen].tolist(), strict=True)
        return [self.edits.source[start:end] for start, end in spans]


def _kind(code: int) -> int:
    if code == END:
        return OUTSIDE
    character = chr(code)
    tests = (
        (BREAK, character in "\r\n"),
        (BLANK, character.isspace()),
        (LOWER, character.islower()),
        (UPPER, character.isupper()),
        (LETTER, character.isalpha()),
        (DIGIT, character.isdigit()),
        (STOP, character in ".!?"),
        (COMMA, character in ",;:"),
    )
    return next((kind for kind, holds in tests if holds), MARK)


def _kinds(codes: Integers) -> Integers:
    distinct, which = np.unique(codes, return_inverse=True)
    kinds: Integers = np.array([_kind(int(code)) for code in distinct], np.int64)[which]
    return kinds


def _words(codes: Integers, kinds: Integers) -> tuple[Integers, Integers]:
    """A number for the run of letters and digits around each place, and the place in it; all else stands alone."""
    in_word = (kinds >= LOWER) & (kinds <= DIGIT)
    first = np.ones(len(codes), bool)
    first[1:] = ~(in_word[1:] & in_word[:-1])
    starts, run = np.flatnonzero(first), np.cumsum(first) - 1
    places = np.arange(len(codes)) - starts[run]
    return np.add.reduceat(_hashed(codes, places), starts)[run], places


def _before(values: Integers, by: int = 1) -> Integers:
    return np.concatenate([np.full(by, END), values])[:-by]


def _after(values: Integers, by: int = 1) -> Integers:
    return np.concatenate([values, np.full(by, END)])[by:]


def _hashed(*features: NDArray[np.generic]) -> Integers:
    """One number for each combination. Two that collide share their counts: dearer, but still a code."""
    mixed = np.zeros(len(features[0]), np.uint64)
    for feature in features:
        mixed = (mixed ^ feature.astype(np.int64).view(np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(29)
    return mixed.view(np.int64)


# The adaptive code


def yes_no_nats(contexts: Sequence[Integers], told: NDArray[np.bool_]) -> Nats:
    """−ln p of each answer; contexts from the shortest to the longest."""
    p = np.full(len(told), 0.5)  # of the answer that was given
    for context in contexts:
        order, starts, group = _grouped(context)
        seen = np.arange(len(told)) - starts[group]
        yes: Integers = np.cumsum(told[order]) - told[order]
        yes -= yes[starts][group]
        same = np.where(told[order], yes, seen - yes)
        p[order] = (same + ALPHA * p[order]) / (seen + ALPHA)
    nats: Nats = -np.log(p)
    return nats


def piece_nats(contexts: Sequence[Integers], pieces: Sequence[str], widths: Integers) -> Nats:
    """−ln p of each piece, together with the number of characters of y that it takes the place of.

    p_0 = p(spelling) · 2^−width
    """
    numbers: dict[tuple[str, int], int] = {}
    symbols = [numbers.setdefault(pair, len(numbers)) for pair in zip(pieces, widths.tolist(), strict=True)]
    anywhere = np.zeros(len(pieces), np.int64)
    return _blend([anywhere, *contexts], np.array(symbols), spelled_piece_nats(pieces) + LN2 * widths)


def spelled_piece_nats(pieces: Sequence[str]) -> Nats:
    """−ln p of each piece, character by character with an end, after one and two characters of the same piece."""
    lengths = np.fromiter(map(len, pieces), np.int64, len(pieces))
    ends = np.cumsum(lengths)
    stream = np.insert(code_points("".join(pieces)), ends, END)
    starts = ends - lengths + np.arange(len(pieces))
    place = np.arange(len(stream)) - np.repeat(starts, lengths + 1)
    previous = _before(stream)  # the end of the piece before, at the start of a piece
    second = np.where(place > 0, _before(stream, 2), END)
    symbols = np.unique(stream, return_inverse=True)[1]
    contexts = [np.zeros_like(stream), previous, _hashed(previous, second)]
    return np.add.reduceat(_blend(contexts, symbols, _character_nats(stream)), starts)


def _character_nats(codes: Integers) -> Nats:
    """−ln p_0 of a character: its class, by the bytes of its UTF-8, then uniform within the class."""
    nats = np.full(len(codes), -math.log(END_SHARE))
    least = 0
    for limit, share in SHARES:
        nats[(codes >= least) & (codes < limit)] = math.log((limit - least) / share)
        least = limit
    return nats


def _blend(contexts: Sequence[Integers], symbols: Integers, nats: Nats) -> Nats:
    """−ln p_k, from −ln p_0: p_k(e) = (n_k(e) + α p_{k−1}(e)) / (n_k + α)."""
    for context in contexts:
        dense = np.unique(context, return_inverse=True)[1]
        seen, same = _earlier(dense), _earlier(dense * (symbols.max() + 1) + symbols)
        # a piece so long that its p underflows to zero is still finite as −ln p where it stands alone
        blended = np.log(np.where(same > 0, same + ALPHA * np.exp(-nats), ALPHA)) - np.where(same > 0, 0.0, nats)
        nats = np.log(seen + ALPHA) - blended
    return nats


def _earlier(ids: Integers) -> Integers:
    """How often each id stood before."""
    order, starts, group = _grouped(ids)
    counts = np.empty_like(ids)
    counts[order] = np.arange(len(ids)) - starts[group]
    return counts


def _grouped(ids: Integers) -> tuple[Integers, Integers, Integers]:
    """The order that brings equal ids together, first come first, where each group starts, and the group of each."""
    order = np.argsort(ids, kind="stable")
    new = np.ones(len(ids), bool)
    new[1:] = ids[order[1:]] != ids[order[:-1]]
    return order, np.flatnonzero(new), np.cumsum(new) - 1
