"""Claims about a head that extracts one of two values whose sum it has read, each from a subspace of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from seqlab.diagnostics.extraction_experiment import (
    basis_projection,
    oblique_projection,
    orthonormal_projection,
    through,
)
from seqlab.theory.instances import normal, orthogonal, stream
from seqlab.theory.jacobians import error
from seqlab.theory.ledger import AS_STATED, LEDGER, Evidence, at_least, at_most, evidence, exactly

SETTING = (
    r"A head has read the sum of two values $v_a$ and $v_b$, each from a subspace of its own; the columns of "
    r"$A$ span that of $v_a$."
)
claim = LEDGER.of("attention", SETTING)

D, M = 7, 3  # width of the values, and of the subspace of v_a
Pair = tuple[Tensor, Tensor]  # W_v and W_o of a head; W_o W_v is what it makes of a value


@dataclass(frozen=True)
class Sum:
    """v_a = A c and v_b = B c', of which attention puts out the sum."""

    A: Tensor  # (d, m)
    B: Tensor  # (d, d − m)
    c: Tensor  # (m,)
    v_a: Tensor
    v_b: Tensor

    @property
    def s(self) -> Tensor:
        return self.v_a + self.v_b


def drawn(draw: torch.Generator, size: int = M, width: int = D) -> Sum:
    """Orthonormal columns, the two subspaces orthogonal to each other."""
    whole = orthogonal(draw, width)
    A, B = whole[:, :size], whole[:, size:]
    c, rest = normal(draw, size), normal(draw, width - size)
    return Sum(A, B, c, A @ c, B @ rest)


def made_by(pair: Pair, value: Tensor) -> Tensor:
    """What an attention layer with these two matrices makes of a value that it attends to wholly.    (d,)"""
    return through(pair, value[None])[0][0]


@claim(
    "proj.AAt",
    statement=r"If $v_a = A c$ with $A^\top A = I$ and $A^\top v_b = 0$, then $M = A A^\top$ gives "
    r"$M (v_a + v_b) = v_a$.",
    note=r"A basis that is not orthonormal needs $A (A^\top A)^{-1} A^\top$; subspaces that are not orthogonal need "
    r"the oblique projection $A (A^\top N A)^{-1} A^\top N$, with $N$ the projector off the subspace of $v_b$.",
    verdict="true",
    method="identity",
    right=orthonormal_projection,
    wrong={
        "the coordinates as they are": lambda A: (A.T, torch.eye(*A.shape, dtype=A.dtype)),
        "the projector off the subspace": lambda A: (torch.eye(len(A)).to(A), torch.eye(len(A)).to(A) - A @ A.T),
    },
    about=("seqlab.layers:MultiHeadAttention", "seqlab.diagnostics.extraction_experiment:orthonormal_projection"),
)
def projection(seed: int, form: Callable[[Tensor], Pair]) -> Evidence:
    draw = stream(seed, "proj.AAt")
    world = drawn(draw)
    G = world.A @ (torch.eye(M, dtype=torch.float64) + 0.5 * normal(draw, M, M))
    slanted = (world.A + world.B[:, :M]) / 2**0.5
    v_g, v_s = G @ world.c, slanted @ normal(draw, M)
    return evidence(
        at_most("largest error in v_a", error(made_by(form(world.A), world.s), world.v_a), 1e-12),
        at_least("GGᵀ, a basis that is not orthonormal: error", error(made_by(form(G), v_g + world.v_b), v_g), 0.01),
        at_most("G(GᵀG)⁻¹Gᵀ", error(made_by(basis_projection(G), v_g + world.v_b), v_g), 1e-10),
        at_least("AAᵀ, subspaces at 45°: error", error(made_by(form(world.A), world.v_a + v_s), world.v_a), 0.01),
        at_most(
            "oblique projection, subspaces at 45°: error",
            error(made_by(oblique_projection(world.A, slanted), world.v_a + v_s), world.v_a),
            1e-10,
        ),
    )


@claim(
    "proj.need-vb",
    statement=r"To extract $v_a$ from $v_a + v_b$, $M$ must satisfy $M v_a = v_a$ and $M v_b = 0$.",
    note=r"$M v_b = v_b$ would give back the sum.",
    verdict="true",
    method="identity",
    right=torch.zeros_like,
    wrong={"v_b is kept too": lambda v_b: v_b, "v_b is turned round": lambda v_b: -v_b},
    about=("seqlab.layers:MultiHeadAttention", "seqlab.diagnostics.extraction_experiment:orthonormal_projection"),
)
def need_zero(seed: int, form: Callable[[Tensor], Tensor]) -> Evidence:
    world = drawn(stream(seed, "proj.need-vb"))
    pair = orthonormal_projection(world.A)
    return evidence(
        at_most("M v_b less what is asked of it", error(made_by(pair, world.v_b), form(world.v_b)), 1e-12),
        at_most("M v_a less v_a", error(made_by(pair, world.v_a), world.v_a), 1e-12),
        at_most("what is asked of both, added, less v_a", error(world.v_a + form(world.v_b), world.v_a), 1e-12),
    )


def zero_padded(A: Tensor) -> Tensor:
    """Aᵀ with rows of zeros: the shape is right."""
    return torch.cat([A.T, A.new_zeros(len(A) - A.shape[1], len(A))])


@claim(
    "proj.At",
    statement=r"If $v_a = A c$ with $A^\top A = I$ and $A^\top v_b = 0$, then $M = A^\top$ gives "
    r"$M (v_a + v_b) = v_a$.",
    correction=r"$A^\top (v_a + v_b) = c$, the $m$ coordinates, not the vector $v_a = A c$ of $d$ numbers. "
    r"$M = A A^\top$ gives $v_a$. The two agree for every $c$ only if $m = d$ and $A = I$.",
    verdict="false",
    method="identity",
    right=lambda A: A @ A.T,
    wrong={AS_STATED: lambda A: A.T, "filled up with zeros": zero_padded},
    about=("seqlab.diagnostics.extraction_experiment:through",),
)
def transpose(seed: int, form: Callable[[Tensor], Tensor]) -> Evidence:
    draw = stream(seed, "proj.At")
    world, square = drawn(draw), drawn(draw, size=D)
    found, whole = form(world.A) @ world.s, form(square.A) @ square.s
    coordinates = through(orthonormal_projection(world.A), world.s[None])[1][0]
    one = drawn(draw, size=1, width=2)
    return evidence(
        exactly("numbers in M(v_a + v_b)", found.numel(), D),
        at_most("largest difference from v_a", error(found, world.v_a), 1e-12),
        at_most("the same where A is square", error(whole, square.v_a), 1e-12),
        at_most("what a head with W_v = Aᵀ reads, less the coordinates c", error(coordinates, world.c), 1e-12),
        counterexample=rf"$d = 2$, $m = 1$: $A^\top (v_a + v_b) = {float(one.A[:, 0] @ one.s):.3f}$ is one number, and "
        rf"$v_a = ({float(one.v_a[0]):.3f}, {float(one.v_a[1]):.3f})$.",
    )
