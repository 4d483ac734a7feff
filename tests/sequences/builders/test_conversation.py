"""The builder `conversation`: its tokens are those of a chat template, and answers alone are predicted."""

from __future__ import annotations

from io import BytesIO
from typing import Any

import numpy as np
import pytest
import tokenizers
import transformers
from PIL import Image
from tokenizers.models import BPE
from tokenizers.normalizers import Prepend, Replace, Sequence
from tokenizers.pre_tokenizers import ByteLevel
from tokenizers.trainers import BpeTrainer

from workbench.core.errors import WorkbenchError
from workbench.core.keyed import Draws
from workbench.objectives.clm import Clm
from workbench.sequences.builders.conversation import ConversationBuilder
from workbench.text.tokenizer import Tokenizer

EXCUSED = "it reads turns, which the samples of the contracts don't have"
DRAWS = Draws(0, "t", "builder", number=(0,))
SAID = [("system", "Be short."), ("user", "Where is Oslo?"), ("assistant", "In Norway."), ("user", "And Rome?")]
SAID += [("assistant", "In Italy.")]
CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' }}"
    "{% if message['role'] == 'assistant' %}{% generation %}{{ message['content'] + '<|im_end|>' }}{% endgeneration %}"
    "{% else %}{{ message['content'] + '<|im_end|>' }}{% endif %}{{ '\n' }}{% endfor %}"
)


@pytest.fixture(scope="module")
def words() -> Tokenizer:
    backend = tokenizers.Tokenizer(BPE())
    backend.pre_tokenizer = ByteLevel(add_prefix_space=False)
    special = ["<|im_start|>", "<|im_end|>"]
    trainer = BpeTrainer(vocab_size=300, special_tokens=special, initial_alphabet=ByteLevel.alphabet())
    backend.train_from_iterator([text for _, text in SAID], trainer)
    return Tokenizer(backend, {"eos": "<|im_end|>"})


def sample(said: list[tuple[str, str]] = SAID, **more: Any) -> dict[str, Any]:
    turns, speakers = [text for _, text in said], [speaker for speaker, _ in said]
    return {"key": "a", "draw": (3,), "turns": turns, "speakers": speakers, **more}


def predicted(words: Tokenizer, builder: ConversationBuilder, given: dict[str, Any]) -> tuple[list[int], list[int]]:
    """All tokens of a conversation, and the rows of those that are predicted."""
    (sequence,) = builder([given], DRAWS)
    ids = sequence.streams["text"]["input_ids"].copy()
    Clm().corrupt([sequence], DRAWS)
    targets: dict[str, Any] = dict(sequence.targets["clm"])
    rows = targets["rows"].index + 1
    assert targets["labels"].tolist() == ids[rows].tolist()
    return ids.tolist(), rows.tolist()


def test_tokens_and_answers_are_those_of_a_chat_template(words: Tokenizer) -> None:
    """Of Hugging Face's tokenizer, whose mask of generated tokens has the rows of answers and their ends."""
    theirs = transformers.PreTrainedTokenizerFast(tokenizer_object=words.backend, eos_token="<|im_end|>")
    theirs.backend_tokenizer.encode_special_tokens = False
    messages = [{"role": speaker, "content": text} for speaker, text in SAID]
    made: Any = theirs.apply_chat_template(
        messages, chat_template=CHATML, return_dict=True, return_assistant_tokens_mask=True
    )
    ids, rows = predicted(words, ConversationBuilder(words, 200), sample())
    assert ids == made["input_ids"][: len(ids)]
    assert words.tokens(made["input_ids"][len(ids) :]) == ["Ċ"]
    assert rows == np.flatnonzero(made["assistant_masks"]).tolist()


def test_a_text_cannot_end_its_turn(words: Tokenizer) -> None:
    """Names of special tokens in a turn are plain text."""
    ids, rows = predicted(
        words, ConversationBuilder(words, 200), sample([("user", "a<|im_end|>b"), ("assistant", "c")])
    )
    assert ids.count(words.id("eos")) == 2
    assert words.decode(np.array(ids)[rows]) == "c"


def test_a_long_conversation_is_cut_at_its_end(words: Tokenizer) -> None:
    whole, answered = predicted(words, ConversationBuilder(words, 200), sample())
    length = answered[0] + 2
    builder = ConversationBuilder(words, length)
    ids, rows = predicted(words, builder, sample())
    assert ids == whole[:length]
    assert builder.take_dropped() == {"truncated tokens": len(whole) - length}
    assert rows == answered[:2]


def test_another_template(words: Tokenizer) -> None:
    """Two speakers take turns where none are stored, and nothing is between them."""
    builder = ConversationBuilder(words, 99, template={"user": "Q: ", "bot": "A: "}, between="", answers="bot")
    ids, rows = predicted(words, builder, {"key": "a", "draw": (3,), "turns": ["Who?", "I."]})
    assert "".join(words.tokens(ids)) == "Q:ĠWho?<|im_end|>A:ĠI.<|im_end|>"
    assert "".join(words.tokens([ids[row] for row in rows])) == "ĠI.<|im_end|>"


def test_a_prompt_ends_where_its_answer_begins(words: Tokenizer) -> None:
    builder = ConversationBuilder(words, 99)
    (prompt,) = builder([{"key": "a", "draw": (0,), "text": "Who?", "visibility": "causal"}], DRAWS)
    Clm().continuation(builder).prompt(prompt)
    spelt = "".join(words.tokens(prompt.streams["text"]["input_ids"].tolist()))
    assert spelt == "<|im_start|>userĊWho?<|im_end|>Ċ<|im_start|>assistantĊ"


def test_a_prompt_of_turns_ends_where_its_answer_begins(words: Tokenizer) -> None:
    """A known last answer is left out; a conversation that ends with a question is to be answered."""
    builder = ConversationBuilder(words, 200)
    header = "<|im_start|>assistantĊ"
    for said in (SAID, SAID[:-1]):
        (prompt,) = builder([sample(said, visibility="causal")], DRAWS)
        Clm().continuation(builder).prompt(prompt)
        spelt = "".join(words.tokens(prompt.streams["text"]["input_ids"].tolist()))
        assert spelt.endswith(f"AndĠRome?<|im_end|>Ċ{header}")


def test_a_prompt_that_is_too_long_is_refused(words: Tokenizer) -> None:
    given = {"key": "a", "draw": (0,), "text": "Where is Oslo? " * 9, "visibility": "causal"}
    with pytest.raises(WorkbenchError, match=r"prompt 'a' has \d+ tokens .* max_length = 30 .*; shorten it"):
        ConversationBuilder(words, 30)([given], DRAWS)


def test_conversations_without_an_answer_left_are_counted(words: Tokenizer) -> None:
    builder = ConversationBuilder(words, 30)
    builder([sample([("user", "Where is Oslo? " * 9), ("assistant", "In Norway.")])], DRAWS)
    assert builder.take_dropped()["conversations whose answers were all cut off"] == 1


@pytest.mark.parametrize(
    ("options", "given", "said"),
    [
        ({}, sample([("tool", "x")]), "speakers tool; allowed: .*system, user, assistant"),
        ({}, {**sample(), "speakers": ["user"]}, "5 turns of the 1 speakers"),
        ({}, {"key": "a"}, "turns"),
        ({"template": {"user": "U"}}, sample(), "speaker 'assistant'"),
        ({"max_length": 4}, sample(), "no room next to the template"),
    ],
)
def test_what_cannot_be_built_is_refused(
    words: Tokenizer, options: dict[str, Any], given: dict[str, Any], said: str
) -> None:
    with pytest.raises(WorkbenchError, match=said):
        ConversationBuilder(words, **{"max_length": 99, **options})([given], DRAWS)


def photograph() -> bytes:
    buffer = BytesIO()
    Image.new("RGB", (4, 4)).save(buffer, "PNG")
    return buffer.getvalue()


PATCHES = {"image_processor": "vision.patches", "size": 4, "patch": 2}


def test_questions_about_an_image_are_turns(words: Tokenizer) -> None:
    """Each with its main answer; the last one of a prompt is to be answered, whatever is known of it."""
    builder = ConversationBuilder(words, 200, image_processor=PATCHES)
    asked = [
        {"question": "Where?", "answers": ["Norway", "Italy", "Italy", ""]},
        {"question": "Who?", "answers": []},
        {"question": "Why?", "answers": ["So."], "answer": "No."},
    ]
    given = {"key": "a", "draw": (3,), "image": photograph(), "questions": asked}
    ids, rows = predicted(words, builder, given)
    assert "".join(words.tokens([ids[row] for row in rows])) == "Italy<|im_end|>No.<|im_end|>"
    assert builder.take_dropped() == {"questions without answers": 1}
    [sequence] = builder([given], DRAWS)
    assert sequence.length("image") == 4
    arranged = Clm().continuation(builder).arrange({**given, "questions": asked[:1]})
    [prompt] = builder([arranged], DRAWS)
    said = [("user", "Where?"), ("assistant", "")]
    assert (
        prompt.streams["text"]["input_ids"].tolist()
        == predicted(words, ConversationBuilder(words, 200), sample(said))[0]
    )
    assert builder.unit is None
    assert ConversationBuilder(words, 200, image_processor=PATCHES, history=False).unit == "questions"
    with pytest.raises(WorkbenchError, match="no 'questions' with an answer"):
        builder([{**given, "questions": asked[1:2]}], DRAWS)


def test_without_the_image(words: Tokenizer) -> None:
    builder = ConversationBuilder(words, 200, image_processor=PATCHES, control="question-only")
    [sequence] = builder([{"key": "a", "draw": (3,), "questions": [{"question": "a", "answers": ["b"]}]}], DRAWS)
    assert set(sequence.streams) == {"text"}
    assert (builder.controls, ConversationBuilder(words, 200).controls) == (("question-only",), ())


LLAVA = (
    "{% for message in messages %}{% if message['role'] == 'user' %}{{ 'USER: ' + message['content'] }}"
    "{% else %}{{ ' ASSISTANT:' }}{% generation %}{{ ' ' + message['content'] + '</s>' }}{% endgeneration %}{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}{{ ' ASSISTANT:' }}{% endif %}"
)


@pytest.fixture(scope="module")
def pieces() -> Tokenizer:
    """A tokenizer as Llama's: a mark in front of each word, also of the first of a text."""
    backend = tokenizers.Tokenizer(BPE())
    backend.normalizer = Sequence([Prepend("▁"), Replace(" ", "▁")])
    names = ["<s>", "</s>"]
    texts = [f"USER: {text} ASSISTANT: {text}" for _, text in SAID]
    backend.train_from_iterator(texts, BpeTrainer(vocab_size=90, special_tokens=names))
    return Tokenizer(backend, {"bos": "<s>", "eos": "</s>"})


@pytest.mark.parametrize("to_answer", [False, True])
def test_tokens_of_llava_are_those_of_its_template(pieces: Tokenizer, to_answer: bool) -> None:
    """Ends behind answers alone, and each word as in the whole text: no mark of a space more (LLaVA 1.5)."""
    theirs = transformers.PreTrainedTokenizerFast(tokenizer_object=pieces.backend, bos_token="<s>", eos_token="</s>")
    said = SAID[1:4] if to_answer else SAID[1:]
    made: Any = theirs.apply_chat_template(
        [{"role": speaker, "content": text} for speaker, text in said],
        chat_template=LLAVA,
        return_dict=True,
        return_assistant_tokens_mask=True,
        add_generation_prompt=to_answer,
    )
    template = {"user": "USER: ", "assistant": " ASSISTANT: "}
    builder = ConversationBuilder(pieces, 200, template, between="", begin="bos", ended=["assistant"])
    wanted = [pieces.id("bos"), *made["input_ids"]]
    if to_answer:
        (prompt,) = builder([sample(said, visibility="causal")], DRAWS)
        Clm().continuation(builder).prompt(prompt)
        assert prompt.streams["text"]["input_ids"].tolist() == wanted
        assert prompt.streams["text"]["rank"].tolist() == list(range(len(wanted)))
        return
    ids, rows = predicted(pieces, builder, sample(said))
    assert ids == wanted
    assert rows == [row + 1 for row in np.flatnonzero(made["assistant_masks"])]
    assert ids.count(pieces.id("eos")) == 2
    assert "▁▁" not in "".join(pieces.tokens(ids))


def test_a_last_question_has_no_end_where_questions_have_none(pieces: Tokenizer) -> None:
    builder = ConversationBuilder(pieces, 99, {"user": "USER: ", "assistant": " ASSISTANT: "}, "", ended=["assistant"])
    ids, rows = predicted(pieces, builder, sample(SAID[1:2]))
    assert "".join(pieces.tokens(ids)) == "▁USER:▁Where▁is▁Oslo?"
    assert rows == []
    with pytest.raises(WorkbenchError, match="ended = user: allowed: speakers with 'assistant'"):
        ConversationBuilder(pieces, 99, ended=["user"])
