"""Recurrent layers: ``y, state = layer(x, state, lengths)``, batch first.

Parameters have torch's names and shapes, so `from_torch` and `to_torch` are copies. Two things differ at the start:
recurrent matrices are orthogonal (every singular value 1), so that early gradients neither vanish nor explode, and
the LSTM's forget gate is open.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from seqlab.core.errors import UsageError, nearest
from seqlab.core.state import State
from seqlab.ops import recurrence
from seqlab.ops.masks import check_lengths, length_mask

RECURRENT_INITS = ("orthogonal", "uniform")
FORMS = ("post", "pre")


class Recurrent(nn.Module):
    """What the three have in common: parameters, their conversion, checks.

    x (B, T, D), state (layers·directions, B, H), for the LSTM (h, c), lengths (B,)
        -> y (B, T, H·directions), zero beyond a length, and the state at each sequence's length
    """

    gates: ClassVar[int]
    torch_type: ClassVar[type[Any]]

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        *,
        bias: bool = True,
        dropout: float = 0.0,
        bidirectional: bool = False,
        recurrent_init: str = "orthogonal",
    ) -> None:
        super().__init__()
        for name, size in (("input_size", input_size), ("hidden_size", hidden_size), ("num_layers", num_layers)):
            if size < 1:
                raise UsageError(f"{name} {size} is too small; the least is 1")
        if not 0 <= dropout <= 1:
            raise UsageError(f"dropout {dropout} is not a share between 0 and 1")
        if recurrent_init not in RECURRENT_INITS:
            raise UsageError(
                f"recurrent_init '{recurrent_init}' is not known{nearest(recurrent_init, RECURRENT_INITS)}"
            )
        self.input_size, self.hidden_size, self.num_layers = input_size, hidden_size, num_layers
        self.bias, self.dropout, self.bidirectional = bias, dropout, bidirectional
        self.recurrent_init = recurrent_init
        for name, shape in self._shapes():
            self.register_parameter(name, nn.Parameter(torch.empty(shape)))
        self.reset_parameters()

    @property
    def directions(self) -> int:
        return 2 if self.bidirectional else 1

    def _shapes(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Names and shapes of the parameters, in torch's order."""
        rows = self.gates * self.hidden_size
        for layer in range(self.num_layers):
            columns = self.input_size if layer == 0 else self.hidden_size * self.directions
            for direction in ("", "_reverse")[: self.directions]:
                yield f"weight_ih_l{layer}{direction}", (rows, columns)
                yield f"weight_hh_l{layer}{direction}", (rows, self.hidden_size)
                if self.bias:
                    yield f"bias_ih_l{layer}{direction}", (rows,)
                    yield f"bias_hh_l{layer}{direction}", (rows,)

    @torch.no_grad()
    def reset_parameters(self) -> None:
        for name, weight in self.named_parameters():
            if self.recurrent_init == "uniform":
                nn.init.uniform_(weight, -(self.hidden_size**-0.5), self.hidden_size**-0.5)
            elif name.startswith("weight_hh"):
                for gate in weight.chunk(self.gates):
                    nn.init.orthogonal_(gate)
            elif name.startswith("weight_ih"):
                nn.init.normal_(weight, std=weight.shape[1] ** -0.5)
            else:
                nn.init.zeros_(weight)

    def forward(self, x: Tensor, state: State = None, lengths: Tensor | None = None) -> tuple[Tensor, State]:
        self._check(x, state)
        B, T, _ = x.shape
        lengths = None if lengths is None else check_lengths(lengths, B, T)
        if T == 0 or B == 0:
            empty = x.new_zeros(B, T, self.hidden_size * self.directions)
            return empty, self._zero_state(x) if state is None else state
        if lengths is not None and bool((lengths == T).all()):
            lengths = None
        if lengths is not None:  # what stands in the padding must not matter, not even NaN
            x = x.masked_fill(~length_mask(lengths, T)[..., None], 0.0)
        return self._run(x, state, lengths)

    @abstractmethod
    def _run(self, x: Tensor, state: State, lengths: Tensor | None) -> tuple[Tensor, State]: ...

    def _zero_state(self, x: Tensor) -> State:
        return x.new_zeros(self.num_layers * self.directions, x.shape[0], self.hidden_size)

    def _check(self, x: Tensor, state: State) -> None:
        if x.ndim != 3 or x.shape[2] != self.input_size:
            raise UsageError(f"x has shape {tuple(x.shape)}, but the layer reads (batch, time, {self.input_size})")
        expected = (self.num_layers * self.directions, x.shape[0], self.hidden_size)
        for part in self._parts(state):
            if part.shape != expected:
                raise UsageError(f"the state has shape {tuple(part.shape)}, but the layer and x need {expected}")

    def _parts(self, state: State) -> tuple[Tensor, ...]:
        if state is not None and not isinstance(state, Tensor):
            raise UsageError(f"the state is one tensor, not {type(state).__name__}")
        return () if state is None else (state,)

    # ----------------------------------------------------------------------- to and from torch

    @classmethod
    def from_torch(cls, module: Any) -> Self:
        """The same layer with the weights of a torch.nn module, in its dtype and on its device."""
        if not isinstance(module, cls.torch_type):
            raise UsageError(
                f"{cls.__name__}.from_torch takes a torch.nn.{cls.torch_type.__name__}, not {type(module).__name__}"
            )
        if module.proj_size:
            raise UsageError(f"proj_size {module.proj_size} has no counterpart here; only 0 converts")
        with torch.random.fork_rng(devices=[]):  # the first weights are thrown away
            layer = cls._like(module)
        layer.to(module.weight_ih_l0).train(module.training)
        layer.load_state_dict({name: layer._converted(value) for name, value in module.state_dict().items()})
        return layer

    @classmethod
    def _like(cls, module: Any) -> Self:
        return cls(
            module.input_size,
            module.hidden_size,
            module.num_layers,
            bias=module.bias,
            dropout=module.dropout,
            bidirectional=module.bidirectional,
            **cls._options_of(module),
        )

    def to_torch(self) -> Any:
        """A torch.nn module (batch_first=True) that computes the same."""
        with torch.random.fork_rng(devices=[]):
            module = self._torch_like()
        module.to(self.weight_ih_l0).train(self.training)
        module.load_state_dict({name: self._converted(value) for name, value in self.state_dict().items()})
        return module

    def _torch_like(self) -> Any:
        return self.torch_type(
            self.input_size,
            self.hidden_size,
            self.num_layers,
            bias=self.bias,
            batch_first=True,
            dropout=self.dropout if self.num_layers > 1 else 0.0,
            bidirectional=self.bidirectional,
            **self._torch_options(),
        )

    @classmethod
    def _options_of(cls, module: Any) -> dict[str, Any]:
        return {}

    def _torch_options(self) -> dict[str, Any]:
        return {}

    def _converted(self, weight: Tensor) -> Tensor:
        """A parameter as the other side stores it; the same both ways."""
        return weight.detach().clone()

    def extra_repr(self) -> str:
        return (
            f"{self.input_size}, {self.hidden_size}, num_layers={self.num_layers}, bidirectional={self.bidirectional}"
        )


class _OwnKernel(Recurrent):
    """Layers over one direction's kernel of `ops.recurrence`."""

    def _run(self, x: Tensor, state: State, lengths: Tensor | None) -> tuple[Tensor, State]:
        alive, order = None, None
        state = self._zero_state(x) if state is None else state
        if lengths is not None:
            lengths, order = lengths.to(x.device).sort(descending=True, stable=True)
            alive = recurrence.alive_at(lengths, x.shape[1])
            x, state = x[order], state[:, order]
        y, state = self._stack(x.transpose(0, 1), state, lengths, alive)
        y = y.transpose(0, 1)
        if order is None:
            return y, state
        back = order.argsort()
        return y[back], state[:, back]

    def _stack(
        self, x: Tensor, state: Tensor, lengths: Tensor | None, alive: recurrence.Alive
    ) -> tuple[Tensor, Tensor]:
        """All layers and directions, time first.    x (T, B, D) -> (T, B, H·directions), (layers·directions, B, H)"""
        finals: list[Tensor] = []
        for layer in range(self.num_layers):
            if layer:
                x = F.dropout(x, self.dropout, self.training)
            upwards, outputs = [], []
            for direction in range(self.directions):
                h0 = state[len(finals)]
                inputs = recurrence.reverse(x, lengths) if direction else x
                upward, y = self._direction(inputs, h0, self._weights(layer, direction), alive)
                finals.append(recurrence.final(y, h0, lengths))
                upwards.append(recurrence.reverse(upward, lengths) if direction else upward)
                outputs.append(upwards[-1] if y is upward else recurrence.reverse(y, lengths) if direction else y)
            x = torch.cat(upwards, -1) if self.bidirectional else upwards[0]
        y = torch.cat(outputs, -1) if self.bidirectional else outputs[0]
        return y, torch.stack(finals)

    def _weights(self, layer: int, direction: int) -> tuple[Tensor, ...]:
        """w_ih, w_hh, b_ih, b_hh; a layer without biases has zeros."""
        suffix = f"l{layer}{'_reverse' if direction else ''}"
        weights = [getattr(self, f"weight_{part}_{suffix}") for part in ("ih", "hh")]
        if not self.bias:
            return (*weights, *(weights[0].new_zeros(len(weights[0])) for _ in range(2)))
        return (*weights, *(getattr(self, f"bias_{part}_{suffix}") for part in ("ih", "hh")))

    @abstractmethod
    def _direction(
        self, x: Tensor, h0: Tensor, weights: tuple[Tensor, ...], alive: recurrence.Alive
    ) -> tuple[Tensor, Tensor]:
        """What the layer above reads, and what this layer puts out.    x (T, B, D) -> two of (T, B, H)"""


class RNN(_OwnKernel):
    """Post form: g_t = φ(W g_{t−1} + U x_t + b), y = state = g.

    Pre form: h_t = W φ(h_{t−1}) + U x_t + b, y = state = h; layers above read φ(h), and no state means φ(h_0) = 0.
    It runs on the post form's kernel, since φ(h_t) obeys the post form.
    """

    gates = 1
    torch_type = nn.RNN

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        *,
        nonlinearity: str = "tanh",
        form: str = "post",
        **options: Any,
    ) -> None:
        if nonlinearity not in recurrence.SQUASH:
            raise UsageError(f"nonlinearity '{nonlinearity}' is not known{nearest(nonlinearity, recurrence.SQUASH)}")
        if form not in FORMS:
            raise UsageError(f"form '{form}' is not known{nearest(form, FORMS)}")
        super().__init__(input_size, hidden_size, num_layers, **options)
        self.nonlinearity, self.form = nonlinearity, form

    def _direction(
        self, x: Tensor, h0: Tensor, weights: tuple[Tensor, ...], alive: recurrence.Alive
    ) -> tuple[Tensor, Tensor]:
        w_ih, w_hh, b_ih, b_hh = weights
        g0 = h0 if self.form == "post" else getattr(torch, self.nonlinearity)(h0)
        g = recurrence.rnn(x, g0, w_ih, w_hh, b_ih + b_hh, self.nonlinearity, alive)
        if self.form == "post":
            return g, g
        return g, recurrence.rnn_activations(x, g0, g, w_ih, w_hh, b_ih + b_hh, alive)

    def _zero_state(self, x: Tensor) -> State:
        """φ(h_0) = 0: for the sigmoid of the pre form h_0 is −inf."""
        zeros = super()._zero_state(x)
        return zeros - torch.inf if self.form == "pre" and self.nonlinearity == "sigmoid" else zeros

    @classmethod
    def _options_of(cls, module: Any) -> dict[str, Any]:
        return {"nonlinearity": module.nonlinearity}

    def _torch_options(self) -> dict[str, Any]:
        if self.form == "pre":
            raise UsageError("torch.nn.RNN has no pre form; build the layer with form='post' to convert it")
        if self.nonlinearity == "sigmoid":
            raise UsageError("torch.nn.RNN has no nonlinearity 'sigmoid'; only 'tanh' and 'relu' convert")
        return {"nonlinearity": self.nonlinearity}


class GRU(_OwnKernel):
    """r, z = σ(W x + b + U h + c), ĥ = tanh(W x + b + r ∘ (U h + c)), h' = (1−z) ∘ h + z ∘ ĥ: z = 1 overwrites.

    torch.nn.GRU has h' = (1−z) ∘ ĥ + z ∘ h. Since σ(−a) = 1 − σ(a), negating the rows of z converts exactly.
    """

    gates = 3
    torch_type = nn.GRU

    def _direction(
        self, x: Tensor, h0: Tensor, weights: tuple[Tensor, ...], alive: recurrence.Alive
    ) -> tuple[Tensor, Tensor]:
        w_ih, w_hh, b_ih, b_hh = weights
        y = recurrence.gru(x, h0, w_ih, w_hh, b_ih, b_hh, alive)
        return y, y

    def _converted(self, weight: Tensor) -> Tensor:
        reset, update, candidate = weight.detach().chunk(3)
        return torch.cat([reset, -update, candidate])


class LSTM(Recurrent):
    """i, f, o = σ(·), c̃ = tanh(·), c' = f ∘ c + i ∘ c̃, h' = o ∘ tanh(c'), on torch's own kernel.

    The state is (h, c). The forget gate starts with bias `forget_bias`.
    """

    gates = 4
    torch_type = nn.LSTM

    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, *, forget_bias: float = 1.0, **options: Any
    ) -> None:
        self.forget_bias = forget_bias
        super().__init__(input_size, hidden_size, num_layers, **options)

    @torch.no_grad()
    def reset_parameters(self) -> None:
        super().reset_parameters()
        for name, bias in self.named_parameters():
            forget = bias[self.hidden_size : 2 * self.hidden_size]
            if name.startswith("bias_ih"):  # of the two added biases only one opens the gate
                forget.fill_(self.forget_bias)
            elif name.startswith("bias_hh"):
                forget.zero_()

    def _zero_state(self, x: Tensor) -> State:
        return super()._zero_state(x), super()._zero_state(x)

    def _parts(self, state: State) -> tuple[Tensor, ...]:
        if state is not None and not (isinstance(state, tuple) and len(state) == 2):
            raise UsageError(f"the state of an LSTM is the tuple (h, c), not {type(state).__name__}")
        return () if state is None else state

    def _run(self, x: Tensor, state: State, lengths: Tensor | None) -> tuple[Tensor, State]:
        state = self._zero_state(x) if state is None else state
        options = (self.bias, self.num_layers, self.dropout, self.training, self.bidirectional)
        weights = [getattr(self, name) for name, _ in self._shapes()]
        if lengths is None:
            y, h, c = torch.lstm(x, state, weights, *options, True)
            return y, (h, c)
        return self._run_packed(x, state, lengths, weights, options)

    def _run_packed(
        self, x: Tensor, state: State, lengths: Tensor, weights: list[Tensor], options: tuple[Any, ...]
    ) -> tuple[Tensor, State]:
        """Torch packs no empty sequence: those take one step, whose result is dropped."""
        T = x.shape[1]
        packed = pack_padded_sequence(x, lengths.clamp(min=1).cpu(), batch_first=True, enforce_sorted=False)
        order, back = packed.sorted_indices, packed.unsorted_indices
        assert order is not None
        assert back is not None
        sorted_state = tuple(part.index_select(1, order) for part in state)
        data, h, c = torch.lstm(packed.data, packed.batch_sizes, sorted_state, weights, *options)
        y, _ = pad_packed_sequence(PackedSequence(data, packed.batch_sizes, order, back), True, total_length=T)
        empty = (lengths == 0)[:, None]
        final = tuple(
            torch.where(empty, old, new.index_select(1, back)) for old, new in zip(state, (h, c), strict=True)
        )
        return y.masked_fill(empty[..., None], 0.0), final
