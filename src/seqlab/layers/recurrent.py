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

from seqlab.core.errors import UsageError, nearest
from seqlab.core.state import State
from seqlab.ops import recurrence, recurrence_stack, recurrence_steps
from seqlab.ops.masks import check_lengths, length_mask
from seqlab.ops.recurrence_steps import Parts, Seen

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
        x, parts, lengths = self._checked(x, state, lengths)
        if 0 in x.shape[:2]:
            return x.new_zeros(*x.shape[:2], self.hidden_size * self.directions), self._joined(parts)
        y, parts = self._run(x, parts, lengths)
        return y, self._joined(parts)

    def watch(
        self, x: Tensor, state: State = None, lengths: Tensor | None = None
    ) -> tuple[Tensor, State, dict[str, list[Tensor]]]:
        """The same as calling the layer, by the plain loop, with what happens inside at each step.

        For each of `watched_names` T tensors (B, H): entry t for position t, zero beyond a length. Each step reads the
        very tensors listed for the step before, so the gradient by one of them is its total derivative.
        """
        x, parts, lengths = self._checked(x, state, lengths)
        if 0 in x.shape[:2]:
            nothing = [x.new_zeros(x.shape[0], self.hidden_size)] * x.shape[1]
            return *self(x, state), {name: nothing for name in self.watched_names()}
        y, parts, seen = recurrence_stack.watch(x, parts, lengths, self._shape(), self._steps, self._drop)
        return y, self._joined(parts), seen

    def watched_names(self) -> list[str]:
        """What `watch` lists, for every layer and direction: l0.hidden, …, l0_reverse.hidden, …"""
        places = [(layer, bool(back)) for layer in range(self.num_layers) for back in range(self.directions)]
        return [f"{recurrence_stack.suffix(*place)}.{name}" for place in places for name in self._watched()]

    @abstractmethod
    def _watched(self) -> tuple[str, ...]:
        """What one layer and direction lists."""

    @abstractmethod
    def _kernel(self, x: Tensor, start: Parts, layer: int, back: bool, alive: recurrence.Alive) -> Parts:
        """See `recurrence_stack.Kernel`."""

    @abstractmethod
    def _steps(self, x: Tensor, start: Parts, layer: int, back: bool, ended: Tensor | None) -> Seen:
        """See `recurrence_stack.Steps`."""

    def _run(self, x: Tensor, state: Parts, lengths: Tensor | None) -> tuple[Tensor, Parts]:
        return recurrence_stack.run(x, state, lengths, self._shape(), self._kernel, self._drop)

    def _drop(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.dropout, self.training)

    def _shape(self) -> tuple[int, int]:
        return self.num_layers, self.directions

    def _weights(self, layer: int, back: bool) -> Parts:
        """w_ih, w_hh, b_ih, b_hh; a layer without biases has zeros."""
        suffix = recurrence_stack.suffix(layer, back)
        weights = [getattr(self, f"weight_{part}_{suffix}") for part in ("ih", "hh")]
        if not self.bias:
            return (*weights, *(weights[0].new_zeros(len(weights[0])) for _ in range(2)))
        return (*weights, *(getattr(self, f"bias_{part}_{suffix}") for part in ("ih", "hh")))

    def _checked(self, x: Tensor, state: State, lengths: Tensor | None) -> tuple[Tensor, Parts, Tensor | None]:
        """x with zeros in the padding, the parts of the state, and lengths unless all are full."""
        self._check(x, state)
        B, T, _ = x.shape
        lengths = None if lengths is None else check_lengths(lengths, B, T).to(x.device)
        if lengths is not None and bool((lengths == T).all()):
            lengths = None
        if lengths is not None:  # what stands in the padding must not matter, not even NaN
            x = x.masked_fill(~length_mask(lengths, T)[..., None], 0.0)
        return x, self._parts(self._zero_state(x) if state is None else state), lengths

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

    def _joined(self, parts: Parts) -> State:
        return parts[0]

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


class RNN(Recurrent):
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

    def _kernel(self, x: Tensor, start: Parts, layer: int, back: bool, alive: recurrence.Alive) -> Parts:
        w_ih, w_hh, b_ih, b_hh = self._weights(layer, back)
        g0 = self._before(start)
        g = recurrence.rnn(x, g0, w_ih, w_hh, b_ih + b_hh, self.nonlinearity, alive)
        if self.form == "post":
            return g, g
        return g, recurrence.rnn_activations(x, g0, g, w_ih, w_hh, b_ih + b_hh, alive)

    def _steps(self, x: Tensor, start: Parts, layer: int, back: bool, ended: Tensor | None) -> Seen:
        w_ih, w_hh, b_ih, b_hh = self._weights(layer, back)
        steps = recurrence_steps.rnn if self.form == "post" else recurrence_steps.rnn_pre
        return steps(x, self._before(start), w_ih, w_hh, b_ih + b_hh, self.nonlinearity, ended, back)

    def _watched(self) -> tuple[str, ...]:
        return recurrence_steps.RNN if self.form == "post" else recurrence_steps.RNN_PRE

    def _before(self, start: Parts) -> Tensor:
        """What the first step reads: g_0, in the pre form φ(h_0)."""
        g0: Tensor = start[0] if self.form == "post" else getattr(torch, self.nonlinearity)(start[0])
        return g0

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


class GRU(Recurrent):
    """r, z = σ(W x + b + U h + c), ĥ = tanh(W x + b + r ∘ (U h + c)), h' = (1−z) ∘ h + z ∘ ĥ: z = 1 overwrites.

    torch.nn.GRU has h' = (1−z) ∘ ĥ + z ∘ h. Since σ(−a) = 1 − σ(a), negating the rows of z converts exactly.
    """

    gates = 3
    torch_type = nn.GRU

    def _kernel(self, x: Tensor, start: Parts, layer: int, back: bool, alive: recurrence.Alive) -> Parts:
        w_ih, w_hh, b_ih, b_hh = self._weights(layer, back)
        y = recurrence.gru(x, start[0], w_ih, w_hh, b_ih, b_hh, alive)
        return y, y

    def _steps(self, x: Tensor, start: Parts, layer: int, back: bool, ended: Tensor | None) -> Seen:
        w_ih, w_hh, b_ih, b_hh = self._weights(layer, back)
        return recurrence_steps.gru(x, start[0], w_ih, w_hh, b_ih, b_hh, ended, back)

    def _watched(self) -> tuple[str, ...]:
        return recurrence_steps.GRU

    def _converted(self, weight: Tensor) -> Tensor:
        reset, update, candidate = weight.detach().chunk(3)
        return torch.cat([reset, -update, candidate])


class LSTM(Recurrent):
    """i, f, o = σ(·), c̃ = tanh(·), c' = f ∘ c + i ∘ c̃, h' = o ∘ tanh(c').

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

    def _joined(self, parts: Parts) -> State:
        return parts

    def _run(self, x: Tensor, state: Parts, lengths: Tensor | None) -> tuple[Tensor, Parts]:
        """Several steps without padding go to torch's fused loop, all layers and directions in one call."""
        if lengths is not None or x.shape[1] == 1:
            return super()._run(x, state, lengths)
        weights = [getattr(self, name) for name, _ in self._shapes()]
        options = (self.bias, self.num_layers, self.dropout, self.training, self.bidirectional, True)
        y, *finals = torch.lstm(x, state, weights, *options)
        return y, tuple(finals)

    def _kernel(self, x: Tensor, start: Parts, layer: int, back: bool, alive: recurrence.Alive) -> Parts:
        w_ih, w_hh, b_ih, b_hh = self._weights(layer, back)
        h, c = start
        y, cells = recurrence.lstm(x, h, c, w_ih, w_hh, b_ih + b_hh, alive)
        return y, y, cells

    def _steps(self, x: Tensor, start: Parts, layer: int, back: bool, ended: Tensor | None) -> Seen:
        w_ih, w_hh, b_ih, b_hh = self._weights(layer, back)
        h, c = start
        return recurrence_steps.lstm(x, (h, c), w_ih, w_hh, b_ih + b_hh, ended, back)

    def _watched(self) -> tuple[str, ...]:
        return recurrence_steps.LSTM
