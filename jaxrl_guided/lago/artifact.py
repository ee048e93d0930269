"""A trained prior on disk: `prior.json` (what it is) and `prior.safetensors` (what was trained).

The backbone is named, not copied, unless it was fine-tuned in full; loading checks that the named
backbone still has the content that the prior was trained on.
"""

import dataclasses
import functools
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from etils import epath
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from jaxrl_guided.backbones.load import Backbone, load_backbone, random_backbone
from jaxrl_guided.backbones.lora import merge_lora
from jaxrl_guided.backbones.params import check_layers, init_params
from jaxrl_guided.backbones.presets import PRESETS
from jaxrl_guided.backbones.tokenizer import Tokenizer
from jaxrl_guided.lago.actions import recorded_map
from jaxrl_guided.lago.guidance import FrozenPrior
from jaxrl_guided.lago.prior import (
    HEADS,
    Prior,
    PriorSpec,
    PyTree,
    encode_texts,
    init_prior,
    seed_key,
    select_texts,
    weights_dtype,
)
from jaxrl_guided.runtime.checkpoint import content_hash
from jaxrl_guided.runtime.config import from_dict, to_dict
from jaxrl_guided.runtime.errors import UserError
from jaxrl_guided.runtime.files import read_json, write_json

FORMAT = 1
TEXT_CHUNK = 64


class PriorError(UserError):
    """A prior that cannot be used, with the reason."""


@dataclasses.dataclass(frozen=True)
class BackboneChoice:
    """Which backbone a prior is built on.

    Attributes:
      name: `smollm2-135m-instruct`, `nano`, or a directory with a Hugging Face or GGUF model; with
        `random_weights` also a shape of `backbones.presets`, as `tinyllama`, which reads bytes.
      num_layers: first layers that are kept, with the final norm; None keeps all.
      random_weights: replace the pretrained weights by random ones of the same shape (control).
    """

    name: str = "smollm2-135m-instruct"
    num_layers: int | None = 8
    random_weights: bool = False

    def load(self, seed: int = 0, dtype: jax.typing.DTypeLike = jnp.float32) -> Backbone:
        """Configuration, parameters and tokenizer.

        Args:
          seed: for `random_weights`.
          dtype: of the parameters.

        Raises:
          BackboneError: if the backbone cannot be read.
        """
        if self._is_shape:
            return random_backbone(self.name, self.num_layers, seed, dtype)
        backbone = load_backbone(self.name, self.num_layers, dtype)
        if not self.random_weights:
            return backbone
        std = float(np.std(np.asarray(backbone.params["embed"], np.float32)))
        params = init_params(backbone.config, seed, std=std, dtype=dtype)
        return dataclasses.replace(backbone, params=params)

    def check(self, dtype: jax.typing.DTypeLike = jnp.float32) -> None:
        """Raises BackboneError where `load` would."""
        if self._is_shape:
            check_layers(PRESETS[self.name], self.num_layers or 1)
        else:
            self.load(dtype=dtype)

    @property
    def _is_shape(self) -> bool:
        known = self.random_weights and self.name in PRESETS
        return known and not epath.Path(self.name).exists()


@dataclasses.dataclass(frozen=True)
class PriorCard:
    """What a saved prior says of itself.

    Attributes:
      choice: the backbone.
      spec: shapes.
      action_map: the environment's, and for continuous actions how they are squashed and labels
        clipped (`actions.recorded_map`); a learner must have the same.
      backbone_hash: of the parameters that the prior was trained on.
      seed: of initial weights.
      training: how it was trained and how well it did: `expert_steps` that it has seen, and what
        is of interest to people.
    """

    choice: BackboneChoice
    spec: PriorSpec
    action_map: dict[str, Any]
    backbone_hash: str
    seed: int
    training: dict[str, Any]


@dataclasses.dataclass(frozen=True)
class TrainedPrior:
    """A prior in memory, as `load_prior` gives it; `expert_steps` are those it has learned from."""

    spec: PriorSpec
    prior: Prior
    tokenizer: Tokenizer
    expert_steps: int


def new_prior(
    choice: BackboneChoice,
    spec_fields: dict[str, Any],
    mean: np.ndarray,
    std: np.ndarray,
    seed: int,
) -> tuple[PriorSpec, Prior, Tokenizer, str]:
    """An untrained prior on a backbone: `(spec, prior, tokenizer, backbone hash)`."""
    kind = weights_dtype(spec_fields.get("finetune", "lora"), spec_fields.get("dtype", "float32"))
    backbone = choice.load(seed, kind)
    spec = PriorSpec(backbone=backbone.config, **spec_fields)
    prior = init_prior(spec, backbone.params, mean, std, seed_key(seed, HEADS))
    return spec, prior, backbone.tokenizer, content_hash(backbone.params)


def save_prior(path: str | os.PathLike[str], card: PriorCard, prior: Prior) -> None:
    """Writes a prior into the new directory `path`, whole or not at all.

    Raises:
      PriorError: if something is there already.
    """
    path = Path(path)
    if path.exists():
        raise PriorError(f"prior directory {path} exists; choose another or remove it")
    parts = dict(vars(prior))
    if card.spec.finetune != "full":
        del parts["base"]
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(prefix=f".{path.name}-", dir=path.parent))
    try:
        save_file(_flatten(parts), unfinished / "prior.safetensors")
        write_json(unfinished / "prior.json", {"format": FORMAT, **_card_dict(card)})
        for file in unfinished.iterdir():  # safetensors makes files that only their owner may read
            file.chmod(0o644)
        unfinished.chmod(0o755)
        unfinished.rename(path)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise


def load_prior(
    path: str | os.PathLike[str], action_map: dict[str, Any] | None = None
) -> tuple[PriorCard, Prior, Tokenizer]:
    """Reads a prior and its backbone.

    Args:
      path: directory written by `save_prior`.
      action_map: of the learner's environment; None accepts any.

    Raises:
      PriorError: missing or damaged files, another format, another action map, another backbone.
      BackboneError: if the backbone cannot be read.
    """
    path = Path(path)
    card = _read_card(path)
    wanted = card.action_map if action_map is None else recorded_map(action_map)
    if wanted != card.action_map:
        raise PriorError(
            f"prior {path} was trained for actions {card.action_map}, "
            f"but the environment has {wanted}; train a prior for it"
        )
    weights = path / "prior.safetensors"
    try:
        stored = _unflatten(load_file(weights))
        parts = {"adapters": {}} | stored
    except (OSError, SafetensorError) as error:
        raise PriorError(f"prior weights {weights} cannot be read ({error})") from None
    backbone = card.choice.load(card.seed, weights_dtype(card.spec.finetune, card.spec.dtype))
    if backbone.config != card.spec.backbone or content_hash(backbone.params) != card.backbone_hash:
        raise PriorError(
            f"backbone '{card.choice.name}' is not the one that prior {path} was trained on; "
            "restore that one or train the prior anew"
        )
    if card.spec.finetune != "full":
        parts["base"] = backbone.params
    statistics = np.zeros(card.spec.state_size, np.float32)
    template = jax.eval_shape(
        functools.partial(init_prior, card.spec),
        backbone.params,
        statistics,
        statistics,
        jax.random.key(0),
    )
    if _shapes(parts) != _shapes(vars(template)):
        raise PriorError(
            f"prior weights {weights} do not have the arrays that {path / 'prior.json'} states"
        )
    if not all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(stored)):
        raise PriorError(f"prior weights {weights} are damaged, some are not finite")
    return card, jax.tree.map(jnp.asarray, Prior(**parts)), backbone.tokenizer


def freeze(
    spec: PriorSpec, prior: Prior, tokenizer: Tokenizer, texts: tuple[str, ...]
) -> FrozenPrior:
    """What the online stage needs: adapters merged, texts encoded, token embeddings dropped.

    Adapters stay beside weights in bfloat16, in which what they add would be lost.

    A text that several instructions share is encoded and kept once. The table takes 2 · layers ·
    key-value heads · head size numbers for each text and each token of the longest one.
    """
    row_of = {text: row for row, text in enumerate(dict.fromkeys(texts))}
    tokens, length = tokenizer.encode(tuple(row_of))
    if prior.adapters and spec.dtype == "float32":
        base = merge_lora(prior.base, prior.adapters, spec.lora.scale)
        prior = dataclasses.replace(prior, base=base, adapters={})
    encode = jax.jit(
        lambda prior, tokens, length: encode_texts(spec, prior, tokens, length, chunk=TEXT_CHUNK)
    )
    table = encode(prior, jnp.asarray(tokens), jnp.asarray(length))
    layers_only = {k: v for k, v in prior.base.items() if k not in ("embed", "lm_head")}
    layers_only = jax.tree.map(lambda leaf: leaf.astype(spec.dtype), layers_only)
    rows = jnp.array([row_of[text] for text in texts], jnp.int32)
    return FrozenPrior(dataclasses.replace(prior, base=layers_only), select_texts(table, rows))


def _card_dict(card: PriorCard) -> dict[str, Any]:
    plain = {field.name: getattr(card, field.name) for field in dataclasses.fields(card)}
    return plain | {"choice": to_dict(card.choice), "spec": to_dict(card.spec)}


def _read_card(path: Path) -> PriorCard:
    file = path / "prior.json"
    if not file.is_file():
        raise PriorError(f"no prior at {path}: prior.json is missing")
    try:
        data = read_json(file)
    except UserError as error:
        raise PriorError(str(error)) from None
    if not isinstance(data, dict) or data.pop("format", None) != FORMAT:
        raise PriorError(f"{file} has another format than {FORMAT}; train the prior anew")
    try:
        choice = from_dict(BackboneChoice, data.pop("choice"), "choice")
        spec = from_dict(PriorSpec, data.pop("spec"), "spec")
        card = PriorCard(choice=choice, spec=spec, **data)
        int(card.training["expert_steps"])
        return card
    except (KeyError, TypeError, UserError) as error:
        raise PriorError(
            f"{file} is damaged, its fields are not those of a prior: {error}"
        ) from None


def _shapes(tree: PyTree) -> PyTree:
    return jax.tree.map(lambda x: (x.shape, x.dtype), tree)


def _flatten(tree: PyTree) -> dict[str, np.ndarray]:
    return {
        "/".join(str(k.key) for k in keys): np.ascontiguousarray(leaf)
        for keys, leaf in jax.tree_util.tree_leaves_with_path(tree)
    }


def _unflatten(flat: dict[str, np.ndarray]) -> PyTree:
    tree: dict[str, Any] = {}
    for name, value in flat.items():
        *parents, last = name.split("/")
        node = tree
        for parent in parents:
            node = node.setdefault(parent, {})
        node[last] = value
    return tree
