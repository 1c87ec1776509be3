"""Which turns of a trajectory are analysed, and that no response is scored under another turn."""

import math
from collections import Counter
from itertools import permutations, product
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
import transformers
from conftest import SAMPLE_RUNS, sample_dump
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from ragen_diag.cli.analyze import analyze as analyze_command
from ragen_diag.errors import DumpError, UsageError
from ragen_diag.groups import Groups, make_groups
from ragen_diag.metrics.information import measure
from ragen_diag.metrics.mixture import row_scores
from ragen_diag.metrics.uncertainty import permutation_test
from ragen_diag.pipeline import analyze
from ragen_diag.report import facts
from ragen_diag.rollouts import SCHEMA, Rollouts
from ragen_diag.scoring import Noise, Scores, read_scores, score, write_scores
from ragen_diag.scoring.naive import score_pair
from ragen_diag.scoring.scores import worst
from ragen_diag.settings import Scope, Settings
from ragen_diag.spans import Tags, choose_tags, find_spans

# Two prompts, two trajectories each, of 3, 1, 2 and 5 turns.
TURNS = {"t0": ("a", 3), "t1": ("a", 1), "u0": ("b", 2), "u1": ("b", 5)}
UNIFORM = Scope("trajectory_uniform")


def frame(rows: list[dict[str, Any]]) -> pl.DataFrame:
    return pl.DataFrame([{name: row.get(name) for name in SCHEMA} for row in rows], schema=SCHEMA)


def rollouts(table: pl.DataFrame) -> Rollouts:
    return Rollouts(table, dialect="canonical", paths=("dump.parquet",), sha256="", notes={"x": 1})


def conversations() -> pl.DataFrame:
    """Turn k of a trajectory: think "m k", say "c"; a tool then answers "d"; row order is mixed."""
    rows = []
    for name, (task, turns) in TURNS.items():
        history = [{"role": "user", "content": task}]
        for turn in range(turns):
            # The second trajectory of a task says other things, so that histories differ.
            word = "c" if name.endswith("0") else "e"
            response = f"<think> m {word} {'n ' * turn}</think> {word}"
            rows.append(
                {
                    "step": 3,
                    "group_id": task,
                    "trajectory_id": name,
                    "turn": turn,
                    "messages": list(history),
                    "response": response,
                    "_file": "dump.parquet",
                }
            )
            history += [
                {"role": "assistant", "content": response},
                {"role": "tool", "content": "d"},
            ]
    return frame(rows).sample(fraction=1.0, shuffle=True, seed=1)


def places(found: Rollouts) -> list[tuple[str, int]]:
    return sorted(found.table.select("trajectory_id", "turn").rows())


# Rows


def test_scopes_are_read_and_written() -> None:
    for text in ("first_turn", "trajectory_uniform", "turn_0", "turn_12"):
        assert str(Scope.parse(text)) == text
    assert Settings(scope=Scope.parse("turn_3")).as_json()["scope"] == "turn_3"
    for text in ("", "turn", "turn_", "turn_-1", "turn_1.0", "turn_²", "Turn_1", "last_turn"):
        with pytest.raises(ValueError, match="give first_turn, trajectory_uniform, or turn_K"):
            Scope.parse(text)
        with pytest.raises(UsageError, match=r"^--scope '.*': give first_turn, "):
            analyze_command([Path("dump.parquet")], scope=text)


def test_first_and_numbered_turns() -> None:
    all_turns = rollouts(conversations())
    first = all_turns.in_scope(Scope())
    assert places(first) == [(name, 0) for name in TURNS]
    assert first.notes == {"x": 1, "later_turn": 7}
    second = all_turns.in_scope(Scope("turn", 1))
    assert places(second) == [("t0", 1), ("u0", 1), ("u1", 1)]
    assert second.notes == {"x": 1, "other_turn": 8}
    there = r"0 \(4\), 1 \(3\), 2 \(2\), 3 \(1\), 4 \(1\);"
    with pytest.raises(DumpError, match=rf"^dump.parquet: no rows of turn 5; .*: {there}"):
        all_turns.in_scope(Scope("turn", 5))


def test_one_turn_of_every_trajectory_each_as_likely() -> None:
    all_turns = rollouts(conversations())
    seeds = 2000
    counts: Counter[tuple[str, int]] = Counter()
    pairs: Counter[tuple[int, int]] = Counter()
    for seed in range(seeds):
        drawn = all_turns.in_scope(UNIFORM, seed=seed)
        found = dict(places(drawn))
        assert sorted(found) == sorted(TURNS) and drawn.table.height == len(TURNS)
        assert drawn.notes == {"x": 1, "turn_not_drawn": 7}
        counts.update(found.items())
        pairs[found["t0"], found["u0"]] += 1
    expected = {(name, k): 1 / turns for name, (_, turns) in TURNS.items() for k in range(turns)}
    assert counts.keys() == expected.keys()
    for place, share in expected.items():
        error = math.sqrt(share * (1 - share) / seeds)
        assert counts[place] / seeds == pytest.approx(share, abs=4 * error + 1e-9)
    # Draws of two trajectories have nothing to do with each other: 3 x 2 cells of 1/6.
    for turns in product(range(3), range(2)):
        assert pairs[turns] / seeds == pytest.approx(1 / 6, abs=4 * math.sqrt(5 / 36 / seeds))


def test_draws_do_not_see_the_order_of_rows() -> None:
    table = conversations()
    for seed in range(10):
        straight = rollouts(table).in_scope(UNIFORM, seed=seed)
        mixed = rollouts(table.sample(fraction=1.0, shuffle=True, seed=seed))
        assert places(mixed.in_scope(UNIFORM, seed=seed)) == places(straight)
    # Rows stay in their order.
    kept = rollouts(table).in_scope(UNIFORM, seed=4).table
    assert kept.equals(
        table.filter(
            pl.struct("trajectory_id", "turn").is_in(
                kept.select(pl.struct("trajectory_id", "turn")).to_series().implode()
            )
        )
    )


def test_rows_that_name_no_turn_are_trajectories_of_one() -> None:
    places_ = [("t", 0), ("t", 1), ("v", None), ("v", None), (None, 2), (None, 2), (None, None)]
    some = rollouts(frame([{"trajectory_id": t, "turn": turn} for t, turn in places_]))
    drawn = some.in_scope(UNIFORM)
    assert drawn.table.height == 6 and drawn.notes["turn_not_drawn"] == 1
    bare = rollouts(frame([{"response": "a"}, {"response": "b"}]))
    assert bare.in_scope(UNIFORM) is bare and bare.in_scope(Scope()) is bare
    with pytest.raises(DumpError, match=r"no rows of turn 0; turns and their rows: none \(2\);"):
        bare.in_scope(Scope("turn", 0))


# Prompts of turns

WORDS = [
    "<unk>",
    "</s>",
    "<|user|>",
    "<|assistant|>",
    "<|tool|>",
    "<think>",
    "</think>",
    *"abcdemn",
]
TEMPLATE = (
    "{% for m in messages %}<|{{ m.role }}|> "
    # As Qwen3's: what an earlier answer thought is not shown again.
    "{{ m.content.split('</think>')[-1].strip() }} </s> {% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def ids(text: str) -> list[int]:
    return [WORDS.index(word) for word in text.split()]


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    inner = Tokenizer(models.WordLevel({w: i for i, w in enumerate(WORDS)}, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    made = PreTrainedTokenizerFast(tokenizer_object=inner, unk_token="<unk>", eos_token="</s>")
    made.chat_template = TEMPLATE
    return made


def grouped(table: pl.DataFrame, tokenizer: Any, **options: Any) -> Groups:
    responses = table["response"].to_list()
    choice = choose_tags(table["prompt"].to_list(), responses, "auto")
    assert choice.tags == Tags("<think>", "</think>")
    spans = find_spans(table["prompt"].to_list(), responses, choice)
    return make_groups(table, spans, choice.tags, tokenizer, **options)


def histories() -> dict[tuple[str, int], list[int]]:
    """X of every turn by hand: earlier answers without their thinking, the tool's text as such."""
    by_hand = {}
    for name, (task, turns) in TURNS.items():
        word = "c" if name.endswith("0") else "e"
        for turn in range(turns):
            past = f"<|assistant|> {word} </s> <|tool|> d </s> " * turn
            by_hand[name, turn] = ids(f"<|user|> {task} </s> {past}<|assistant|>")
    return by_hand


def test_a_turn_has_the_prompt_that_the_template_yields(
    tokenizer: PreTrainedTokenizerFast,
) -> None:
    table = conversations()
    groups = grouped(table, tokenizer)
    by_hand = histories()
    scored = table[groups.row_R.tolist()].select("trajectory_id", "turn", "messages").rows()
    assert Counter(turn for _, turn, _ in scored) == {0: 4, 1: 3, 2: 2}
    for r, (name, turn, messages) in enumerate(scored):
        prompt = groups.prompt_ids_P[groups.own_R[r]]
        assert prompt == by_hand[name, turn]
        rendered = tokenizer.apply_chat_template(
            messages, add_generation_prompt=True, tokenize=True, return_dict=False
        )
        assert prompt == rendered
        # Nothing of a tool, and nothing of an earlier turn, is scored as the model's.
        word = "c" if name.endswith("0") else "e"
        assert groups.reasoning_ids_R[r] == ids(f"m {word} {'n ' * turn}")
        assert groups.opening_ids_R[r] == ids("<think>")
    # At turn 0 two trajectories share a prompt; at turns 3 and 4 only one trajectory is left.
    assert groups.turn_P.tolist() == [0, 0, 1, 1, 1, 2, 2]
    assert Counter(groups.excluded.values()) == {"lone_turn": 2}
    lone = table[list(groups.excluded)].select("trajectory_id", "turn").rows()
    assert sorted(lone) == [("u1", 3), ("u1", 4)]


def test_turns_are_taken_apart_whatever_else_is_left_out(
    tokenizer: PreTrainedTokenizerFast,
) -> None:
    table = conversations()
    # X has 10 tokens at turn 1 and 16 at turn 2, Z with its tag 4 and 5.
    assert grouped(table, tokenizer, max_length=14).turn_P.tolist() == [0, 0, 1, 1, 1]
    for seed in range(8):
        few = grouped(table, tokenizer, limit=3, seed=seed)
        at_turn = Counter(few.turn_P.tolist())
        assert len(at_turn) == 1 or min(at_turn.values()) > 1
        assert len(few.row_R) + len(few.excluded) == table.height
    # The same prompt at two turns, as where no history is kept, is two columns.
    same = table.with_columns(messages=pl.col("messages").list.head(1))
    assert grouped(same, tokenizer).turn_P.tolist() == [0, 0, 1, 1, 2, 2]
    # One prompt at its only turn can still be scored, two lone ones cannot be told apart.
    one = table.filter(trajectory_id="u1", turn=0)
    assert grouped(one, tokenizer).turn_P.tolist() == [0]
    assert len(grouped(table.filter(trajectory_id="u1"), tokenizer).row_R) == 0


# Scores of turns


class Policy:
    dtype, device, vocab_size = "float32", "cpu", len(WORDS)

    def __init__(self) -> None:
        torch.set_num_threads(1)
        torch.manual_seed(0)
        config = transformers.LlamaConfig(
            vocab_size=len(WORDS),
            hidden_size=32,
            intermediate_size=48,
            num_hidden_layers=2,
            num_attention_heads=4,
            max_position_embeddings=128,
        )
        self.model = transformers.AutoModelForCausalLM.from_config(config).eval()
        with torch.no_grad():
            for weight in self.model.parameters():
                if weight.ndim > 1:
                    weight.mul_(8)


def test_responses_are_scored_under_the_prompts_of_their_turn_alone(
    tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    groups = grouped(conversations(), tokenizer)
    policy = Policy()
    told: list[tuple[int, int]] = []
    names = [f"r{row}" for row in groups.row_R]
    scores = score(
        policy,
        groups,
        response_ids=names,
        on_progress=lambda p: told.append((p.pairs, p.pairs_in_all)),
    )
    by_hand = list(histories().values())
    for r, own in enumerate(groups.own_R):
        for p, x in enumerate(groups.prompt_ids_P):
            if groups.turn_P[p] != groups.turn_P[own]:
                assert scores.logp_RP[r, p] == -np.inf
                continue
            assert x in by_hand
            alone = score_pair(policy.model, x, ids("<think>"), groups.reasoning_ids_R[r])
            assert scores.logp_RP[r, p] == pytest.approx(alone, abs=1e-4)
    # Distinct texts x prompts: 2 x 2 at turn 0, 2 x 3 and 2 x 2 later. No other pair is scored.
    assert told[-1] == (14, 14)
    write_scores(scores, tmp_path / "scores.parquet")
    written = pl.read_parquet(tmp_path / "scores.parquet")["logp"]
    assert written.list.eval(pl.element().is_null().sum()).explode().to_list() == [
        int(n) for n in (scores.logp_RP == -np.inf).sum(axis=1)
    ]
    assert read_scores(tmp_path / "scores.parquet").logp_RP.tobytes() == scores.logp_RP.tobytes()


def test_the_noise_of_several_turns_is_the_worst() -> None:
    first = Noise(1e-7, 3e-6, 6, 2e-5, "prefix", None)
    second = Noise(2e-7, 1e-6, 2, 2e-5, "full", "why")
    assert worst([first, second, second]) == Noise(
        2e-7, 3e-6, 10, 2e-5, "prefix, full", "why (2 times)"
    )
    assert worst([first]) == first


# Metrics over turns

# p(z|x) of two turns with two and three prompts; the last prompt has two responses.
#
#         x0   x1    x2    x3    x4     own   mean of its turn  own / mean  credit
#   z0    .4   .1                       .4    .25               1.6         1
#   z1    .2   .2                       .2    .2                1           1/2
#   z2               .3    .2    .1     .3    .2                1.5         1
#   z3               .1    .1    .4     .1    .2                0.5         0
#   z4               .05   .05   .2     .2    .1                2           1
#   z5               .2    .2    .2     .2    .2                1           1/3
P_RP = np.array(
    [
        [0.4, 0.1, 0, 0, 0],
        [0.2, 0.2, 0, 0, 0],
        [0, 0, 0.3, 0.2, 0.1],
        [0, 0, 0.1, 0.1, 0.4],
        [0, 0, 0.05, 0.05, 0.2],
        [0, 0, 0.2, 0.2, 0.2],
    ]
)
with np.errstate(divide="ignore"):
    LOGP_RP = np.log(P_RP)
OWN_R = np.array([0, 1, 2, 3, 4, 4])
TOKENS_R = np.array([1, 2, 1, 4, 2, 1])
LOG2, LOG3 = math.log(2), math.log(3)


def test_metrics_of_two_turns_by_hand() -> None:
    metrics = measure(LOGP_RP, TOKENS_R, OWN_R)
    values = {name: metric.value for name, metric in metrics.items()}
    by_hand = {
        # Two of six responses are of the first turn: a third of a mean over x0 and x1, and two
        # thirds of one over x2 to x4, where that of x4 is a mean over z4 and z5 first.
        "retrieval_accuracy": (1 + 1 / 2) / 6 + (1 + 0 + (1 + 1 / 3) / 2) * 2 / 9,
        "retrieval_accuracy_rows": (1 + 1 / 2 + 1 + 0 + 1 + 1 / 3) / 6,
        "retrieval_chance_level": 1 / 2 / 3 + 1 / 3 * 2 / 3,
        "mi_seq_estimate": math.log(1.6) / 6 + (math.log(1.5) - LOG2 + LOG2 / 2) * 2 / 9,
        "mi_estimate": math.log(1.6) / 6 + (math.log(1.5) - LOG2 / 4 + LOG2 / 4) * 2 / 9,
        "mi_seq_estimate_rows": (math.log(1.6) + 0 + math.log(1.5) - LOG2 + LOG2) / 6,
        "mi_upper_bound": LOG2 / 3 + LOG3 * 2 / 3,
        "conditional_entropy_seq_est": -math.log(0.4 * 0.2) / 6 - math.log(0.3 * 0.1 * 0.2) * 2 / 9,
        "reasoning_entropy_seq_est": -math.log(0.25 * 0.2) / 6
        - (math.log(0.2 * 0.2) + math.log(0.1 * 0.2) / 2) * 2 / 9,
        "marginal_std_seq": float(np.std(np.log([0.25, 0.2, 0.2, 0.2, 0.1, 0.2]))),
    }
    by_hand["retrieval_above_chance"] = by_hand["retrieval_accuracy"] - 7 / 18
    by_hand["retrieval_skill"] = by_hand["retrieval_above_chance"] / (11 / 18)
    assert {name: values[name] for name in by_hand} == pytest.approx(by_hand, abs=1e-12)
    # Turn 0 has two prompts: the two best of them are no news.
    assert values["retrieval_accuracy@2"] is None
    assert (
        metrics["retrieval_accuracy@2"].reason == "needs more than 2 distinct prompts, there are 2"
    )
    for seq in ("", "_seq"):
        total = values[f"mi{seq}_estimate"] + values[f"conditional_entropy{seq}_est"]
        assert values[f"reasoning_entropy{seq}_est"] == pytest.approx(total, abs=1e-12)


def test_groups_are_dealt_within_their_turn() -> None:
    """2! x 3! dealings; the mean of them all is chance, which makes the skill's zero exact."""
    mean_CP = np.vstack([P_RP[:4] > 0, P_RP[4:5] > 0]).astype(float)
    mean_CP[0, :2], mean_CP[1, :2] = [1, 0], [0.5, 0.5]
    mean_CP[2, 2:], mean_CP[3, 2:] = [1, 0, 0], [0, 0, 1]
    mean_CP[4, 2:] = [1 / 6, 1 / 6, 2 / 3]
    weight_C = [1 / 6, 1 / 6, 2 / 9, 2 / 9, 2 / 9]
    dealt = [
        float(np.dot(weight_C, [mean_CP[c, label] for c, label in enumerate(low + high)]))
        for low, high in product(permutations([0, 1]), permutations([2, 3, 4]))
    ]
    metrics = measure(LOGP_RP, TOKENS_R, OWN_R)
    observed = metrics["retrieval_accuracy"].value
    assert np.mean(dealt) == pytest.approx(metrics["retrieval_chance_level"].value)
    reached = [mean >= observed - 1e-9 for mean in dealt]
    assert metrics["retrieval_p_value"].value == pytest.approx(np.mean(reached))
    assert metrics["retrieval_p_value"].n == metrics["mi_p_value"].n == 12
    # Too many to visit (6! x 2!): drawn, and never under the prompt of another block.
    block_P = np.array([0, 1, 0, 0, 1, 0, 0, 0])
    value_PP = np.where(block_P[:, None] == block_P, np.eye(8), np.nan)
    test = permutation_test(value_PP, np.arange(8), block_P=block_P, resamples=4000)
    assert not test.exact and test.p == pytest.approx(1 / 1440, abs=2e-3)


def test_turns_together_are_the_mean_of_turns_apart() -> None:
    """I(X;Z | turn) and all that follows from it, weighted by the number of trajectories there."""
    rng = np.random.default_rng(0)
    sizes = (4, 7)
    parts = []
    for columns in sizes:
        own_R = np.concatenate([np.arange(columns), rng.integers(0, columns, 9)])
        logp_RP = rng.normal(-30, 2, (len(own_R), columns))
        logp_RP[np.arange(len(own_R)), own_R] += 1.5
        parts.append((logp_RP, rng.integers(3, 20, len(own_R)), own_R))
    (low_RP, low_T, low_R), (high_RP, high_T, high_R) = parts
    both_RP = np.full((len(low_R) + len(high_R), sum(sizes)), -np.inf)
    both_RP[: len(low_R), : sizes[0]] = low_RP
    both_RP[len(low_R) :, sizes[0] :] = high_RP
    both = measure(both_RP, np.concatenate([low_T, high_T]), np.concatenate([low_R, high_R + 4]))
    apart = [measure(*part) for part in parts]
    rows = [len(own_R) for _, _, own_R in parts]
    for name in (
        "retrieval_accuracy",
        "retrieval_accuracy@2",
        "retrieval_chance_level",
        "mi_estimate",
        "mi_seq_estimate",
        "mi_upper_bound",
        "conditional_entropy_est",
        "reasoning_entropy_seq_est",
    ):
        mean = sum(n * part[name].value for n, part in zip(rows, apart, strict=True)) / sum(rows)
        assert both[name].value == pytest.approx(mean, abs=1e-9), name
    assert both["mi_seq_estimate"].value < both["mi_upper_bound"].value
    order = rng.permutation(len(both_RP))
    columns = rng.permutation(sum(sizes))
    mixed = row_scores(
        both_RP[order][:, columns],
        np.concatenate([low_T, high_T])[order],
        np.argsort(columns)[np.concatenate([low_R, high_R + 4])[order]],
    )
    assert mixed.candidates.n_R.tolist() == [4 if r < len(low_R) else 7 for r in order]


# The whole way


@pytest.fixture(scope="module")
def two_turns(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sample step whose every response is told at turn 0, and every second one at turn 1 too."""
    table = pl.read_parquet(sample_dump("template_collapse", 0)).head(48)
    table = table.with_columns(trajectory_id=pl.col("sample_id"), turn=pl.lit(0, dtype=pl.Int32))
    later = table.gather_every(2).with_columns(
        turn=pl.lit(1, dtype=pl.Int32), sample_id=pl.col("sample_id") + "-later"
    )
    path = tmp_path_factory.mktemp("turns") / "step_00000.parquet"
    pl.concat([table, later]).write_parquet(path)
    return path


def test_a_scope_is_analysed_and_named(two_turns: Path) -> None:
    ckpt = str(SAMPLE_RUNS / "template_collapse" / "checkpoints" / "step_00000")

    def run(scope: str) -> tuple[Any, Scores]:
        settings = Settings(scope=Scope.parse(scope), resamples=100, seed=2)
        product = analyze(two_turns, ckpt, settings=settings)
        assert product.scores is not None
        return product, product.scores

    first, first_scores = run("first_turn")
    assert first.result.counts.rows == 48
    assert np.isfinite(first_scores.logp_RP).all()
    assert "trajectory" not in facts.subject(first.result)

    drawn, scores = run("trajectory_uniform")
    result = drawn.result
    assert result.inputs.settings["scope"] == "trajectory_uniform"
    assert result.inputs.dump.notes["turn_not_drawn"] == 24
    assert facts.subject(result).endswith(", one turn drawn from each trajectory")
    assert result.counts.rows == 48
    turns = drawn.prompts["turn"].to_list()
    assert set(turns) == {0, 1} and turns == sorted(turns)
    candidates = [turns.count(turn) for turn in turns]
    assert result.metrics["retrieval_chance_level"].value == pytest.approx(
        np.mean([1 / candidates[own] for own in scores.own_R])
    )
    assert (scores.logp_RP == -np.inf).sum(axis=1).tolist() == [
        len(turns) - candidates[own] for own in scores.own_R
    ]
    # The prompts of both turns read alike here, so responses score as they do at the first turn.
    column = {text: p for p, text in enumerate(first.prompts["prompt"])}
    row = {name: r for r, name in enumerate(first.responses.drop_nulls("own")["sample_id"])}
    named = drawn.responses.drop_nulls("own")["sample_id"].str.strip_suffix("-later")
    for r, name in enumerate(named):
        for p, text in enumerate(drawn.prompts["prompt"]):
            if turns[p] == turns[scores.own_R[r]]:
                same = first_scores.logp_RP[row[name], column[text]]
                assert scores.logp_RP[r, p] == pytest.approx(same, abs=1e-3)
    assert drawn.responses["best_column"].drop_nulls().len() == result.counts.scored_rows

    later, _ = run("turn_1")
    assert later.result.counts.rows == 24
    assert later.result.inputs.dump.notes["other_turn"] == 48
    assert facts.subject(later.result).endswith(", turn 1 of each trajectory only")
