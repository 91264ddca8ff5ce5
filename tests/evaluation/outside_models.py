"""Small models and tokenizers that seqlab did not make, and the plain sums to hold them against."""

from functools import cache
from typing import Any

import tokenizers
import torch
from tests.conftest import nonsense
from tokenizers import decoders, normalizers, pre_tokenizers, processors, trainers
from tokenizers import models as token_models
from torch import Tensor, nn

END = "<|endoftext|>"
CONTEXT = 32
TEXTS = [
    "the café",
    "a",
    "é",
    "😀",
    "naïve 😀😀 漢字かな\n\n  ﬁn ½ e\u0301 \ufffd",
    " two  spaces ",
    "\n",
    f"one{END}two",
]
LONG = nonsense(60) + "漢字 😀 " + nonsense(40, seed=1)


def byte_level() -> tokenizers.Tokenizer:
    return tokenizers.Tokenizer.from_str(trained_byte_level())


@cache
def trained_byte_level() -> str:
    library = tokenizers.Tokenizer(token_models.BPE())
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=300, initial_alphabet=alphabet, special_tokens=[END], show_progress=False)
    library.train_from_iterator([nonsense(300)], trainer)
    return str(library.to_str())


def sentencepiece_like() -> tokenizers.Tokenizer:
    """Spaces as ▁, one put before the text, bytes of unseen characters as <0x..>: as Llama does."""
    letters = sorted(set(nonsense(300)) - {" ", "\n"})
    names = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", *letters, "▁t", "▁th"]
    vocabulary = {name: i for i, name in enumerate(names)}
    merges = [("▁", "t"), ("▁t", "h")]
    library = tokenizers.Tokenizer(token_models.BPE(vocabulary, merges, unk_token="<unk>", byte_fallback=True))
    library.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    return library


def word_piece() -> tokenizers.Tokenizer:
    return tokenizers.Tokenizer.from_str(trained_word_piece())


@cache  # trained twice, ties would fall differently
def trained_word_piece() -> str:
    library = tokenizers.Tokenizer(token_models.WordPiece(unk_token="[UNK]"))
    library.normalizer = normalizers.BertNormalizer(lowercase=True)
    library.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(vocab_size=120, special_tokens=["[UNK]", "[CLS]"], show_progress=False)
    library.train_from_iterator([nonsense(300)], trainer)
    library.post_processor = processors.TemplateProcessing(single="[CLS] $A", special_tokens=[("[CLS]", 1)])
    return str(library.to_str())


class Causal(nn.Module):
    """A small causal model: the embeddings summed so far, and the last one."""

    def __init__(self, vocab_size: int, output: str = "logits") -> None:
        super().__init__()
        torch.manual_seed(1)
        self.embedding, self.out = nn.Embedding(vocab_size, 8), nn.Linear(8, vocab_size)
        self.output = output

    def forward(self, ids: Tensor) -> Any:
        x = self.embedding(ids)
        logits = self.out(torch.tanh(x + x.cumsum(1) / 8))
        return {"logits": logits, "tuple": (logits, "state"), "flat": logits[0], "text": "no"}[self.output]


def hf_tokenizer(library: tokenizers.Tokenizer, **special: str) -> Any:
    import transformers

    return transformers.PreTrainedTokenizerFast(tokenizer_object=library, **special)


def assert_partition(table: Any, text: str) -> None:
    ends = [0, *table.end.tolist()]
    assert table.start.tolist() == ends[:-1]
    assert ends == sorted(ends)
    assert ends[-1] == len(text.encode())


@torch.no_grad()
def by_prefixes(module: nn.Module, ids: list[int], begin: int, counted: int) -> list[float]:
    """−ln p of the last `counted` ids, one forward for each prefix."""
    row = [begin, *ids]
    nats = []
    for t in range(len(row) - counted, len(row)):
        output = module(torch.tensor([row[:t]]))
        nats.append(-getattr(output, "logits", output)[0, -1].log_softmax(-1)[row[t]].item())
    return nats
