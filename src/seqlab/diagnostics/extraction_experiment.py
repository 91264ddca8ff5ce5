"""Extracting one of two values that lie in different subspaces: which W_v and W_o of a head do it."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from seqlab.core.settings.experiments import Extraction
from seqlab.diagnostics.drawing import frame, mean_of, normal
from seqlab.diagnostics.experiments import Experiment, Line, Picture, described, estimated, exact
from seqlab.layers.attention import MultiHeadAttention

ROUNDING = 1e-9
ROUGHLY = 0.05  # how far a mean of some draws may be from what is expected of it


def orthonormal_projection(basis: Tensor) -> tuple[Tensor, Tensor]:
    """W_v = Aᵀ finds the coordinates, W_o = A makes a vector of them: together AAᵀ.    A (d, m) -> (m, d), (d, m)"""
    return basis.T, basis


def basis_projection(basis: Tensor) -> tuple[Tensor, Tensor]:
    """(AᵀA)⁻¹Aᵀ and A: for a basis whose columns are not orthonormal."""
    return torch.linalg.solve(basis.T @ basis, basis.T), basis


def oblique_projection(basis: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
    """(AᵀNA)⁻¹AᵀN and A, N the projector off the other subspace: where the two are not orthogonal."""
    off = torch.eye(len(basis), dtype=basis.dtype) - other @ torch.linalg.solve(other.T @ other, other.T)
    return torch.linalg.solve(basis.T @ off @ basis, basis.T @ off), basis


def unnormed_formula(basis: Tensor) -> float:
    """E‖GGᵀGc − Gc‖² = tr((H − I)H(H − I)), H = GᵀG, c ~ N(0, I): what GGᵀ is off by if G is not orthonormal."""
    gram = basis.T @ basis
    off = gram - torch.eye(len(gram), dtype=basis.dtype)
    return float(torch.trace(off @ gram @ off))


def angle_formula(degrees: float) -> float:
    """‖AAᵀv_b‖/‖v_b‖ = cos θ: what AAᵀ lets through of a subspace at the angle θ."""
    return math.cos(math.radians(degrees))


def extraction(asked: Extraction) -> Experiment:
    draw = torch.Generator().manual_seed(asked.seed)
    m, d, count = asked.dimensions, asked.width, asked.draws
    whole = frame(draw, d)
    A, B = whole[:, :m], whole[:, m : 2 * m]
    theta = math.radians(asked.angle)
    slanted = math.cos(theta) * A + math.sin(theta) * B
    G = A @ (torch.eye(m, dtype=torch.float64) + 0.5 * normal(draw, m, m))
    c_a, c_b = normal(draw, count, m), normal(draw, count, m)

    def error(wanted: Tensor, given: Tensor, matrices: tuple[Tensor, Tensor]) -> Tensor:
        away: Tensor = (through(matrices, given)[0] - wanted).norm(dim=-1)
        return away

    v_a, v_b, v_g, v_s = c_a @ A.T, c_b @ B.T, c_a @ G.T, c_b @ slanted.T
    plain = orthonormal_projection(A)
    coordinates = through(plain, v_a + v_b)[1]
    leaked = error(v_a, v_a + v_s, plain) / v_s.norm(dim=-1)
    crude, slack = mean_of(error(v_g, v_g + v_b, orthonormal_projection(G)).square())
    findings = [
        exact("AAᵀ, A orthonormal: largest error", 0.0, float(error(v_a, v_a + v_b, plain).max()), ROUNDING),
        exact("Aᵀ alone: numbers it gives", m, coordinates.shape[-1], 0.0),
        exact(
            "Aᵀ alone: largest distance from the coordinates c", 0.0, float((coordinates - c_a).abs().max()), ROUNDING
        ),
        estimated("GGᵀ, G a general basis: mean squared error", unnormed_formula(G), crude, slack, near=ROUGHLY),
        exact("G(GᵀG)⁻¹Gᵀ: largest error", 0.0, float(error(v_g, v_g + v_b, basis_projection(G)).max()), ROUNDING),
        exact(
            f"AAᵀ, subspaces at {asked.angle:g}°: share of v_b that comes through",
            angle_formula(asked.angle),
            float(leaked.mean()),
            ROUNDING,
        ),
        exact(
            f"oblique projection, subspaces at {asked.angle:g}°: largest error",
            0.0,
            float(error(v_a, v_a + v_s, oblique_projection(A, slanted)).max()),
            ROUNDING,
        ),
    ]
    degrees = [float(x) for x in range(5, 91, 5)]
    return described(
        "extraction",
        asked,
        "v_a = Ac with AᵀA = I, v_b in a subspace orthogonal to it: AAᵀ(v_a + v_b) = v_a, and Aᵀ(v_a + v_b) = c, the "
        "coordinates; a general basis needs G(GᵀG)⁻¹Gᵀ, slanted subspaces an oblique projection",
        f"In a head W_v = Aᵀ finds {m} coordinates and W_o = A makes a vector of {d} numbers of them; together they "
        f"extract v_a to {findings[0].measured:.0e}. Without orthonormal columns, or without orthogonal subspaces, AAᵀ "
        "fails by what the formulas say.",
        findings,
        [
            Picture(
                "What AAᵀ lets through of the other value",
                "angle between the subspaces (degrees)",
                "share of v_b's length",
                [
                    Line(
                        "measured",
                        degrees,
                        [_leak(plain, A, B, c_b, x) for x in degrees],
                    ),
                    Line("cos θ", degrees, [angle_formula(x) for x in degrees], dashed=True),
                ],
            )
        ],
    )


def _leak(matrices: tuple[Tensor, Tensor], A: Tensor, B: Tensor, coordinates: Tensor, degrees: float) -> float:
    theta = math.radians(degrees)
    v = coordinates @ (math.cos(theta) * A + math.sin(theta) * B).T
    return float((through(matrices, v)[0].norm(dim=-1) / v.norm(dim=-1)).mean())


@torch.no_grad()
def through(matrices: tuple[Tensor, Tensor], values: Tensor) -> tuple[Tensor, Tensor]:
    """What an attention layer with W_v and W_o makes of values that it attends to wholly: (draws, d), and between the
    two matrices (draws, m)."""
    w_v, w_o = matrices
    nothing = torch.zeros_like(w_v)
    layer = MultiHeadAttention.from_matrices((nothing, None), (nothing, None), (w_v, None), (w_o, None), 1).eval()
    x = values[:, None]
    return layer(x, x, x)[0][:, 0], layer.look(x, x, x)[2][:, 0]
