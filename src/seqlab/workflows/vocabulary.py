"""Which vocabulary a text deserves when nobody says."""

from collections.abc import Iterable

from seqlab.core.registry import TOKENIZERS, look_up
from seqlab.data.tokenizers import Tokenizer

BYTES_PER_BPE_TOKEN = 900  # of training text for each token of the vocabulary (docs/log.md)
BPE_RANGE = (320, 4096)


def default_vocab_size(kind: str, train_bytes: int) -> int | None:
    """BPE: one token for so many bytes of training text, within a range; other kinds have their own default."""
    if kind != "bpe":
        return None
    least, most = BPE_RANGE
    return min(most, max(least, train_bytes // BYTES_PER_BPE_TOKEN))


def fit_tokenizer(kind: str, vocab_size: int | None, pieces: Iterable[str], train_bytes: int) -> Tokenizer:
    tokenizer_type = look_up(TOKENIZERS, kind, "tokenizer")
    fitted: Tokenizer = tokenizer_type.fit(pieces, vocab_size or default_vocab_size(kind, train_bytes))
    return fitted
