"""Normalisation: LayerNorm and RMSNorm are torch's; BatchNorm here knows padding."""

from torch import Tensor, nn

from seqlab.core.errors import UsageError, nearest
from seqlab.core.registry import NORMS
from seqlab.ops.masks import check_lengths, length_mask

DEFAULT_EPS = 1e-5


class TokenBatchNorm(nn.BatchNorm1d):
    """y = γ (x − μ)/√(σ² + ε) + β with mean and variance of each feature over all *real* tokens of a batch.

    x (B, T, D), lengths (B,) -> (B, T, D), zero in the padding. In training the batch's own statistics serve, and
    the running ones follow them; in evaluation the running ones serve.
    """

    def __init__(self, width: int, *, eps: float = DEFAULT_EPS, momentum: float = 0.1) -> None:
        super().__init__(width, eps=eps, momentum=momentum)

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        if x.ndim != 3 or x.shape[2] != self.num_features:
            raise UsageError(f"x has shape {tuple(x.shape)}, but the layer reads (batch, time, {self.num_features})")
        if lengths is None:
            return self._normalise(x.flatten(0, 1)).view_as(x)
        real = length_mask(check_lengths(lengths, x.shape[0], x.shape[1]), x.shape[1])
        return x.new_zeros(x.shape).masked_scatter(real[..., None], self._normalise(x[real]))

    def _normalise(self, tokens: Tensor) -> Tensor:
        """tokens (n, D)"""
        if self.training and len(tokens) < 2:
            raise UsageError(f"batch normalisation needs 2 real tokens or more in training, not {len(tokens)}")
        return super().forward(tokens)


def build_norm(kind: str, width: int, *, eps: float | None = None, bias: bool = True) -> nn.Module:
    """layer: γ (x − μ)/√(σ² + ε) + β, or without β;  rms: γ x/√(mean x² + ε);  batch: over the real tokens.

    Without `eps` the kind's own serves: 1e-5, for rms the smallest step of the number type.
    """
    if kind not in NORMS:
        raise UsageError(f"norm '{kind}' is not known{nearest(kind, NORMS)}")
    if kind == "rms":
        return nn.RMSNorm(width, eps=eps)
    eps = DEFAULT_EPS if eps is None else eps
    if kind == "layer":
        return nn.LayerNorm(width, eps=eps, bias=bias)
    if not bias:
        raise UsageError("batch normalisation has a bias always; leave it, or choose 'layer' or 'rms'")
    return TokenBatchNorm(width, eps=eps)


def normalise(norm: nn.Module, x: Tensor, lengths: Tensor | None) -> Tensor:
    """Only batch normalisation has to know where the padding is."""
    result: Tensor = norm(x, lengths) if isinstance(norm, TokenBatchNorm) else norm(x)
    return result
