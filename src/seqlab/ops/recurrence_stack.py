"""Recurrent layers upon one another, in one or both directions, over whole batches: by kernels, or to be watched.

Both take x (B, T, D) and the parts of a state, each (layers·directions, B, H), and give y (B, T, H·directions) and the
parts of the final state. Inside time runs first. One layer and direction is the caller's: `kernel` or `steps`.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from seqlab.ops import recurrence, recurrence_steps
from seqlab.ops.masks import length_mask
from seqlab.ops.recurrence_steps import Parts, Seen

STATE = ("hidden", "c")  # what the parts of a state are called among what is seen

Shape = tuple[int, int]  # layers, directions
Change = Callable[[Tensor], Tensor]
Ran = tuple[Tensor, Tensor, Parts]  # what the layer above reads, what this layer puts out, its final state
# x (T, B, D), start, layer, whether back, how many are alive -> what the layer above reads, and the parts of the state
# at every step, the first of which is what this layer puts out; all (T, B, H)
Kernel = Callable[[Tensor, Parts, int, bool, recurrence.Alive], Parts]
# x (T, B, D), start, layer, whether back, where sequences have ended -> first what the layer above reads
Steps = Callable[[Tensor, Parts, int, bool, Tensor | None], Seen]


def run(
    x: Tensor, state: Parts, lengths: Tensor | None, shape: Shape, kernel: Kernel, drop: Change
) -> tuple[Tensor, Parts]:
    """A padded batch is sorted for the kernels, longest first."""
    order, alive = None, None
    if lengths is not None:
        order = _by_length(lengths)
        x, lengths, state = x[order], lengths[order], tuple(part[:, order] for part in state)
        alive = recurrence.alive_at(lengths, x.shape[1])

    def one(x: Tensor, start: Parts, layer: int, back: bool) -> Ran:
        x = recurrence.reverse(x, lengths) if back else x
        upward, y, *rest = kernel(x, start, layer, back, alive)
        last = tuple(recurrence.final(u, part, lengths) for u, part in zip((y, *rest), start, strict=True))
        if not back:
            return upward, y, last
        in_text_order = recurrence.reverse(y, lengths)
        return in_text_order if upward is y else recurrence.reverse(upward, lengths), in_text_order, last

    y, state = _stacked(x.transpose(0, 1), state, shape, one, drop)
    if order is None:
        return y.transpose(0, 1), state
    unsorted = order.argsort()
    return y.transpose(0, 1)[unsorted], tuple(part[:, unsorted] for part in state)


def watch(
    x: Tensor, state: Parts, lengths: Tensor | None, shape: Shape, steps: Steps, drop: Change
) -> tuple[Tensor, Parts, Seen]:
    """In the given order of the batch, which what is seen keeps. Dropout meets the order that `run` gives it."""
    ended = None if lengths is None else ~length_mask(lengths, x.shape[1]).t()[..., None]
    seen: Seen = {}

    def one(x: Tensor, start: Parts, layer: int, back: bool) -> Ran:
        found = steps(x, start, layer, back, ended)
        seen.update({f"{suffix(layer, back)}.{name}": values for name, values in found.items()})
        last = [
            recurrence_steps.final(found[name], part, lengths, back) for name, part in zip(STATE, start, strict=False)
        ]
        return torch.stack(next(iter(found.values()))), torch.stack(found["hidden"]), tuple(last)

    order = None if lengths is None else _by_length(lengths)
    same_drop = drop if order is None else lambda x: drop(x[:, order])[:, order.argsort()]
    y, state = _stacked(x.transpose(0, 1), state, shape, one, same_drop)
    return y.transpose(0, 1), state, seen


def _stacked(
    x: Tensor, state: Parts, shape: Shape, one: Callable[[Tensor, Parts, int, bool], Ran], drop: Change
) -> tuple[Tensor, Parts]:
    """x (T, B, D) -> (T, B, H·directions), final state"""
    layers, directions = shape
    finals: list[Parts] = []
    for layer in range(layers):
        x = drop(x) if layer else x
        upwards, outputs = [], []
        for back in (False, True)[:directions]:
            upward, output, last = one(x, tuple(part[len(finals)] for part in state), layer, back)
            upwards.append(upward)
            outputs.append(output)
            finals.append(last)
        x = _side_by_side(upwards)
    return _side_by_side(outputs), tuple(torch.stack(part) for part in zip(*finals, strict=True))


def _side_by_side(directions: Sequence[Tensor]) -> Tensor:
    return directions[0] if len(directions) == 1 else torch.cat(list(directions), -1)


def _by_length(lengths: Tensor) -> Tensor:
    return lengths.argsort(descending=True, stable=True)


def suffix(layer: int, back: bool) -> str:
    """Of torch's parameters: l0, l0_reverse, l1, …"""
    return f"l{layer}{'_reverse' if back else ''}"
