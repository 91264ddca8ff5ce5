"""What can be said of a module by its type alone, so that nobody has to guess from its name or its attributes."""

from torch import nn


class LookUpTable(nn.Module):
    """A module whose matrix is looked up, not multiplied with: it costs no products, and its rows do not decay."""


LOOKED_UP: tuple[type[nn.Module], ...] = (LookUpTable, nn.Embedding, nn.EmbeddingBag)
NORM_LAYERS: tuple[type[nn.Module], ...] = (
    nn.LayerNorm,
    nn.RMSNorm,
    nn.GroupNorm,
    nn.BatchNorm1d,
    nn.BatchNorm2d,
    nn.BatchNorm3d,
    nn.SyncBatchNorm,
)
