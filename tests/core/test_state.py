import torch

import seqlab.core
from seqlab.core.state import detach, split_state, tensors_of
from seqlab.layers.attention import KeyValueCache


def test_reorder_knows_where_each_state_has_its_batch() -> None:
    index = torch.tensor([2, 0, 0])
    h = torch.randn(2, 3, 5)
    cache = KeyValueCache(torch.randn(3, 2, 4, 5), torch.randn(3, 2, 4, 5), position=4)
    new_h, (new_c, new_cache) = seqlab.core.reorder((h, (h + 1, cache)), index)
    assert torch.equal(new_h, h[:, index])
    assert torch.equal(new_c, h[:, index] + 1)
    assert torch.equal(new_cache.keys, cache.keys[index])
    assert new_cache.position == 4


def test_detach_cuts_the_history_of_every_tensor() -> None:
    h = torch.randn(1, 2, 3, requires_grad=True) * 2
    assert not any(t.requires_grad for t in tensors_of(detach((h, h))))


def test_split_parts_join_to_the_whole() -> None:
    h = torch.randn(1, 4, 3)
    parts = split_state((h, h), 2)
    assert torch.equal(torch.cat([p[0] for p in parts], dim=1), h)
    assert split_state(None, 3) == [None, None, None]
