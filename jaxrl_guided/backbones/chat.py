"""Chat templates as token ids that are only ever appended.

A template turns whole lists of messages into text. Of that only what is new in a turn is encoded
here: what the model itself has said stays as the ids that it drew, never decoded and encoded again
(another spelling of the same text in tokens would have another probability).
"""

import dataclasses
import json
import os
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict

import numpy as np
from etils import epath

from jaxrl_guided.backbones.config import BackboneError
from jaxrl_guided.backbones.files import read_json, read_text
from jaxrl_guided.backbones.tokenizer import Tokenizer

# Stands for what the assistant has said while a template is rendered.
_ANSWER = "jaxrl-guided-answer"


class Message(TypedDict):
    """One entry of a chat."""

    role: Literal["system", "user", "tool"]
    content: str


_QUESTION: Message = {"role": "user", "content": "?"}


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
      BackboneError: there is no template, it cannot be rendered, makes nothing of a message, has no
        place for the assistant, changes what the assistant has said, or names what is no token.
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
        for name, token in named.items():
            if token and tokenizer.backend.token_to_id(token) is None:
                raise BackboneError(
                    f"tokenizer_config.json: {name} {token!r} is no token of the tokenizer"
                )
        self._renderer = transformers.PreTrainedTokenizerFast(
            tokenizer_object=tokenizer.backend,
            chat_template=template.source,
            **{name: token for name, token in named.items() if token},
        )
        close = self._encode(self._around_answer([_QUESTION])[1])[:1]
        self._check_place()
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
        ids = self._encode(self._around_answer(messages)[1])
        return ids[1:] if ids[:1] == [last] else ids

    def _check_place(self) -> None:
        """Raises BackboneError if what the template prompts with does not lead up to an answer."""
        opening, before = self._render([_QUESTION]), self._around_answer()[0]
        self._encode(opening)
        prompted = self._render([_QUESTION], prompt=False) != opening
        missing = before.removeprefix(opening).strip()  # blanks (Llama-2) are the model's to say
        if missing and not prompted and before.startswith(opening):
            raise BackboneError(
                "the chat template has no place for the assistant: add_generation_prompt changes "
                f"nothing, but must lead up to an answer by {missing!r}"
            )

    def _around_answer(self, messages: Sequence[Message] = ()) -> tuple[str, str]:
        """Text before and after an answer to a question, the latter with more messages."""
        spoken = [_QUESTION, {"role": "assistant", "content": _ANSWER}]
        text = self._render([*spoken, *messages], prompt=bool(messages))
        if text.count(_ANSWER) != 1:
            raise BackboneError(
                "the chat template does not keep an answer as it is (it appears "
                f"{text.count(_ANSWER)} times in the text, not once), so turns cannot be appended"
            )
        before, _, after = text.partition(_ANSWER)
        return before, after

    def _render(self, messages: Sequence[Any], prompt: bool = True) -> str:
        """Text of messages, and of what comes before the assistant's next one."""
        try:
            text = self._renderer.apply_chat_template(
                list(messages), tokenize=False, add_generation_prompt=prompt
            )
        except Exception as error:  # jinja's, and what templates raise themselves
            roles = ", ".join(message["role"] for message in messages)
            raise BackboneError(
                f"the chat template cannot render messages of {roles}: {error}"
            ) from error
        assert isinstance(text, str)
        return text

    def _encode(self, text: str) -> list[int]:
        ids = self._tokenizer.backend.encode(text, add_special_tokens=False).ids
        if not ids:
            raise BackboneError(f"the chat template makes nothing of a message: {text!r}, no token")
        return ids


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
      BackboneError: `chat_template.jinja`, `tokenizer_config.json` or `generation_config.json`
        cannot be read, or an entry is of another type; names the file.
    """
    config, lone = root / "tokenizer_config.json", root / "chat_template.jinja"
    raw = _read_entries(config)
    source = read_text(lone) if lone.is_file() else _source(config, raw.get("chat_template"))
    if not source:
        return None
    bos, eos = (_token(config, raw, name) for name in ("bos_token", "eos_token"))
    return ChatTemplate(source, bos, eos, _read_ends(root / "generation_config.json"))


def write_template(root: epath.Path, template: ChatTemplate, stop_ids: Sequence[int] = ()) -> None:
    """Writes what `read_template` reads.

    Args:
      stop_ids: `Chat.stop_ids`, so that others stop where the chat does; the template's own `ends`
        if there are none.
    """
    (root / "chat_template.jinja").write_text(template.source)
    named = {"bos_token": template.bos, "eos_token": template.eos}
    found = {name: token for name, token in named.items() if token}
    (root / "tokenizer_config.json").write_text(json.dumps(found, indent=2) + "\n")
    if ends := list(stop_ids) or list(template.ends):
        text = json.dumps({"eos_token_id": ends}, indent=2)
        (root / "generation_config.json").write_text(text + "\n")


def _read_entries(path: epath.Path) -> dict[str, Any]:
    """Those of a JSON file; none if there is no such file."""
    return read_json(path) if path.is_file() else {}


def _source(path: epath.Path, raw: Any) -> str | None:
    """The template, or the one named `default` of several."""
    if isinstance(raw, list) and all(map(_is_named, raw)):
        raw = {entry["name"]: entry["template"] for entry in raw}.get("default")
    if raw is not None and not _is_text(raw):
        raise BackboneError(
            f"{path}: chat_template must be a text, or a list of objects with a name and a "
            f"template, not {raw!r}"
        )
    return raw


def _is_named(entry: Any) -> bool:
    return isinstance(entry, dict) and all(_is_text(entry.get(k)) for k in ("name", "template"))


def _is_text(value: Any) -> bool:
    """JSON may hold halves of characters, which no text in UTF-8 has."""
    return isinstance(value, str) and value == value.encode(errors="ignore").decode()


def _token(path: epath.Path, raw: Mapping[str, Any], name: str) -> str:
    """A special token's text, empty if there is none; older files keep it in a dictionary."""
    token = raw.get(name)
    token = token.get("content") if isinstance(token, dict) else token
    if token is not None and not _is_text(token):
        raise BackboneError(f"{path}: {name} must be a text, not {token!r}")
    return token or ""


def _read_ends(path: epath.Path) -> tuple[int, ...]:
    raw = _read_entries(path).get("eos_token_id")
    ends = raw if isinstance(raw, list) else [] if raw is None else [raw]
    if wrong := [end for end in ends if type(end) is not int]:
        raise BackboneError(
            f"{path}: eos_token_id must be an id or a list of ids, not {wrong[0]!r}"
        )
    return tuple(ends)
