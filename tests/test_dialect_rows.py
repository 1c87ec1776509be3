"""Which column of a trainer's rows is which, and how records of several rows come apart."""

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from ragen_diag.dumps.dialect import Dialect, Draft
from ragen_diag.dumps.dialects.areal import AREAL
from ragen_diag.dumps.dialects.generic import GENERIC
from ragen_diag.dumps.dialects.nemo import NEMO_RL
from ragen_diag.dumps.dialects.open_instruct import OPEN_INSTRUCT
from ragen_diag.dumps.dialects.roll import ROLL
from ragen_diag.dumps.dialects.skyrl import SKYRL
from ragen_diag.dumps.dialects.slime import SLIME
from ragen_diag.dumps.dialects.swift import MS_SWIFT
from ragen_diag.dumps.dialects.tinker import TINKER
from ragen_diag.dumps.dialects.trl import TRL
from ragen_diag.dumps.dialects.verl import VERL, VERL_AGENT
from ragen_diag.dumps.raw import RawTable
from ragen_diag.errors import DumpError

Row = dict[str, Any]


def unfolded(dialect: Dialect, *records: Row) -> list[Row]:
    assert dialect.unfold is not None
    placed = [{"_place": f"f:{n}", **record} for n, record in enumerate(records, start=1)]
    rows = [dict(row) for record in placed for row in dialect.unfold(record)]
    return [{name: row[name] for name in row if name != "_place"} for row in rows]


def drafted(dialect: Dialect, *records: Row) -> Draft:
    """The draft of records as they stand in a file."""
    rows = unfolded(dialect, *records) if dialect.unfold else list(records)
    rows = [{name: row[name] for name in row if name != "_flags"} for row in rows]
    frame = pl.DataFrame(rows, infer_schema_length=None)
    return dialect.draft(
        RawTable(
            path=Path("dump.jsonl"),
            frame=frame,
            row=pl.Series("_row", range(1, frame.height + 1)),
            flags=pl.Series("_flags", [[]] * frame.height, dtype=pl.List(pl.String)),
        )
    )


def values(draft: Draft, name: str) -> list[Any]:
    return draft.columns[name].to_list()


# verl


def test_a_v1_uid_names_group_trajectory_and_turn() -> None:
    uids = ["a_b_0_0", "a_b_10_1", "plain"]
    draft = drafted(VERL, *({"input": "p", "output": "o", "score": 1, "uid": uid} for uid in uids))
    assert values(draft, "group_id") == ["a_b", "a_b", "plain"]
    assert values(draft, "sample_id") == ["a_b_0_0", "a_b_10_1", None]
    assert values(draft, "trajectory_id") == ["a_b_0", "a_b_10", None]
    assert values(draft, "turn") == ["0", "1", None]


def test_a_second_reward_of_verl_is_no_component_and_may_not_differ_unnoticed() -> None:
    row = {"input": "p", "output": "o", "gts": "4", "score": 1.0, "acc": True, "pred": "4"}
    same = drafted(VERL, {**row, "reward": 1.0})
    assert (same.reward, same.parts, same.extra, same.notes) == (
        "score",
        ("acc",),
        ("pred", "reward"),
        {},
    )
    text = drafted(VERL, {**row, "acc": "False", "pred": "42"})
    assert (text.parts, text.extra, text.notes) == (("acc",), ("pred",), {"component_from_text": 1})
    other = drafted(VERL, {**row, "reward": 1.0}, {**row, "reward": 0.0}, {**row, "reward": None})
    assert other.notes == {"reward_differs_from_score": 1}


def test_turns_of_a_verl_agent_fork() -> None:
    def turn(number: int, active: bool) -> Row:
        return {
            "rollout_step": number,
            "env_index": 0,
            "uid": "g",
            "traj_uid": "t",
            "active": active,
            "reward": 0.5,
            "done": False,
            "prompt": f"p{number}",
            "llm_output": "o",
            "projected_action": "up",
            "is_action_valid": True,
        }

    draft = drafted(VERL_AGENT, turn(0, True), turn(1, True))
    assert {name: values(draft, name) for name in draft.columns} == {
        "group_id": ["g", "g"],
        "trajectory_id": ["t", "t"],
        "turn": [0, 1],
        "prompt": ["p0", "p1"],
        "response": ["o", "o"],
    }
    assert (draft.reward, draft.parts) == ("reward", ("is_action_valid",))
    assert unfolded(VERL_AGENT, turn(2, False)) == [{"_skipped": "environment_ended"}]
    plain = drafted(VERL_AGENT, {"input": "p", "output": "o", "score": 1.0, "step": 3})
    assert (values(plain, "prompt"), plain.reward) == (["p"], "score")
    # The trainer's usual rows have verl's columns, so that only the user can say whose they are.
    assert VERL_AGENT.signature_in(frozenset({"input", "output", "score", "step"})) is None


# TRL and ms-swift


def test_reward_functions_of_trl_and_ms_swift() -> None:
    trl = {"step": 1, "prompt": "p", "completion": "c", "advantage": 0.0, "length": 3, "f": 0.5}
    draft = drafted(TRL, trl)
    assert (draft.reward, draft.summed, draft.parts, draft.extra) == (
        None,
        ("f",),
        ("f",),
        ("length",),
    )
    total = drafted(TRL, {**trl, "reward": 2.0})
    assert (total.reward, total.summed, total.parts) == ("reward", (), ("f",))
    swift = {"step": "7", "prompt": "p", "completion": "c", "acc": 1, "format": 0.5}
    swift |= {"advantages": 0.1, "solution": "4", "num_turns": 1, "entropy": 0.3}
    draft = drafted(MS_SWIFT, swift)
    assert draft.summed == draft.parts == ("acc", "format")
    assert draft.extra == ("num_turns", "entropy")
    assert values(draft, "ground_truth") == ["4"]
    ray = drafted(MS_SWIFT, {"gen_step": 2, "prompt": "p", "completion": "c", "reward": 1.0})
    assert (ray.reward, ray.summed, values(ray, "step")) == ("reward", (), [2])


def test_of_a_sampled_conversation_the_last_message_is_the_sample() -> None:
    chat = [("user", "a"), ("assistant", "given"), ("user", "b"), ("assistant", "sampled")]
    messages = [{"role": role, "content": text, "loss": None} for role, text in chat]
    (row,) = unfolded(MS_SWIFT, {"messages": messages, "rejected_response": "no", "id": "md5"})
    assert (row["group_id"], row["response"], row["turn"]) == ("md5", "sampled", 0)
    assert [m["content"] for m in row["messages"]] == ["a", "given", "b"]
    assert row["rejected_response"] == "no"


# Rows under names of their own


def test_roll_rows_board_and_agents() -> None:
    rlvr = {"global_step": 3, "id": "q1", "prompt": "p", "messages": "[]", "responses": "r"}
    draft = drafted(ROLL, {**rlvr, "scores": 1.0, "domain": "math", "tag": "aime"})
    assert (values(draft, "group_id"), values(draft, "step")) == (["q1"], [3])
    assert (values(draft, "env"), draft.reward) == (["math"], "scores")
    assert draft.extra == ("messages", "tag")
    board = {"prompt": "p", "response": "r", "response_tokens": ["r"], "logprobs": [-0.5]}
    draft = drafted(ROLL, {**board, "ref_logprobs": [-1.0], "reward": 0.0, "step": 4})
    assert (values(draft, "rollout_logprobs"), draft.reward) == ([[-0.5]], "reward")
    assert draft.extra == ("response_tokens", "ref_logprobs")
    chat = '[{"role": "user", "content": "u"}, {"role": "assistant", "content": "a"}]'
    data = '{"trajectory_id": "t", "reward_info": {"episode_reward": 2.0}}'
    (row,) = unfolded(ROLL, {"messages": chat, "trajectory_data": data, "global_step": 1})
    assert (row["trajectory_id"], row["response"], row["reward"]) == ("t", "a", 2.0)


def test_areal_concludes_truncation_only_where_ends_are_written() -> None:
    row = {"task_id": 4, "tail_version": 2, "head_version": 1, "reward": 1.0, "prompt": "p"}
    texts = ["done<|im_end|>\n", "cut off", "<|im_end|> in the middle"]
    rows = [{**row, "sample_idx": i, "completion": text} for i, text in enumerate(texts)]
    draft = drafted(AREAL, *rows)
    assert values(draft, "finish_reason") == ["stop", "length", "length"]
    assert (values(draft, "step")[0], values(draft, "sample_id")[1]) == (2, "4_1")
    assert draft.extra == ("tail_version", "head_version")
    assert "finish_reason" not in drafted(AREAL, rows[1]).columns
    asked = drafted(AREAL, {**rows[1], "prompt": "<|im_start|>user\np<|im_end|>\n"})
    assert values(asked, "finish_reason") == ["length"]


def test_skyrl_open_instruct_and_tinker_rows() -> None:
    skyrl = {"input_prompt": "p", "output_response": "r", "score": [0.0, 1.0], "env_class": "sql"}
    draft = drafted(SKYRL, {**skyrl, "stop_reason": "length", "data_source": "spider"})
    assert (values(draft, "split"), values(draft, "env")) == (["eval"], ["sql"])
    assert (draft.reward, draft.extra) == ("score", ("data_source",))
    ids = {"step": 1, "prompt_idx": 0, "sample_idx": 3, "prompt_tokens": [1], "reward": 0.0}
    draft = drafted(OPEN_INSTRUCT, {**ids, "response_tokens": [2, 3], "ground_truth": [9]})
    assert (values(draft, "group_id"), values(draft, "response_ids")) == ([0], [[2, 3]])
    assert values(draft, "ground_truth") == [[9]]
    steps = [{"ac_len": 5, "reward": 0.0}, {"ac_len": 7, "reward": 1.0, "stop_reason": "length"}]
    tinker = {"split": "train", "iteration": 8, "group_idx": 2, "traj_idx": 1, "steps": steps}
    draft = drafted(TINKER, {**tinker, "total_reward": 1.5, "final_reward": 0.5})
    assert (values(draft, "step"), values(draft, "sample_id")) == ([8], ["2_1"])
    assert (draft.reward, draft.parts) == ("total_reward", ("final_reward",))
    assert values(draft, "finish_reason") == ["length"]
    assert "response" not in draft.columns
    (row,) = unfolded(TINKER, tinker)
    assert row["response_length"] == 12


# slime


def sample(**changes: Any) -> Row:
    base = {"group_index": 1, "index": 5, "prompt": "p", "response": "r", "reward": 1.0}
    return {**base, "tokens": [1, 2, 3, 4], "response_length": 3, "status": "truncated", **changes}


def test_slime_samples_of_a_rollout() -> None:
    samples = [sample(rollout_id=6), sample(response_length=0), sample(response_length=5)]
    rows = unfolded(SLIME, {"rollout_id": 6, "samples": samples})
    assert [row["step"] for row in rows] == [6, 6, 6]
    assert "rollout_id" not in rows[0]
    ids = [(row.get("prompt_ids"), row.get("response_ids")) for row in rows]
    assert ids == [([1], [2, 3, 4]), ([1, 2, 3, 4], []), (None, None)]
    assert [row["_flags"] for row in rows] == [[], [], ["bad_token_ids"]]
    draft = drafted(SLIME, {"rollout_id": 6, "samples": samples})
    assert values(draft, "finish_reason") == ["truncated"] * 3
    assert (draft.reward, draft.extra) == ("reward", ("response_length",))


@pytest.mark.parametrize(
    ("changes", "flags"),
    [
        ({"loss_mask": [1, 1, 1]}, []),
        ({"loss_mask": [1, 0, 1]}, ["tool_tokens_in_response"]),
        ({"loss_mask": [0, 0, 0]}, ["not_trained_on"]),
        ({"remove_sample": True}, ["not_trained_on"]),
        ({"multimodal_inputs": {"images": ["<image>"]}}, ["prompt_parts_left_out"]),
        ({"tokens": "tensor of shape (2, 3)"}, ["bad_token_ids"]),
        ({"tokens": []}, []),
    ],
)
def test_what_slime_says_of_a_sample_becomes_flags(changes: Row, flags: list[str]) -> None:
    (row,) = unfolded(SLIME, sample(rollout_id=2, **changes))
    assert row["_flags"] == flags
    assert row["step"] == 2


# NeMo-RL


def nemo(content: Any, mask: list[int] | None = None, **changes: Any) -> Row:
    record: Row = {"content": content, "rewards": 1.0, "idx": 3, **changes}
    if mask is not None:
        ids = range(10, 10 + len(mask))
        record |= {"token_ids": [*ids, 0, 0], "token_loss_mask": [*mask, 0, 0]}
        record |= {"generation_logprobs": [-i / 10 for i in range(len(mask) + 2)]}
        record |= {"advantages": [0.25] * len(mask) + [0.0, 0.0], "input_lengths": len(mask)}
    return record


def test_nemo_answers_are_every_second_text() -> None:
    rows = unfolded(NEMO_RL, nemo(["p", "a", "env", "b", "end"]))
    assert [(row["turn"], row["prompt"], row["response"]) for row in rows] == [
        (0, "p", "a"),
        (1, "paenv", "b"),
    ]
    assert {row["trajectory_id"] for row in rows} == {"3"}
    (alone,) = unfolded(NEMO_RL, nemo(["p"]))
    assert (alone["prompt"], alone["response"]) == ("p", None)


def test_nemo_masks_say_which_tokens_and_texts_are_answers() -> None:
    first, second = unfolded(NEMO_RL, nemo(["p", "a", "env", "b"], [0, 0, 1, 1, 0, 1]))
    assert (first["prompt_ids"], first["response_ids"]) == ([10, 11], [12, 13])
    assert first["rollout_logprobs"] == [-0.2, -0.3]
    assert (second["prompt_ids"], second["response_ids"]) == ([10, 11, 12, 13, 14], [15])
    assert (second["advantage"], second["_flags"]) == (0.25, [])
    (after_system,) = unfolded(NEMO_RL, nemo(["sys", "p", "a"], [0, 0, 1]))
    assert (after_system["prompt"], after_system["response"]) == ("sysp", "a")
    (before_env,) = unfolded(NEMO_RL, nemo(["p", "a", "env"], [0, 1, 0]))
    assert (before_env["response"], before_env["response_ids"]) == ("a", [11])


def test_nemo_arrays_that_do_not_fit_are_left_out() -> None:
    (row,) = unfolded(NEMO_RL, nemo(["p", "a"], [0, 1, 0, 1], sample_loss_mask=0.0))
    assert row["response"] == "a"
    assert row["_flags"] == ["not_trained_on", "token_arrays_left_out"]
    assert "response_ids" not in row
    (old,) = unfolded(NEMO_RL, nemo(["p", "a"], generation_logprobs=[0.0, -1.0]))
    assert old["_flags"] == ["token_arrays_left_out"]


def test_nemo_validations_and_filtered_rewards() -> None:
    chat = [{"role": "user", "content": "p", "token_ids": "tensor([1])"}]
    chat.append({"role": "assistant", "content": "a"})
    (row,) = unfolded(NEMO_RL, nemo(chat))
    assert (row["messages"], row["response"]) == ([{"role": "user", "content": "p"}], "a")
    draft = drafted(NEMO_RL, nemo(["p", "a"], filtered_rewards=0.0))
    assert (draft.reward, draft.notes) == ("filtered_rewards", {"unaligned_rewards": 1})
    assert draft.extra == ("rewards",)
    assert drafted(NEMO_RL, nemo(["p", "a"])).notes == {}


# Unknown trainers


def test_usual_names_are_known_and_none_is_guessed_among_several() -> None:
    row = {"question": "p", "completion": "c", "score": 1.0, "uid": "g", "answer": "4"}
    draft = drafted(GENERIC, {**row, "label": "B", "is_truncated": True, "acc": 1, "seed": 3})
    assert {name: values(draft, name) for name in draft.columns} == {
        "group_id": ["g"],
        "prompt": ["p"],
        "response": ["c"],
        "ground_truth": ["4"],
        "finish_reason": ["length"],
    }
    assert (draft.reward, draft.parts, draft.extra) == ("score", ("acc",), ("label", "seed"))
    with pytest.raises(DumpError, match=r"dump\.jsonl: columns completion and output can each be"):
        drafted(GENERIC, {**row, "output": "o"})
    # A column under the canonical name, as the user may have named it, is the one.
    mapped = drafted(GENERIC, {**row, "response": "o"})
    assert (values(mapped, "response"), mapped.extra) == (["o"], ("completion",))


def test_of_several_rewards_of_an_unknown_trainer_none_is_taken() -> None:
    draft = drafted(GENERIC, {"question": "p", "output": "c", "score": 1.0, "total_reward": 2.0})
    assert (draft.reward, draft.parts) == (None, ("score", "total_reward"))
    named = drafted(GENERIC, {"question": "p", "output": "c", "score": 1.0, "reward": 2.0})
    assert (named.reward, named.notes) == ("reward", {"two_reward_columns": 1})


@pytest.mark.parametrize(
    "dialect",
    [VERL, VERL_AGENT, TRL, MS_SWIFT, ROLL, NEMO_RL, AREAL, SKYRL, SLIME, TINKER, GENERIC],
)
def test_a_file_without_rows_or_with_some_of_its_columns_has_a_draft(dialect: Dialect) -> None:
    for signature in dialect.signatures:
        for names in (sorted(signature), sorted(signature)[:1]):
            frame = pl.DataFrame({name: pl.Series([], dtype=pl.String) for name in names})
            nothing = pl.Series([], dtype=pl.List(pl.String))
            raw = RawTable(Path("x"), frame, pl.Series("_row", [], dtype=pl.Int64), nothing)
            draft = dialect.draft(raw)
            assert set(draft.extra) | set(draft.parts) <= set(names)
