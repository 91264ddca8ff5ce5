"""Weights and training state as safetensors, written atomically and checked when read.

The file's metadata holds a JSON record and the SHA-256 of everything in it, so that damage is found
before anything is used. No pickle is ever written or read.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from seqlab.core.errors import DamageError, SeqlabError
from seqlab.core.files import canonical_json, write_bytes

FORMAT = 2  # 1: three keys of metadata, in an order that differed from file to file
Tensors = dict[str, Tensor]


def save_tensors(path: Path, tensors: Tensors, record: dict[str, Any]) -> None:
    """The same tensors and record give the same bytes: metadata has one key, since the order of several is random."""
    body = {name: tensor.detach().contiguous() for name, tensor in tensors.items()}
    text = canonical_json(record).decode()
    about = {"format": FORMAT, "record": record, "sha256": _digest(body, text)}
    write_bytes(path, save(body, {"seqlab": canonical_json(about).decode()}))


def load_tensors(path: Path) -> tuple[Tensors, dict[str, Any]]:
    """Tensors and record of a file written by `save_tensors`; raises DamageError and names it otherwise."""
    try:
        with safe_open(path, framework="pt") as file:
            about = _about(file.metadata() or {})
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    except (SafetensorError, OSError, ValueError, KeyError, TypeError) as error:
        raise DamageError(f"{path} is damaged or missing and was not loaded ({_one_line(error)})") from None
    if about["format"] not in (1, FORMAT):
        raise SeqlabError(
            f"{path} has format {about['format']}, this seqlab reads {FORMAT}; use the version that wrote it"
        )
    record: dict[str, Any] = about["record"]
    if _digest(tensors, canonical_json(record).decode()) != about["sha256"]:
        raise DamageError(f"{path} is damaged (checksum differs) and was not loaded; restore it from a copy")
    return tensors, record


def _about(metadata: dict[str, str]) -> dict[str, Any]:
    """Format, record and checksum, as this version writes them or as format 1 did."""
    if "seqlab" in metadata:
        about: dict[str, Any] = json.loads(metadata["seqlab"])
        return {key: about[key] for key in ("format", "record", "sha256")}
    if metadata.get("format") == "1":
        return {"format": 1, "record": json.loads(metadata["record"]), "sha256": metadata["sha256"]}
    return {"format": metadata.get("format")}


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:120]


def _digest(tensors: Tensors, record: str) -> str:
    digest = hashlib.sha256(record.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


# --------------------------------------------------------------------------- parts of a training state


def with_prefix(prefix: str, tensors: Tensors) -> Tensors:
    return {f"{prefix}{name}": tensor for name, tensor in tensors.items()}


def without_prefix(prefix: str, tensors: Tensors) -> Tensors:
    return {name.removeprefix(prefix): t for name, t in tensors.items() if name.startswith(prefix)}


def load_weights(model: nn.Module, weights: Tensors, source: str) -> None:
    """Copy weights into the model, or say in one line what does not fit."""
    own = model.state_dict()
    if own.keys() != weights.keys():
        odd = sorted(own.keys() ^ weights.keys())[0]
        raise SeqlabError(f"{source} does not fit this model: '{odd}' is only in one of them")
    for name, tensor in weights.items():
        if own[name].shape != tensor.shape:
            have, want = tuple(tensor.shape), tuple(own[name].shape)
            raise SeqlabError(f"{source} does not fit this model: '{name}' has shape {have}, not {want}")
    model.load_state_dict(weights)


def optimiser_tensors(model: nn.Module, optimiser: torch.optim.Optimizer) -> Tensors:
    found: Tensors = {}
    for name, parameter in model.named_parameters():
        for key, value in optimiser.state.get(parameter, {}).items():
            found[f"{name}/{key}"] = value
    return found


def load_optimiser(model: nn.Module, optimiser: torch.optim.Optimizer, tensors: Tensors) -> None:
    parameters = dict(model.named_parameters())
    for path, tensor in tensors.items():
        name, _, key = path.rpartition("/")
        optimiser.state[parameters[name]][key] = tensor.clone()
