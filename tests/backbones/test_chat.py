"""Turns as ids, against rendering and encoding the whole chat with transformers."""

import dataclasses
import json

import numpy as np
import pytest
import transformers
from etils import epath

from jaxrl_guided.backbones.chat import (
    NANO_TEMPLATE,
    Chat,
    ChatTemplate,
    Conversation,
    read_template,
    write_template,
)
from jaxrl_guided.backbones.config import BackboneError
from jaxrl_guided.backbones.load import load_backbone
from jaxrl_guided.backbones.tokenizer import nano_tokenizer

TOKENIZER = nano_tokenizer()
EOS = TOKENIZER.backend.token_to_id("<eos>")
LONG_CHAT = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "A wall. ☃ Where to?"},
    {"role": "assistant", "content": "north"},
    {"role": "user", "content": "Ouch."},
    {"role": "assistant", "content": "south"},
    {"role": "tool", "content": "gone"},
]
# As a newline after each message, trimmed contents, and no second system message.
STRICT = ChatTemplate(
    "{{ bos_token }}{% for m in messages %}{% if m.role == 'system' and not loop.first %}"
    "{{ raise_exception('one system message only') }}{% endif %}"
    "[{{ m.role }}] {{ m.content | trim }}{{ eos_token }}\n{% endfor %}"
    "{% if add_generation_prompt %}[assistant] {% endif %}",
    "<bos>",
    "<eos>",
)


def whole(template: ChatTemplate, tokenizer=TOKENIZER) -> list[int]:
    oracle = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer.backend, bos_token=template.bos, eos_token=template.eos
    )
    return oracle.apply_chat_template(
        LONG_CHAT,
        chat_template=template.source,
        add_generation_prompt=True,
        tokenize=True,
        return_dict=False,
    )


def in_turns(chat: Chat, tokenizer=TOKENIZER) -> Conversation:
    """The long chat, its answers in the tokens of their texts."""
    talk, end = Conversation(), chat.stop_ids[-1]
    talk.read(chat.opening(LONG_CHAT[:2]))
    for answer, after in ((LONG_CHAT[2], LONG_CHAT[3]), (LONG_CHAT[4], LONG_CHAT[5])):
        ids = [*tokenizer.encode([answer["content"]])[0][0], end]
        talk.said(ids, np.full(len(ids), -0.5))
        talk.read(chat.reply([after], ids[-1]))
    return talk


@pytest.mark.parametrize("template", [NANO_TEMPLATE, STRICT], ids=["nano", "strict"])
def test_turns_are_the_whole_chat(template):
    chat = Chat(TOKENIZER, template)
    assert chat.stop_ids == (EOS,)
    ids, spoken, log_probs = in_turns(chat).arrays()
    assert ids.tolist() == whole(template)
    # Exactly the two answers with their ends.
    texts = [TOKENIZER.decode(part) for part in np.split(ids, np.flatnonzero(np.diff(spoken)) + 1)]
    assert texts[1::2] == ["north<eos>", "south<eos>"]
    assert np.array_equal(log_probs, np.where(spoken, -0.5, 0).astype(np.float32))


@pytest.mark.slow
def test_turns_of_smollm2_are_the_whole_chat():
    backbone = load_backbone("smollm2-135m-instruct", 1)
    chat = Chat(backbone.tokenizer, backbone.template)
    assert chat.stop_ids == (2,)
    ids, spoken, _ = in_turns(chat, backbone.tokenizer).arrays()
    assert ids.tolist() == whole(backbone.template, backbone.tokenizer)
    assert backbone.tokenizer.decode(ids[spoken]) == "north<|im_end|>south<|im_end|>"


def test_an_answer_that_was_cut_off_is_closed():
    chat = Chat(TOKENIZER, NANO_TEMPLATE)
    message = [{"role": "user", "content": "Go on."}]
    assert chat.reply(message, last=99) == [EOS, *chat.reply(message, last=EOS)]


def test_answers_are_never_spelled_anew(monkeypatch):
    """Byte by byte or as one token: what was drawn stays."""
    backbone = load_backbone("nano")
    chat, talk = Chat(backbone.tokenizer, backbone.template), Conversation()
    monkeypatch.setattr(type(TOKENIZER), "decode", None)
    drawn = [5, 200, 255, 7, EOS]  # no valid UTF-8: no text has these ids
    talk.read(chat.opening(LONG_CHAT[:2]))
    start = len(talk)
    talk.said(drawn, [-1.0] * 5)
    talk.read(chat.reply([LONG_CHAT[3]], drawn[-1]))
    assert talk.arrays()[0][start : start + 5].tolist() == drawn
    assert talk.arrays()[1].sum() == 5


def test_a_conversation_refuses_what_does_not_fit():
    with pytest.raises(ValueError, match="2 tokens have 1 log-probabilities"):
        Conversation().said([1, 2], [0.0])


def test_templates_that_cannot_serve_are_refused():
    with pytest.raises(BackboneError, match="has no chat template"):
        Chat(TOKENIZER, None)
    with pytest.raises(BackboneError, match=r"cannot render messages of user, assistant, user"):
        Chat(TOKENIZER, ChatTemplate("{% for m in messages %}"))
    with pytest.raises(BackboneError, match="does not keep an answer as it is"):
        Chat(TOKENIZER, ChatTemplate("{{ messages[-1].content }}"))
    only_answers = "{% for m in messages if m.role == 'assistant' %}{{ m.content }}{% endfor %}"
    with pytest.raises(BackboneError, match="makes nothing of a message: ''"):
        Chat(TOKENIZER, ChatTemplate(only_answers))
    # Something follows an answer, but nothing is told at first.
    later = "{% if messages | length > 1 %}" + NANO_TEMPLATE.source + "{% endif %}"
    with pytest.raises(BackboneError, match="makes nothing of a message: ''"):
        Chat(TOKENIZER, ChatTemplate(later))
    chat = Chat(TOKENIZER, STRICT)
    with pytest.raises(BackboneError, match="one system message only"):
        chat.opening([LONG_CHAT[0], LONG_CHAT[0]])


def test_an_answer_has_its_place():
    """A template that leaves the prompt out must put nothing but blanks before an answer."""
    bare = NANO_TEMPLATE.source.partition("{% if add_generation_prompt %}")[0]
    with pytest.raises(BackboneError, match=r"no place for the assistant: .* '<bos>assistant'"):
        Chat(TOKENIZER, ChatTemplate(bare))
    llama2 = (
        "{% for m in messages %}{% if m.role == 'user' %}<bos>[INST] {{ m.content }} [/INST]"
        "{% else %} {{ m.content }}<eos>{% endif %}{% endfor %}"
    )
    assert Chat(TOKENIZER, ChatTemplate(llama2)).closing == EOS
    thinking = (  # DeepSeek-R1: opens thoughts that no history keeps
        NANO_TEMPLATE.source.replace("assistant\n{%", "assistant\n<think>{%")
    )
    assert Chat(TOKENIZER, ChatTemplate(thinking)).stop_ids == (EOS,)


@pytest.mark.parametrize("name", ["bos", "eos"])
def test_special_tokens_that_the_tokenizer_lacks_are_refused(name):
    template = dataclasses.replace(NANO_TEMPLATE, **{name: "<|end|>"})
    message = rf"tokenizer_config\.json: {name}_token '<\|end\|>' is no token of the tokenizer"
    with pytest.raises(BackboneError, match=message):
        Chat(TOKENIZER, template)


@pytest.mark.parametrize(
    "files,expected",
    [
        ({}, None),
        ({"tokenizer_config.json": {}}, None),
        (
            {"tokenizer_config.json": {"chat_template": "x", "eos_token": {"content": "</s>"}}},
            ChatTemplate("x", "", "</s>"),
        ),
        (
            {
                "tokenizer_config.json": {
                    "chat_template": [
                        {"name": "tool_use", "template": "t"},
                        {"name": "default", "template": "d"},
                    ],
                    "bos_token": "<s>",
                    "eos_token": None,
                }
            },
            ChatTemplate("d", "<s>", ""),
        ),
        (
            {"chat_template.jinja": "j", "tokenizer_config.json": {"chat_template": "x"}},
            ChatTemplate("j", "", ""),
        ),
        (
            {"chat_template.jinja": "j", "generation_config.json": {"eos_token_id": [2, 7]}},
            ChatTemplate("j", ends=(2, 7)),
        ),
        (
            {"chat_template.jinja": "j", "generation_config.json": {"eos_token_id": 3}},
            ChatTemplate("j", ends=(3,)),
        ),
    ],
)
def test_templates_of_directories(tmp_path, files, expected):
    for name, content in files.items():
        text = content if isinstance(content, str) else json.dumps(content)
        (tmp_path / name).write_text(text)
    assert read_template(epath.Path(tmp_path)) == expected
    if expected is not None:
        (tmp_path / "again").mkdir()
        write_template(epath.Path(tmp_path / "again"), expected)
        assert read_template(epath.Path(tmp_path / "again")) == expected


def test_others_stop_where_the_chat_does(tmp_path):
    stop_ids = Chat(TOKENIZER, NANO_TEMPLATE).stop_ids
    write_template(epath.Path(tmp_path), NANO_TEMPLATE, stop_ids)
    assert transformers.GenerationConfig.from_pretrained(tmp_path).eos_token_id == [EOS]
    again = read_template(epath.Path(tmp_path))
    assert again == dataclasses.replace(NANO_TEMPLATE, ends=(EOS,))
    assert Chat(TOKENIZER, again).stop_ids == stop_ids


@pytest.mark.parametrize("name", ["tokenizer_config.json", "generation_config.json"])
@pytest.mark.parametrize(
    "data,message",
    [
        (b"{", "not valid JSON"),
        (b"[]", "holds a JSON list"),
        (b"null", "holds a JSON NoneType"),
        (b"\xff", "not text in UTF-8"),
    ],
)
def test_a_broken_file_is_named(name, data, message, tmp_path):
    (tmp_path / "chat_template.jinja").write_text("x")
    (tmp_path / name).write_bytes(data)
    with pytest.raises(BackboneError, match=f"{name}: {message}"):
        read_template(epath.Path(tmp_path))


def test_a_template_that_is_no_text_is_named(tmp_path):
    (tmp_path / "chat_template.jinja").write_bytes(b"\xff")
    with pytest.raises(BackboneError, match=r"chat_template\.jinja: not text in UTF-8"):
        read_template(epath.Path(tmp_path))


@pytest.mark.parametrize(
    "name,entry,message",
    [
        ("tokenizer_config.json", {"chat_template": 5}, "chat_template must be a text, .* not 5"),
        ("tokenizer_config.json", {"chat_template": [{"name": "default"}]}, "name and a template"),
        ("tokenizer_config.json", {"chat_template": [{"template": "x"}]}, "name and a template"),
        ("tokenizer_config.json", {"chat_template": ["x"]}, "name and a template"),
        ("tokenizer_config.json", {"chat_template": "\ud800"}, "name and a template"),
        ("tokenizer_config.json", {"eos_token": 2}, "eos_token must be a text, not 2"),
        ("tokenizer_config.json", {"bos_token": {"content": []}}, "bos_token must be a text"),
        ("tokenizer_config.json", {"bos_token": "\ud800"}, "bos_token must be a text"),
        ("generation_config.json", {"eos_token_id": "2"}, "eos_token_id must be an id or .* '2'"),
        ("generation_config.json", {"eos_token_id": [2, True]}, "eos_token_id must .* not True"),
        ("generation_config.json", {"eos_token_id": 2.0}, "eos_token_id must .* not 2.0"),
    ],
)
def test_entries_of_other_types_are_named(name, entry, message, tmp_path):
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": "x"}))
    (tmp_path / name).write_text(json.dumps({"chat_template": "x"} | entry))
    with pytest.raises(BackboneError, match=f"{name}: .*{message}"):
        read_template(epath.Path(tmp_path))


def test_all_ends_of_answers_stop():
    template = dataclasses.replace(NANO_TEMPLATE, ends=(7, EOS))
    chat = Chat(TOKENIZER, template)
    assert (chat.stop_ids, chat.closing) == ((EOS, 7), EOS)
    with pytest.raises(BackboneError, match="eos_token_id 259 is no id of the tokenizer"):
        Chat(TOKENIZER, dataclasses.replace(NANO_TEMPLATE, ends=(259,)))
