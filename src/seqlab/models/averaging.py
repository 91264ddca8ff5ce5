"""The averaging network: a text is the bag of its words and n-grams; their order beyond that cannot matter.

    z = b + s · n^{−p} Σ_{f∈d} w_f ∘ r_f  +  W · layers(n_e^{−p} Σ_{f∈d} e_f)

d is the set of a text's n known features; p = 0 sums, p = 1 takes the mean, p = ½ lies between. r_f is what naive
Bayes says of a feature, its log-count ratio for each class k against the others,

    r_fk = ln (c_fk + α)/(C_k + αF)  −  ln (c_f¬k + α)/(C_¬k + αF),

c_fk texts of class k have it, C_k = Σ_f c_fk. Training starts as naive Bayes: w = 1, and W = 0 beside it. In
training a text is taken out of c and C: a ratio that has seen the label knows the answer. e_f is a vector of
the feature, random or given, and `layers` are feed-forward layers. Either sum may be absent. Of two classes one sum
is enough: its sign tells them apart.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqlab.core.errors import UsageError
from seqlab.core.traits import LookUpTable
from seqlab.core.types import BagBatch
from seqlab.ops.bags import bag_sums

POWERS = {"sum": 0.0, "root": 0.5, "mean": 1.0}


class FeatureWeights(LookUpTable):
    """w: one weight for each feature and column."""

    def __init__(self, features: int, columns: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(features, columns))


class FeatureVectors(LookUpTable):
    """e: a vector for each of the first `features` features."""

    def __init__(self, features: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(features, width) * width**-0.5)


class AveragingClassifier(nn.Module):
    """bags -> logits (B, K).

    features   how many there are; `kept` says which bucket each is
    bayes      the first sum
    width      of the vectors of the second sum, which the first `vectored` features have; 0: there is none
    hidden     units of each feed-forward layer, `depth` of them
    """

    kept: Tensor
    counts: Tensor
    totals: Tensor
    scale: Tensor

    def __init__(
        self,
        classes: int,
        features: int,
        *,
        bayes: bool = True,
        alpha: float = 1.0,
        scale: float = 1.0,
        width: int = 0,
        vectored: int | None = None,
        hidden: int = 64,
        depth: int = 0,
        pooling: str = "root",
        word_dropout: float = 0.0,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        if not bayes and not width:
            raise UsageError("an averaging network needs naive Bayes or vectors; give --bayes or a --width above 0")
        self.classes, self.columns = classes, 1 if classes == 2 else classes
        self.alpha, self.power, self.word_dropout = alpha, POWERS[pooling], word_dropout
        self.register_buffer("kept", torch.zeros(features, dtype=torch.int32))
        self.bias = nn.Parameter(torch.zeros(self.columns))
        self.weights = FeatureWeights(features, self.columns) if bayes else None
        if bayes:
            self.register_buffer("counts", torch.zeros(features, classes))
            self.register_buffer("totals", torch.zeros(classes))
            self.register_buffer("scale", torch.tensor(scale))
        self.vectors = FeatureVectors(features if vectored is None else vectored, width) if width else None
        if self.vectors is not None:
            self.layers = nn.Sequential(*_layers(width, hidden, depth, dropout))
            self.output = nn.Linear(hidden if depth else width, self.columns)
            nn.init.zeros_(self.output.bias)
            if bayes:
                nn.init.zeros_(self.output.weight)

    @torch.no_grad()
    def count(self, counts: Tensor) -> None:
        """c (F, K): in how many training texts of each class every feature stands."""
        self.counts.copy_(counts)
        self.totals.copy_(counts.sum(0))

    def forward(self, bags: BagBatch, own: Tensor | None = None) -> Tensor:
        """`own` (B,) are the texts' own classes, to be taken out of the counts: in training they are known."""
        size = len(bags.offsets) - 1
        features, rows = bags.features, bags.rows
        if self.training and self.word_dropout:
            left = kept_at_random(rows, size, self.word_dropout)
            features, rows = features[left], rows[left]
        z = self.bias.expand(size, -1)
        if self.weights is not None:
            ratios = self.ratios(features) if own is None else self.ratios_without(bags, own, features, rows)
            sums = bag_sums(self.weights.weight, features, rows, size, ratios)
            z = z + self.scale * self.pooled(sums, rows)
        if self.vectors is not None:
            with_vector = features < len(self.vectors.weight)
            features, rows = features[with_vector], rows[with_vector]
            sums = bag_sums(self.vectors.weight, features, rows, size)
            z = z + self.output(self.layers(self.pooled(sums, rows)))
        return z if self.columns > 1 else F.pad(z, (1, 0))

    def pooled(self, sums: Tensor, rows: Tensor) -> Tensor:
        """n^{−p} Σ; a text without any feature has 0."""
        if not self.power:
            return sums
        n = torch.bincount(rows, minlength=len(sums)).clamp(min=1)
        return sums * n.to(sums.dtype).pow(-self.power)[:, None]

    def ratios(self, features: Tensor) -> Tensor:
        """r_f of some features.    (P,) -> (P, columns)"""
        return self._log_odds(self.counts[features], self.alpha) - self._log_odds(self.totals, self._alphas)

    def ratios_without(self, bags: BagBatch, own: Tensor, features: Tensor, rows: Tensor) -> Tensor:
        """As if the text that each feature stands in, of the class `own`, had not been counted.    (P, columns)"""
        counts = self.counts[features]
        counts = _without(counts, own[rows], counts.new_ones(len(rows)))
        totals = _without(self.totals.expand(len(bags), -1), own, bags.offsets.diff())
        return self._log_odds(counts, self.alpha).sub_(self._log_odds(totals, self._alphas).index_select(0, rows))

    @property
    def _alphas(self) -> float:
        """αF"""
        return self.alpha * len(self.counts)

    def _log_odds(self, counts: Tensor, alpha: float) -> Tensor:
        """ln (c_k + α)/(c_¬k + α); of two classes, that of the second.    (…, K) -> (…, columns)"""
        if self.columns == 1:
            logs = torch.log(counts + alpha)
            return logs[..., 1:] - logs[..., :1]
        return torch.log((counts + alpha) / (counts.sum(-1, keepdim=True) - counts + alpha))


def _without(counts: Tensor, own: Tensor, taken: Tensor) -> Tensor:
    """counts (R, K) less what is taken (R,) from the class `own` (R,) of each row, never below 0."""
    return counts.scatter_add(1, own[:, None], -taken[:, None].to(counts.dtype)).clamp_(min=0)


def kept_at_random(rows: Tensor, size: int, rate: float) -> Tensor:
    """Each feature is left out with probability `rate`; a text that would lose all of them keeps all."""
    left = torch.rand(len(rows)) >= rate
    lost = torch.bincount(rows[left], minlength=size) == 0
    return left | lost[rows]


def _layers(width: int, hidden: int, depth: int, dropout: float) -> list[nn.Module]:
    layers: list[nn.Module] = []
    for k in range(depth):
        layers += [nn.Linear(hidden if k else width, hidden), nn.ReLU(), nn.Dropout(dropout)]
    return layers
