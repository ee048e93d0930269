"""A trained language model as files that others read."""

from collections.abc import Sequence
from typing import Any

from etils import epath

from jaxrl_guided.backbones.chat import write_template
from jaxrl_guided.backbones.hf import export_hf
from jaxrl_guided.backbones.load import Backbone
from jaxrl_guided.backbones.lora import LoraConfig, export_peft


def save_model(
    backbone: Backbone,
    trained: Any,
    root: epath.Path,
    lora: LoraConfig | None,
    name: str,
    stop_ids: Sequence[int],
) -> None:
    """A Hugging Face directory that `load_backbone` reads, or PEFT's files of the adapters.

    What was there is replaced once the new files are whole.

    Args:
      backbone: that training began with.
      trained: adapters, or all weights.
      lora: of the adapters; None: all weights were trained.
      name: of the backbone, for those who load the adapters.
      stop_ids: that end an answer of the chat.
    """
    fresh = root.with_name(f"{root.name}.tmp")
    if fresh.exists():
        fresh.rmtree()
    if lora is not None:
        export_peft(lora, trained, fresh, base=name)
    else:
        export_hf(backbone.config, trained, fresh)
        backbone.tokenizer.backend.save(str(fresh / "tokenizer.json"))
        assert backbone.template is not None  # else there were no chat
        write_template(fresh, backbone.template, stop_ids)
    if root.exists():
        root.rmtree()
    fresh.rename(root)
