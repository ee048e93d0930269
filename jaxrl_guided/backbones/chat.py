"""Chat templates as token ids that are only ever appended.

A template turns whole lists of messages into text. Of that only what is new in a turn is encoded
here: what the model itself has said stays as the ids that it drew, never decoded and encoded again
(another spelling of the same text in tokens would have another probability).
"""

import dataclasses
import json
import os
from collections.abc import Sequence
from typing import Any, Literal, TypedDict

import numpy as np
from etils import epath

from jaxrl_guided.backbones.config import BackboneError
from jaxrl_guided.backbones.tokenizer import Tokenizer

# Stands for what the assistant has said while a template is rendered.
_ANSWER = "jaxrl-guided-answer"


class Message(TypedDict):
    """One entry of a chat."""

    role: Literal["system", "user", "tool"]
    content: str


def first_messages(system: str, text: str) -> list[Message]:
    """How a chat begins: what the system says, and the user's first text."""
    return [{"role": "system", "content": system}, {"role": "user", "content": text}]


@dataclasses.dataclass(frozen=True)
class ChatTemplate:
    """A jinja template in Hugging Face's form, and the special tokens that it may name.

    Attributes:
      source: the template.
      bos, eos: texts of the tokens, empty if there are none.
      ends: ids of other tokens that end an answer (`generation_config.json`).
    """

    source: str
    bos: str = ""
    eos: str = ""
    ends: tuple[int, ...] = ()


NANO_TEMPLATE = ChatTemplate(
    "{% for message in messages %}<bos>{{ message.role }}\n{{ message.content }}<eos>{% endfor %}"
    "{% if add_generation_prompt %}<bos>assistant\n{% endif %}",
    "<bos>",
    "<eos>",
)


class Chat:
    """Turns of a chat as ids.

    Args:
      tokenizer: of the backbone.
      template: of the backbone; None if it has none.

    Attributes:
      stop_ids: ids that end an answer: the end of a text, what the template closes an assistant's
        message with, where that is a special token, and the template's `ends`.
      closing: the one of them that a demonstrated answer ends with.

    Raises:
      BackboneError: there is no template, it cannot be rendered, it changes what the assistant has
        said, or one of its `ends` is no token.
    """

    def __init__(self, tokenizer: Tokenizer, template: ChatTemplate | None) -> None:
        if template is None:
            raise BackboneError(
                "the backbone has no chat template (chat_template.jinja, or chat_template in "
                "tokenizer_config.json): take an instruct model or add one"
            )
        os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")  # that torch is absent
        import transformers  # slow to import, and needed only here

        if unknown := [end for end in template.ends if not 0 <= end < tokenizer.vocab_size]:
            raise BackboneError(
                f"generation_config.json: eos_token_id {unknown[0]} is no id of the tokenizer"
            )
        self._tokenizer = tokenizer
        named = {"bos_token": template.bos, "eos_token": template.eos}
        self._renderer = transformers.PreTrainedTokenizerFast(
            tokenizer_object=tokenizer.backend,
            chat_template=template.source,
            **{name: token for name, token in named.items() if token},
        )
        close = self._encode(self._after_answer([{"role": "user", "content": "?"}]))[:1]
        special = {i for i, t in tokenizer.backend.get_added_tokens_decoder().items() if t.special}
        ends = [*close, tokenizer.backend.token_to_id(template.eos)]
        known = [end for end in ends if end in special]
        self.closing = known[0] if known else None
        self.stop_ids = tuple(sorted({*known, *template.ends}))

    def opening(self, messages: Sequence[Message]) -> list[int]:
        """Ids of a new chat, up to where the assistant speaks."""
        return self._encode(self._render(list(messages)))

    def reply(self, messages: Sequence[Message], last: int) -> list[int]:
        """Ids of new messages after an answer, up to where the assistant speaks again.

        Args:
          messages: at least one.
          last: the answer's last token; an answer that was cut off is closed first.
        """
        ids = self._encode(self._after_answer(list(messages)))
        return ids[1:] if ids[:1] == [last] else ids

    def _after_answer(self, messages: list[Message]) -> str:
        spoken = [{"role": "user", "content": "?"}, {"role": "assistant", "content": _ANSWER}]
        text = self._render([*spoken, *messages])
        if text.count(_ANSWER) != 1:
            raise BackboneError(
                "the chat template does not keep an answer as it is (it appears "
                f"{text.count(_ANSWER)} times in the text, not once), so turns cannot be appended"
            )
        return text.partition(_ANSWER)[2]

    def _render(self, messages: Sequence[Any]) -> str:
        try:
            text = self._renderer.apply_chat_template(
                list(messages), tokenize=False, add_generation_prompt=True
            )
        except Exception as error:  # jinja's, and what templates raise themselves
            roles = ", ".join(message["role"] for message in messages)
            raise BackboneError(
                f"the chat template cannot render messages of {roles}: {error}"
            ) from error
        assert isinstance(text, str)
        return text

    def _encode(self, text: str) -> list[int]:
        return self._tokenizer.backend.encode(text, add_special_tokens=False).ids


class Conversation:
    """What one slot has read and said, as ids that are only ever appended."""

    def __init__(self) -> None:
        self._ids: list[int] = []
        self._spoken: list[bool] = []
        self._log_probs: list[float] = []

    def __len__(self) -> int:
        return len(self._ids)

    def read(self, ids: Sequence[int]) -> None:
        """Appends what the model was told."""
        self._append(ids, False, [0.0] * len(ids))

    def said(
        self, ids: Sequence[int] | np.ndarray, log_probs: Sequence[float] | np.ndarray
    ) -> None:
        """Appends an answer as it was drawn.

        Raises:
          ValueError: there are not as many log-probabilities as ids.
        """
        if len(ids) != len(log_probs):
            raise ValueError(f"{len(ids)} tokens have {len(log_probs)} log-probabilities")
        self._append(ids, True, log_probs)

    def arrays(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Ids `i32[T]`, which of them the model drew `bool[T]`, and with what log-probability."""
        return (
            np.array(self._ids, np.int32),
            np.array(self._spoken, bool),
            np.array(self._log_probs, np.float32),
        )

    def _append(self, ids: Any, spoken: bool, log_probs: Any) -> None:
        self._ids += [int(token) for token in ids]
        self._spoken += [spoken] * len(ids)
        self._log_probs += [float(number) for number in log_probs]


def read_template(root: epath.Path) -> ChatTemplate | None:
    """The template of a Hugging Face directory, or None.

    Raises:
      BackboneError: `tokenizer_config.json` or `generation_config.json` is not JSON.
    """
    raw = _read_json(root / "tokenizer_config.json")
    source: Any = raw.get("chat_template")
    if (root / "chat_template.jinja").is_file():
        source = (root / "chat_template.jinja").read_text()
    if isinstance(source, list):  # several by name
        source = {entry["name"]: entry["template"] for entry in source}.get("default")
    if not source:
        return None
    ends = _read_json(root / "generation_config.json").get("eos_token_id")
    ends = ends if isinstance(ends, list) else [ends]
    return ChatTemplate(
        source,
        _token(raw.get("bos_token")),
        _token(raw.get("eos_token")),
        tuple(end for end in ends if end is not None),
    )


def _read_json(path: epath.Path) -> dict[str, Any]:
    """Its contents; nothing if there is no such file."""
    if not path.is_file():
        return {}
    try:
        return json.loads(path.read_text())
    except json.JSONDecodeError as error:
        raise BackboneError(f"{path}: not valid JSON ({error})") from None


def write_template(root: epath.Path, template: ChatTemplate) -> None:
    """Writes what `read_template` reads."""
    (root / "chat_template.jinja").write_text(template.source)
    named = {"bos_token": template.bos, "eos_token": template.eos}
    found = {name: token for name, token in named.items() if token}
    (root / "tokenizer_config.json").write_text(json.dumps(found, indent=2) + "\n")
    if template.ends:
        ends = {"eos_token_id": list(template.ends)}
        (root / "generation_config.json").write_text(json.dumps(ends, indent=2) + "\n")


def _token(raw: Any) -> str:
    """A special token's text; older files keep it in a dictionary."""
    return (raw.get("content") if isinstance(raw, dict) else raw) or ""
