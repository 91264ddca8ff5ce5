"""Normalisation: LayerNorm and RMSNorm are torch's; BatchNorm here knows padding."""

from torch import Tensor, nn

from seqlab.core.errors import UsageError, nearest
from seqlab.ops.masks import check_lengths, length_mask

NORMS = ("layer", "rms", "batch")


class TokenBatchNorm(nn.BatchNorm1d):
    """y = γ (x − μ)/√(σ² + ε) + β with mean and variance of each feature over all *real* tokens of a batch.

    x (B, T, D), lengths (B,) -> (B, T, D), zero in the padding. In training the batch's own statistics serve, and
    the running ones follow them; in evaluation the running ones serve.
    """

    def __init__(self, width: int, *, eps: float = 1e-5, momentum: float = 0.1) -> None:
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


def build_norm(kind: str, width: int) -> nn.Module:
    if kind not in NORMS:
        raise UsageError(f"norm '{kind}' is not known{nearest(kind, NORMS)}")
    kinds: dict[str, type[nn.Module]] = {"layer": nn.LayerNorm, "rms": nn.RMSNorm, "batch": TokenBatchNorm}
    return kinds[kind](width)


def normalise(norm: nn.Module, x: Tensor, lengths: Tensor | None) -> Tensor:
    """Only batch normalisation has to know where the padding is."""
    result: Tensor = norm(x, lengths) if isinstance(norm, TokenBatchNorm) else norm(x)
    return result
