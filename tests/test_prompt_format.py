"""What a dump tells of its prompts -> the ids that the policy saw, and how surely.

Characters are tokens here, so that ids can be counted by hand; role marks are special tokens.
"""

import json
import math
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from conftest import SAMPLE_RUNS, sample_dump
from test_artefacts import SCORING, _codes, _evidence
from test_tokens_groups import ids as word_ids
from test_tokens_groups import table, word_tokenizer
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast
from typer.testing import CliRunner

from ragen_diag.cli import app
from ragen_diag.encoding import against_template
from ragen_diag.errors import DumpError
from ragen_diag.groups import Groups, make_groups
from ragen_diag.judging.remarks import find_remarks
from ragen_diag.metrics.trials import FormatTrial, format_trial
from ragen_diag.pipeline import analyze
from ragen_diag.pipeline.step import Step, make_step, with_texts_of_ids
from ragen_diag.pipeline.trials import try_formats
from ragen_diag.prompts.stripped import learn_form, parse_stripped
from ragen_diag.report import words
from ragen_diag.report.html import render_html
from ragen_diag.settings import Settings
from ragen_diag.spans import choose_tags

ROLES = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
CHATML = ROLES + "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
DEFAULT_SYSTEM = (
    "{% if messages[0].role != 'system' %}<|im_start|>system\nBe kind.<|im_end|>\n{% endif %}"
)
# Contents run into the next role's name once the marks between them are gone.
GLUED = (
    "<|bos|>{% for m in messages %}<|im_start|>{{ m.role }}<|im_end|>\n\n{{ m.content | trim }}"
    "<|eot|>{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant<|im_end|>\n\n"
    "{% endif %}"
)
MODEL_ROLE = (
    "<|bos|>{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system') }}"
    "{% endif %}<|im_start|>{{ 'model' if m.role == 'assistant' else m.role }}\n{{ m.content }}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>model\n{% endif %}"
)
NO_WORDS = (
    "<|bos|>{% for m in messages %}<|im_start|>{{ m.content }}{% endfor %}"
    "{% if add_generation_prompt %}<|im_end|>{% endif %}"
)
THINKING = CHATML.replace("assistant\n{% endif %}", "assistant\n<think>\n{% endif %}")
# Of the assistant's turns before a user's only what follows the reasoning is kept.
FORGETFUL = CHATML.replace("{{ m.content }}", "{{ m.content.split('</think>')[-1] }}")


def chat_tokenizer(template: str | None = CHATML, **options: Any) -> PreTrainedTokenizerFast:
    """Every byte is a token; role marks, BOS and EOS are special ones of one token each."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    inner = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(alphabet)}, merges=[]))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    inner.decoder = decoders.ByteLevel()
    marks = ["<|bos|>", "<|eot|>", "<|im_start|>", "<|im_end|>", "<|image_pad|>"]
    inner.add_special_tokens([AddedToken(mark, normalized=False) for mark in marks])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, **options)
    tokenizer.chat_template = template
    return tokenizer


def user(text: str, *others: str) -> list[dict[str, str]]:
    """A chat in which user and assistant take turns."""
    roles = ("user", "assistant")
    return [{"role": roles[i % 2], "content": c} for i, c in enumerate((text, *others))]


def told(text: str) -> list[dict[str, str]]:
    return [{"role": "system", "content": text}]


def stepped(rows: Sequence[dict[str, Any]], tokenizer: Any) -> Step:
    full = [{"_file": "f", "_row": n, "_flags": [], **row} for n, row in enumerate(rows)]
    frame, _ = with_texts_of_ids(table(full), tokenizer)
    texts = frame["response"].fill_null("").to_list()
    return make_step(frame, choose_tags(frame["prompt"].to_list(), texts, "auto"))


def grouped(rows: Sequence[dict[str, Any]], tokenizer: Any, **options: Any) -> Groups:
    step = stepped(rows, tokenizer)
    return make_groups(step.table, step.spans, step.choice.tags, tokenizer, **options)


def prompts(made: Groups, tokenizer: Any) -> list[str]:
    """What each scored row was scored under, as text with special tokens."""
    pairs = zip(made.own_R, made.opening_ids_R, strict=True)
    return [tokenizer.decode(made.prompt_ids_P[p] + opening) for p, opening in pairs]


# Text that lost its special tokens


CHATS = [
    user("hi"),
    [*told("Be brief."), *user("hi")],
    [*told("Be brief.\n\nAnd polite."), *user("hi\nthe user", "yes", "more", "no", "go")],
    user("two\n\nparagraphs", "answer", "and then"),
]
FORMS = {
    "chatml": CHATML,
    "default system": DEFAULT_SYSTEM + CHATML,
    "glued": GLUED,
    "opens the reasoning": THINKING,
}


@pytest.mark.parametrize("template", FORMS)
@pytest.mark.parametrize("chat", CHATS)
def test_stripped_chats_are_what_they_were(template: str, chat: list[dict[str, str]]) -> None:
    tokenizer = chat_tokenizer(FORMS[template])
    whole = tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_dict=False)
    text = tokenizer.decode(whole, skip_special_tokens=True)
    assert "<|" not in text and "user" in text
    rows = [{"prompt": text, "response": "<think>a</think>b"}]
    made = grouped(rows, tokenizer, prompt_format="stripped")
    given = made.prompt_ids_P[0] + made.opening_ids_R[0]
    assert given[: len(whole)] == whole
    assert made.form_R == ["stripped"]
    # Outer white space goes lost in some dumps; nothing else may.
    spaced = re.sub(r"(?m)^(user|assistant)$", r" \1 ", text)
    for loose in (text.strip(), spaced):
        same = grouped([{**rows[0], "prompt": loose}], tokenizer, prompt_format="stripped")
        assert same.prompt_ids_P == made.prompt_ids_P
    marked = grouped([{**rows[0], "prompt": tokenizer.decode(whole)}], tokenizer)
    assert (marked.prompt_ids_P, marked.form_R) == (made.prompt_ids_P, ["rendered"])


def test_roles_under_another_name() -> None:
    tokenizer = chat_tokenizer(MODEL_ROLE)
    form = learn_form(tokenizer)
    assert form is not None and form.system is None
    text = "user\nhi\nmodel\nyes\nuser\nmore\nmodel\n"
    assert parse_stripped(tokenizer, form, text) == user("hi", "yes", "more")
    assert parse_stripped(tokenizer, form, "system\nx\nuser\nhi\nmodel\n") is None


@pytest.mark.parametrize(
    ("template", "text"),
    [
        (CHATML, "what is 2+2?"),
        (CHATML, "user\nhi\n"),  # nobody is asked to answer
        (CHATML, "assistant\nhi\nassistant\n"),
        (NO_WORDS, "hi"),  # no word tells whose turn it is
        (None, "user\nhi\nassistant\n"),
    ],
)
def test_what_is_no_stripped_chat_is_an_error_that_names_the_row(
    template: str | None, text: str
) -> None:
    rows = [
        {"prompt_ids": [1], "response_ids": [2], "response": "x"},
        {"prompt": text, "response": "x"},
    ]
    with pytest.raises(DumpError, match=r"f, row 1: .*another --prompt-format"):
        grouped(rows, chat_tokenizer(template), prompt_format="stripped")


# The formats, asked for


def test_every_format_of_one_text() -> None:
    """With a tokenizer that puts a BOS in front and an EOS behind by default."""
    tokenizer = word_tokenizer("<s> $A </s>")
    tokenizer.chat_template = "{% for m in messages %}<|user|> {{ m.content }} {% endfor %}"
    rows = [{"prompt": "a b", "response": "c d"}]
    expected = {"auto": "<s> a b", "raw": "<s> a b", "rendered": "a b", "messages": "<|user|> a b"}
    for name, text in expected.items():
        made = grouped(rows, tokenizer, prompt_format=name)
        assert made.prompt_ids_P == [word_ids(text)], name
        assert made.reasoning_ids_R == [word_ids("c d")]
    both = [{**rows[0], "messages": [{"role": "user", "content": "e"}]}]
    assert grouped(both, tokenizer).prompt_ids_P == [word_ids("<s> a b")]
    made = grouped(both, tokenizer, prompt_format="messages")
    assert (made.prompt_ids_P, made.form_R) == ([word_ids("<|user|> e")], ["messages"])
    given = [{**both[0], "prompt_ids": word_ids("f"), "response_ids": word_ids("c </s>")}]
    for name in ("auto", "raw", "messages", "stripped"):
        made = grouped(given, tokenizer, prompt_format=name)
        assert (made.prompt_ids_P, made.form_R) == ([word_ids("f")], ["ids"])


@pytest.mark.parametrize("opening", ["", "<think>\n"])
def test_a_tag_at_the_end_of_the_text_is_given_once(opening: str) -> None:
    plain, thinking = chat_tokenizer(CHATML), chat_tokenizer(THINKING)
    rows = [{"prompt": f"hi{opening}", "response": "a</think>b"}]
    for tokenizer in (plain, thinking):
        made = grouped(rows, tokenizer, prompt_format="messages")
        shown = prompts(made, tokenizer)[0]
        assert shown.count("<think>") == (1 if opening or tokenizer is thinking else 0)
        assert shown.startswith("<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n")
        assert made.reasoning_ids_R == [plain("a")["input_ids"]]
    stripped = [{**rows[0], "prompt": f"user\nhi\nassistant\n{opening}"}]
    made = grouped(stripped, plain, prompt_format="stripped")
    assert prompts(made, plain)[0].endswith(f"<|im_start|>assistant\n{opening}")


def test_one_bos_whether_the_text_has_it_or_not() -> None:
    tokenizer = word_tokenizer("<s> $A")
    rows = [{"prompt": text, "response": "c"} for text in ("<s> a", "a", "<s> <s> a")]
    rows += [{"prompt_ids": word_ids("<s> <s> b"), "response_ids": word_ids("c"), "response": ""}]
    made = grouped(rows, tokenizer)
    firsts = [made.prompt_ids_P[p] for p in made.own_R]
    assert firsts == [word_ids(t) for t in ("<s> a", "<s> a", "<s> <s> a", "<s> <s> b")]
    assert made.checks.double_bos == 2
    found = {f.code: f for f in find_remarks(_evidence(replace_scoring(double_bos=2)))}
    assert found["double_bos"].message.startswith("2 of 128 scored rows")


def test_eos_is_where_the_data_has_it_and_nowhere_else() -> None:
    """pad is eos; masks come from lengths, so real ends of text stay, also inside a prompt."""
    tokenizer = word_tokenizer("<s> $A </s>")
    tokenizer.pad_token = tokenizer.eos_token
    tokenizer.chat_template = "{% for m in messages %}<|user|> {{ m.content }} {% endfor %}"
    given = {"prompt_ids": word_ids("a </s> b"), "response": ""}
    rows = [
        {"prompt": "a b", "response": "c d"},
        {"messages": [{"role": "user", "content": "a"}], "response": "c d"},
        {**given, "response_ids": word_ids("c d </s>")},
        {**given, "response_ids": word_ids("c d")},
        {**given, "response_ids": word_ids("</s>")},
    ]
    made = grouped(rows, tokenizer)
    whole = [
        made.prompt_ids_P[p] + z for p, z in zip(made.own_R, made.reasoning_ids_R, strict=True)
    ]
    expected = [
        "<s> a b c d",
        "<|user|> a c d",
        "a </s> b c d </s>",
        "a </s> b c d",
        "a </s> b </s>",
    ]
    assert whole == [word_ids(text) for text in expected]


def test_round_trips_and_half_characters_are_counted() -> None:
    """Two ids of a merge are one after encoding again; a character that was cut is U+FFFD."""
    tokenizer = chat_tokenizer()
    inner = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
    merged = json.loads(inner.to_str())
    merged["model"]["vocab"]["ab"] = 1000
    merged["model"]["merges"] = [["a", "b"]]
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer.from_str(json.dumps(merged)))
    a, b, x = (tokenizer.convert_tokens_to_ids(c) for c in "abx")
    half = tokenizer("日")["input_ids"][:2]
    given = [[1000, x], [a, b, x], [x, *half]]
    rows = [{"prompt_ids": [x], "response_ids": z, "response": ""} for z in given]
    made = grouped([*rows, {"prompt": "x", "response": "ab\ufffd"}], tokenizer)
    assert made.reasoning_ids_R[:3] == given
    assert (made.from_ids, made.checks.round_trips, made.checks.replacements) == (3, 1, 2)


# Turns, saved prompts and the template


def test_each_turn_is_scored_under_what_the_template_makes_of_it() -> None:
    """The template forgets earlier reasoning, so no turn is a continuation of the one before."""
    tokenizer = chat_tokenizer(FORGETFUL)
    chat = user("q1", "<think>x</think>A", "q2", "<think>y</think>B")
    rows = [
        {"messages": chat[:1], "response": chat[1]["content"], "turn": 0},
        {"messages": chat[:3], "response": chat[3]["content"], "turn": 1},
        {"messages": user("p1"), "response": chat[1]["content"], "turn": 0},
        {"messages": user("p1", "A", "p2"), "response": chat[3]["content"], "turn": 1},
    ]
    made = grouped(rows, tokenizer)
    first, second = prompts(made, tokenizer)[:2]
    assert first == "<|im_start|>user\nq1<|im_end|>\n<|im_start|>assistant\n<think>"
    assert second == (
        "<|im_start|>user\nq1<|im_end|>\n<|im_start|>assistant\nA<|im_end|>\n"
        "<|im_start|>user\nq2<|im_end|>\n<|im_start|>assistant\n<think>"
    )
    assert [tokenizer.decode(z) for z in made.reasoning_ids_R[:2]] == ["x", "y"]


def test_saved_prompts_are_held_against_the_template() -> None:
    tokenizer = chat_tokenizer(FORGETFUL)
    chat = user("q1", "<think>x</think>A", "q2")
    rendered = tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_dict=False)
    text = tokenizer.decode(rendered)
    kept = text.replace("assistant\nA", "assistant\n<think>x</think>A")
    saved: list[dict[str, Any]] = [
        {"prompt": text},
        {"prompt": text.replace("\n", "\n\n")},
        {"prompt": tokenizer.decode(rendered, skip_special_tokens=True)},
        {"prompt": kept},
        {"prompt_ids": rendered, "response_ids": [1]},
        {"prompt_ids": tokenizer(kept)["input_ids"], "response_ids": [1]},
        {"prompt": "q1", "messages": None},
    ]
    rows = [{"messages": chat, "response": "z", **row} for row in saved]
    rows += [{"prompt": text, "messages": [*chat, *user("q1", "z")[1:]], "response": "z"}]
    found = against_template(stepped(rows, tokenizer).table, tokenizer)
    assert found == {"same": 3, "special_tokens": 1, "white_space": 1, "words": 2}
    assert against_template(stepped(rows, tokenizer).table, chat_tokenizer(None)) == {}
    told = replace_scoring(against_template=found)
    remark = {f.code: f for f in find_remarks(_evidence(told))}["prompts_differ_from_template"]
    assert remark.severity == "warning"
    assert remark.message == (
        "4 of 7 saved prompts are not what the chat template makes of their messages; they differ"
        " in: special tokens 1, white space 1, words 2."
    )
    harmless = replace_scoring(against_template={"same": 3, "white_space": 1})
    assert _codes(find_remarks(_evidence(harmless)))["prompts_differ_from_template"] == "note"


# Which format fits, measured


def replace_scoring(**fields: Any) -> Any:
    return type(SCORING)(**{**vars(SCORING), **fields})


class LikesMarks:
    """Every byte is equally likely; behind a role mark the letter "r" has three more nats."""

    device = "cpu"
    config = None

    def __init__(self, tokenizer: Any) -> None:
        self.size = len(tokenizer)
        self.mark = tokenizer.convert_tokens_to_ids("<|im_start|>")
        self.liked = tokenizer("r")["input_ids"][0]

    def forward(self, input_ids: torch.Tensor, use_cache: bool = False) -> Any:
        logits = torch.zeros((*input_ids.shape, self.size), dtype=torch.float64)
        if (input_ids == self.mark).any():
            logits[..., self.liked] = 3.0
        return SimpleNamespace(logits=logits)

    __call__ = forward


def _tried(
    rows: Sequence[dict[str, Any]], tokenizer: Any, **settings: Any
) -> tuple[FormatTrial | None, int]:
    step = stepped(rows, tokenizer)
    asked = Settings(**settings)
    made = make_groups(
        step.table, step.spans, step.choice.tags, tokenizer, prompt_format=asked.prompt_format
    )
    model = LikesMarks(tokenizer)
    checkpoint: Any = SimpleNamespace(tokenizer=tokenizer, model=model, max_length=None)
    return try_formats(checkpoint, step, made, asked), model.size


def test_the_effect_of_the_format_is_measured_where_it_is_in_doubt() -> None:
    tokenizer = chat_tokenizer()
    rows = [{"prompt": f"user\nq{n}\nassistant\n", "response": "rr"} for n in range(20)]
    trial, size = _tried(rows, tokenizer)
    assert trial is not None
    plain = -math.log(size)
    marked = 3.0 - math.log(size - 1 + math.exp(3.0))
    assert trial.logp == pytest.approx({"raw": plain, "messages": marked, "stripped": marked})
    # Of ways that fit alike the text's own look decides nothing: the first of them is named.
    assert (trial.used, trial.rows, trial.looks_stripped) == ("raw", 8, 8)
    assert trial.gain == pytest.approx(marked - plain)
    plain_rows = [{"prompt": f"q{n}", "response": "rr"} for n in range(3)]
    trial, _ = _tried(plain_rows, tokenizer)
    assert trial is not None and (trial.best, trial.rows) == ("messages", 3)
    assert (set(trial.logp), trial.looks_stripped) == ({"raw", "messages"}, 0)


@pytest.mark.parametrize(
    ("row", "template", "settings"),
    [
        ({"prompt_ids": [1], "response_ids": [2]}, CHATML, {}),
        ({"prompt": "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"}, CHATML, {}),
        ({"messages": user("hi")}, CHATML, {}),
        ({"prompt": "hi"}, None, {}),
        ({"prompt": "hi"}, CHATML, {"prompt_format": "raw"}),
    ],
)
def test_nothing_is_measured_where_nothing_is_in_doubt(
    row: dict[str, Any], template: str | None, settings: dict[str, Any]
) -> None:
    rows = [{"response": "rr", **row}, {"response": "r", **row}]
    assert _tried(rows, chat_tokenizer(template), **settings)[0] is None


@pytest.mark.parametrize(
    ("gains", "stripped", "severity"),
    [
        ([0.05, 0.06, 0.055], 0, "warning"),
        ([0.04, 0.045, 0.05], 0, None),  # too little
        ([0.9, -0.5, 0.1], 0, None),  # within two errors of nothing
        ([0.04, 0.045, 0.05], 3, "note"),
        ([1.0], 0, None),  # one row has no error
    ],
)
def test_another_format_is_offered_only_if_it_is_clearly_better(
    gains: list[float], stripped: int, severity: str | None
) -> None:
    logp = {"raw": [-2.0] * len(gains), "messages": [-2.0 + gain for gain in gains]}
    trial = format_trial(logp, "raw", stripped)
    assert trial.gain == pytest.approx(np.mean(gains))
    found = {f.code: f for f in find_remarks(_evidence(replace_scoring(formats=trial)))}
    remark = found.get("prompt_format")
    assert (None if remark is None else remark.severity) == severity
    if remark is not None:
        assert ("give --prompt-format messages." in remark.message) == (severity == "warning")
        assert ("look like chats" in remark.message) == bool(stripped)
        assert words.finding_words("prompt_format").meaning


def test_prompts_of_several_forms_are_told() -> None:
    mixed = replace_scoring(prompt_forms={"raw": 100, "rendered": 28})
    found = {f.code: f for f in find_remarks(_evidence(mixed))}["mixed_prompt_forms"]
    assert found.message.endswith("plain text (100 rows), text with special tokens (28 rows).")
    one = replace_scoring(prompt_forms={"ids": 128})
    assert "mixed_prompt_forms" not in _codes(find_remarks(_evidence(one)))


# Images


def test_rows_with_placeholders_of_images_are_left_out() -> None:
    tokenizer = chat_tokenizer()
    rows: list[dict[str, Any]] = [
        {"prompt": "what is <|image_pad|> this", "response": "a"},
        {"prompt": "what is this", "response": "a <|image_pad|>"},
        {"prompt_ids": tokenizer("x<|image_pad|>")["input_ids"], "response_ids": [1]},
        {"messages": user("<image>see"), "response": "a", "_flags": ["prompt_parts_left_out"]},
        {"messages": user("the <image> tag of RSS"), "response": "a"},
        {"prompt": "plain", "response": "a"},
    ]
    made = grouped(rows, tokenizer)
    assert made.excluded == dict.fromkeys(range(4), "vision_placeholder")
    assert words.reason_words("vision_placeholder") != "vision placeholder"


# Whole analyses


def _chatty(folder: Path) -> Path:
    """The sample policy, as if its template had put the BOS before a user's words."""
    copy = folder / "step_00120"
    shutil.copytree(SAMPLE_RUNS / "healthy" / "checkpoints" / "step_00120", copy)
    config = json.loads((copy / "tokenizer_config.json").read_text())
    config["chat_template"] = "{% for m in messages %}<s> {{ m.content }}{% endfor %}"
    (copy / "tokenizer_config.json").write_text(json.dumps(config))
    return copy


def test_the_format_is_told_and_never_switched(tmp_path: Path) -> None:
    sample = pl.read_parquet(sample_dump("healthy", 120))
    some = sample["group_id"].unique(maintain_order=True).head(8)
    rows = sample.filter(pl.col("group_id").is_in(some.implode()))
    bare = rows.select("group_id", "response", "reward", pl.col("prompt").str.strip_prefix("<s> "))
    dump, checkpoint = tmp_path / "step_00120.parquet", str(_chatty(tmp_path))
    bare.write_parquet(dump)
    product = analyze(dump, checkpoint)
    scoring = product.result.inputs.scoring
    assert scoring is not None and scoring.prompt_formats is not None
    assert (scoring.prompt_formats.best, scoring.prompt_forms) == (
        "messages",
        {"raw": product.result.counts.scored_rows},
    )
    found = {f.code: f for f in product.result.findings}["prompt_format"]
    assert (found.severity, found.evidence["rows"]) == ("warning", 8)
    assert "log p in nats/token by prompt format" in render_html(product)
    # Asked for, the policy's own numbers come back.
    again = analyze(dump, checkpoint, settings=Settings(prompt_format="messages"))
    rows.drop("rollout_logprobs").write_parquet(dump)
    own = analyze(dump, checkpoint).result
    for name in ("mi_seq_estimate", "conditional_entropy_est", "retrieval_accuracy"):
        assert again.result.metrics[name].value == pytest.approx(own.metrics[name].value, abs=1e-6)
    assert own.inputs.scoring is not None
    assert own.inputs.scoring.prompt_formats is None
    assert own.inputs.scoring.round_trips == own.inputs.scoring.from_ids > 0
    entropy = product.result.metrics["conditional_entropy_est"].value
    assert entropy is not None and entropy > own.metrics["conditional_entropy_est"].value


def test_an_unknown_format_is_a_usage_error() -> None:
    result = CliRunner().invoke(app, ["analyze", "x.parquet", "--prompt-format", "chat"])
    assert result.exit_code == 2
