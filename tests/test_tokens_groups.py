"""Texts and ids -> columns and rows, with tokenizers small enough to count by hand."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import BatchEncoding, PreTrainedTokenizerFast

from ragen_diag.errors import DumpError
from ragen_diag.groups import Groups, make_groups
from ragen_diag.pipeline.step import with_texts_of_ids
from ragen_diag.prompts.prompt import Prompt, is_rendered, split_prompt_ids
from ragen_diag.prompts.prompt import encode_prompt as encode_text
from ragen_diag.prompts.rendering import render_messages
from ragen_diag.rollouts import SCHEMA
from ragen_diag.spans import SpanStatus, Tags, choose_tags, find_span, find_spans
from ragen_diag.tokens import Pieces, cut_response_ids, decode, encode_response_pieces

THINK = Tags("<think>", "</think>")
WORDS = ["<unk>", "<s>", "</s>", "<|user|>", "<think>", "</think>", *"abcdefgh"]
ID = {word: i for i, word in enumerate(WORDS)}


def ids(text: str) -> list[int]:
    return [ID[word] for word in text.split()]


def word_tokenizer(template: str | None = None) -> PreTrainedTokenizerFast:
    inner = Tokenizer(models.WordLevel(ID, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    if template is not None:
        special = [("<s>", ID["<s>"]), ("</s>", ID["</s>"])]
        inner.post_processor = processors.TemplateProcessing(
            single=template, special_tokens=special
        )
    return PreTrainedTokenizerFast(
        tokenizer_object=inner,
        bos_token="<s>",
        eos_token="</s>",
        unk_token="<unk>",
        extra_special_tokens=["<|user|>"],
    )


def byte_tokenizer(*, tag_is_token: bool) -> PreTrainedTokenizerFast:
    """Byte-level BPE whose merges run over tag borders, such as "\\n<" and ">\\n"."""
    inner = Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    inner.decoder = decoders.ByteLevel()
    corpus = ["?\n<think>\nso é 🍸 a</think>\n4", ".\n<think>\nab</think>"] * 20
    trainer = trainers.BpeTrainer(
        vocab_size=290,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    inner.train_from_iterator(corpus, trainer)
    if tag_is_token:
        inner.add_tokens([AddedToken(tag, normalized=False) for tag in ("<think>", "</think>")])
    return PreTrainedTokenizerFast(tokenizer_object=inner)


class SlowTokenizer:
    """The word tokenizer without offsets, as a tokenizer in plain Python is."""

    is_fast = False
    bos_token = "<s>"
    unk_token = "<unk>"
    all_special_tokens = ("<s>", "</s>", "<unk>")
    chat_template = None

    def __call__(self, text: Any, **options: Any) -> dict[str, Any]:
        if options.get("return_offsets_mapping"):
            raise NotImplementedError
        return {"input_ids": ids(text)}

    def decode(self, token_ids: list[int], **options: Any) -> str:
        return " ".join(WORDS[i] for i in token_ids)

    def apply_chat_template(self, conversation: Any, **options: Any) -> list[int]:
        raise NotImplementedError


# Prompts


def encode_prompt(tokenizer: Any, text: str, tags: Tags | None) -> Prompt:
    return encode_text(tokenizer, text, tags, rendered=is_rendered(tokenizer, text))


@pytest.mark.parametrize("template", ["<s> $A", "<s> $A </s>"])
def test_every_prompt_has_one_bos_and_no_added_eos(template: str) -> None:
    tokenizer = word_tokenizer(template)
    assert encode_prompt(tokenizer, "a b", None).ids == ids("<s> a b")
    assert encode_prompt(tokenizer, "<s> a b", None).ids == ids("<s> a b")
    assert encode_prompt(tokenizer, "<s> a b </s>", None).ids == ids("<s> a b </s>")
    # A rendered chat without BOS is the template's choice.
    assert encode_prompt(tokenizer, "<|user|> a", None).ids == ids("<|user|> a")
    assert encode_prompt(word_tokenizer(), "a b", None).ids == ids("a b")


def test_open_tag_at_the_end_of_the_prompt_becomes_opening() -> None:
    tokenizer = word_tokenizer("<s> $A </s>")
    prompt = encode_prompt(tokenizer, "a b <think> ", THINK)
    assert (prompt.ids, prompt.opening_ids) == (ids("<s> a b"), ids("<think>"))
    assert prompt.text == "a b "
    same = split_prompt_ids(tokenizer, ids("<s> a b <think>"), THINK)
    assert (same.ids, same.opening_ids) == (ids("<s> a b"), ids("<think>"))
    whole = split_prompt_ids(tokenizer, ids("<s> a <think> b"), THINK)
    assert (whole.ids, whole.opening_ids) == (ids("<s> a <think> b"), [])


def test_token_over_the_border_of_the_opening_goes_with_the_tag() -> None:
    tokenizer = byte_tokenizer(tag_is_token=False)
    text = "so?\n<think>\n"
    joint = tokenizer(text)["input_ids"]
    border = [t for t in joint if "\n<" in tokenizer.decode([t])]
    assert border, "the trained merges no longer run over the border"
    for prompt in (
        encode_prompt(tokenizer, text, THINK),
        split_prompt_ids(tokenizer, joint, THINK),
    ):
        assert prompt.ids + prompt.opening_ids == joint
        assert prompt.opening_ids[0] == border[0]
        assert prompt.text == "so?\n"


def test_messages_are_rendered_flat() -> None:
    tokenizer = word_tokenizer("<s> $A </s>")
    messages = [{"role": "user", "content": "a b"}]
    with pytest.raises(DumpError, match="no chat template"):
        render_messages(tokenizer, messages)
    tokenizer.chat_template = (
        "{% for m in messages %}<|user|> {{ m.content }} {% endfor %}"
        "{% if add_generation_prompt %}<think> {% endif %}"
    )
    assert render_messages(tokenizer, messages) == ids("<|user|> a b <think>")
    tokenizer.chat_template = "{{ raise_exception('roles must alternate') }}"
    with pytest.raises(DumpError, match="roles must alternate"):
        render_messages(tokenizer, messages)


SHAPES: dict[str, Any] = {
    "list": [1, 2],
    "batch of one": [[1, 2]],
    "dict": {"input_ids": [1, 2], "attention_mask": [1, 1]},
    "BatchEncoding": BatchEncoding({"input_ids": [1, 2], "attention_mask": [1, 1]}),
    "BatchEncoding, batch of one": BatchEncoding({"input_ids": [[1, 2]]}),
    "tensor": torch.tensor([1, 2]),
    "tensor, batch of one": BatchEncoding({"input_ids": torch.tensor([[1, 2]])}),
    "list of tensors": [torch.tensor([1, 2])],
    "array": np.array([[1, 2]], dtype=np.int32),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_that_a_chat_template_answers_in(shape: str) -> None:
    class Version(SlowTokenizer):
        chat_template = "x"

        def apply_chat_template(self, conversation: Any, **options: Any) -> Any:
            assert options["return_dict"] is False
            return SHAPES[shape]

    assert render_messages(Version(), [{"role": "user", "content": "a"}]) == [1, 2]


# Responses


def cut(tokenizer: Any, some: list[int], tags: Tags | None, *, prefilled: bool) -> Pieces:
    """Ids cut at the span of their own text."""
    return cut_response_ids(
        tokenizer, some, find_span(decode(tokenizer, some), tags, prefilled=prefilled)
    )


@pytest.mark.parametrize("tokenizer", [word_tokenizer("<s> $A </s>"), SlowTokenizer()])
def test_words_are_cut_at_the_span(tokenizer: Any) -> None:
    text = "a <think> b c </think> d"
    span = find_span(text, THINK, prefilled=False)
    (pieces,) = encode_response_pieces(tokenizer, [text], [span])
    assert pieces.opening_ids == ids("a <think>")
    assert pieces.reasoning_ids == ids("b c")
    assert pieces.ids == ids(text)
    assert cut(tokenizer, ids(text), THINK, prefilled=False) == pieces


REASONING = st.text("so é🍸a\n<>/k", min_size=1, max_size=10).filter(str.strip)
BYTES = {tag_is_token: byte_tokenizer(tag_is_token=tag_is_token) for tag_is_token in (True, False)}


@settings(deadline=None, max_examples=150)
@given(
    before=st.sampled_from(["", "so ", "é\n"]),
    reasoning=REASONING,
    after=st.sampled_from(["", "\n4", "🍸"]),
    tag_is_token=st.booleans(),
)
def test_ids_and_text_cut_alike_and_never_inside_a_tag(
    before: str, reasoning: str, after: str, tag_is_token: bool
) -> None:
    tokenizer = BYTES[tag_is_token]
    text = f"{before}<think>{reasoning}</think>{after}"
    span = find_span(text, THINK, prefilled=False)
    (pieces,) = encode_response_pieces(tokenizer, [text], [span])
    assert cut(tokenizer, pieces.ids, THINK, prefilled=False) == pieces
    assert decode(tokenizer, pieces.ids) == text
    scored = decode(tokenizer, pieces.reasoning_ids)
    # Only what shares a token with a tag may be lost at the ends, be it half a character.
    assert scored.strip("\ufffd") in reasoning
    if tag_is_token:
        assert scored == reasoning
    else:
        opening = decode(tokenizer, pieces.opening_ids)
        assert opening.startswith(before + "<think>")


def test_prefilled_ids() -> None:
    tokenizer = word_tokenizer()
    pieces = cut(tokenizer, ids("a b </think> c </s>"), THINK, prefilled=True)
    assert (pieces.opening_ids, pieces.reasoning_ids) == ([], ids("a b"))
    assert cut(tokenizer, ids("a b"), THINK, prefilled=True).status is SpanStatus.UNCLOSED
    whole = cut(tokenizer, ids("a b </s>"), None, prefilled=False)
    assert whole.reasoning_ids == ids("a b </s>")


def test_half_a_character_at_the_end_of_ids() -> None:
    tokenizer = BYTES[True]
    whole = tokenizer("<think>a</think>é")["input_ids"]
    halves = [*tokenizer("<think>a</think>")["input_ids"], *tokenizer("日")["input_ids"][:1]]
    assert "\ufffd" in decode(tokenizer, halves)
    for some in (whole, halves):
        pieces = cut(tokenizer, some, THINK, prefilled=False)
        assert decode(tokenizer, pieces.reasoning_ids) == "a"


# Groups


def table(rows: Sequence[dict[str, Any]]) -> pl.DataFrame:
    full = [{name: row.get(name) for name in SCHEMA} for row in rows]
    return pl.DataFrame(full, schema=dict(SCHEMA), orient="row")


def groups(rows: Sequence[dict[str, Any]], tokenizer: Any = None, **options: Any) -> Groups:
    tokenizer = word_tokenizer("<s> $A </s>") if tokenizer is None else tokenizer
    frame, _ = with_texts_of_ids(table(rows), tokenizer)
    prompts, responses = frame["prompt"].to_list(), frame["response"].to_list()
    choice = choose_tags(prompts, responses, "auto")
    spans = find_spans(prompts, responses, choice)
    return make_groups(frame, spans, choice.tags, tokenizer, **options)


def row(prompt: str | None, reasoning: str, **more: Any) -> dict[str, Any]:
    return {"prompt": prompt, "response": f"<think> {reasoning} </think> h", **more}


def test_columns_are_distinct_prompts_sorted_by_their_ids() -> None:
    made = groups(
        [
            row("b", "c"),
            row("a", "c d"),
            row("<s> b", "e"),  # the same ids as "b"
            {"prompt": "e", "response": "<think> </think>"},
            {"prompt": "a", "response": "f"},
            {"prompt": "a", "response": "<think> f"},
            row(None, "c"),
        ]
    )
    assert made.prompt_ids_P == [ids("<s> a"), ids("<s> b")]
    assert made.prompts_P == ["a", "b"]
    assert made.own_R.tolist() == [1, 0, 1]
    assert made.row_R.tolist() == [0, 1, 2]
    assert made.opening_ids_R == [ids("<think>")] * 3
    assert made.reasoning_ids_R == [ids("c"), ids("c d"), ids("e")]
    # "e" has no scored row, so it is no column; the unscored rows of "a" still know theirs.
    assert made.column_of_row.tolist() == [1, 0, 1, -1, 0, 0, -1]
    assert made.excluded == {
        3: "empty_reasoning",
        4: "no_reasoning_span",
        5: "unclosed_reasoning",
        6: "no_prompt",
    }
    assert (made.from_ids, made.retokenised) == (0, 3)
    assert made.rollout_logp_R == [None] * 3
    assert made.logprobs_lacking == {"no_logprobs": 3}


def test_ids_of_the_dump_come_first() -> None:
    response = {
        "response": "text that does not matter",
        "response_ids": ids("<think> a b </think>"),
    }
    logprobs = [-1.0, -2.0, -3.0, -4.0]
    made = groups(
        [
            {"prompt_ids": ids("<s> c"), **response, "rollout_logprobs": logprobs},
            {"prompt_ids": ids("<s> d <think>"), "response_ids": ids("a </think>"), "response": ""},
            row("c", "b", rollout_logprobs=[-1.0] * 4),
            row("c", "b", rollout_logprobs=[-1.0] * 3),
            row("c", "b", rollout_logprobs=[-1.0] * 5),
            row("c", "b", rollout_logprobs=[-1.0, None, -1.0, -1.0]),
            {**response, "prompt": "c"},
        ]
    )
    assert made.prompt_ids_P == [ids("<s> c"), ids("<s> d")]
    assert made.own_R.tolist() == [0, 1, 0, 0, 0, 0]
    assert made.opening_ids_R[:2] == [ids("<think>")] * 2
    assert made.reasoning_ids_R[:3] == [ids("a b"), ids("a"), ids("b")]
    told = [None if logp is None else logp.tolist() for logp in made.rollout_logp_R]
    # Nothing is padded: a row with another number of values than of tokens has none.
    assert [told[i] for i in (0, 1, 2, 3, 4)] == [[-2.0, -3.0], None, [-1.0], None, None]
    assert np.isnan(told[5]).tolist() == [True]
    lacking = {"length_differs": 2, "no_logprobs": 1, "undefined_tokens": 1}
    assert made.logprobs_lacking == lacking
    assert made.form_R == ["ids", "ids", "raw", "raw", "raw", "raw"]
    assert (made.from_ids, made.retokenised) == (2, 4)
    # Without ids of its prompt the row's text counts, and that has no tags.
    assert made.excluded == {6: "no_reasoning_span"}


def test_prefilled_prompt_gives_its_tag_to_the_rows() -> None:
    made = groups([{"prompt": f"{p} <think>", "response": "c </think>"} for p in "ab"])
    assert made.prompt_ids_P == [ids("<s> a"), ids("<s> b")]
    assert made.opening_ids_R == [ids("<think>")] * 2
    assert made.reasoning_ids_R == [ids("c")] * 2


def test_prompts_as_messages() -> None:
    tokenizer = word_tokenizer()
    tokenizer.chat_template = "{% for m in messages %}<|user|> {{ m.content }}{% endfor %} <think>"
    chat = [{"role": "user", "content": "a"}]
    made = groups([{"messages": chat, "response": "b </think>"}] * 2, tokenizer)
    assert made.prompt_ids_P == [ids("<|user|> a")]
    assert made.opening_ids_R == [ids("<think>")] * 2
    assert made.reasoning_ids_R == [ids("b")] * 2


def test_whole_responses_without_tags() -> None:
    made = groups([{"prompt": "a", "response": "b c"}, {"prompt": "b", "response": " \n"}])
    assert made.reasoning_ids_R == [ids("b c")]
    assert made.opening_ids_R == [[]]
    assert made.excluded == {1: "empty_response"}


@pytest.mark.parametrize("opening", ["", " <think>"])
def test_no_response_is_told_from_a_lost_format(opening: str) -> None:
    texts = [None, "", " \n", "<think> c </think>"]
    frame = table([{"prompt": f"a{opening}", "response": text} for text in texts])
    choice = choose_tags(frame["prompt"].to_list(), ["<think> c </think>"] * 4, "auto")
    spans = find_spans(frame["prompt"].to_list(), [text or "" for text in texts], choice)
    made = make_groups(frame, spans, choice.tags, word_tokenizer())
    assert made.excluded == {0: "null_response", 1: "empty_response", 2: "empty_response"}
    assert made.row_R.tolist() == [3]


def test_what_does_not_fit_is_excluded_so_that_the_most_rows_stay() -> None:
    """Context 10, prompts of 2, 4 and 6 ids, rows that take 2, 6 or 7 more.

    Under 6 the rows of 2 stay, three of six; under 4 those of 2 and 6, four; under 2 all of its
    own, three.
    """
    rows = [
        row("a", "c"),
        row("a", "c c c c c"),
        row("a", "c c c c c c"),
        row("a b b", "c"),
        row("a b b", "c c c c c"),
        row("a b b b b", "c"),
    ]
    made = groups(rows, max_length=10)
    assert made.prompt_ids_P == [ids("<s> a"), ids("<s> a b b")]
    assert made.excluded == {2: "too_long", 5: "prompt_too_long"}
    longest = max(map(len, made.prompt_ids_P))
    for opening, reasoning in zip(made.opening_ids_R, made.reasoning_ids_R, strict=True):
        assert longest + len(opening) + len(reasoning) <= 10
    assert groups(rows, max_length=13).excluded == {}


def test_prompts_of_most_of_the_context_stay_where_responses_are_short() -> None:
    made = groups([row("a b b b b", "c"), row("b b b b b", "c")], max_length=8)
    assert made.excluded == {}


def test_limit_draws_prompts_by_seed_and_keeps_their_order() -> None:
    rows = [row(p, "c") for p in "abcdefgh"] * 2
    drawn = set()
    for seed in range(8):
        made = groups(rows, limit=3, seed=seed)
        assert made.prompt_ids_P == sorted(made.prompt_ids_P)
        assert len(made.prompt_ids_P) == 3
        assert np.bincount(made.own_R).tolist() == [2, 2, 2]
        assert set(made.excluded.values()) == {"not_sampled"}
        assert len(made.excluded) + len(made.row_R) == 16
        assert (made.column_of_row >= 0).sum() == 6
        assert groups(rows, limit=3, seed=seed).prompt_ids_P == made.prompt_ids_P
        drawn.add(str(made.prompt_ids_P))
    assert len(drawn) > 1
    assert groups(rows, limit=8).excluded == {}


def test_nothing_to_score_is_no_error() -> None:
    made = groups([{"prompt": "a", "response": ""}])
    assert made.prompt_ids_P == []
    assert made.own_R.shape == made.row_R.shape == (0,)
    assert made.rollout_logp_R == made.form_R == []
    assert made.column_of_row.tolist() == [-1]


def test_no_token_is_no_score_and_special_tokens_are_tokens() -> None:
    rows = [{"prompt": "a", "response": text} for text in ("", "</s>", "b", "<think> </think>")]
    made = groups(rows[:3])
    assert made.excluded == {0: "empty_response"}
    assert made.reasoning_ids_R == [ids("</s>"), ids("b")]
    assert groups(rows[3:]).excluded == {0: "empty_reasoning"}
