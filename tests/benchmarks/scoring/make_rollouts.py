"""Writes `rollouts.json`: prompts of a grid world and what SmolLM2-135M answers, as token ids.

    python -m tests.benchmarks.scoring.make_rollouts

The model's own samples at temperature 1, from seeds, cut at `MOST` tokens. The benchmark reads the
file and needs no generation.

* short: 8 prompts of about 250 tokens, the first 200 or so of them alike; 8 answers to each.
* long: 2 prompts of about 800 tokens, which begin alike and go on with the maps of earlier turns;
  16 answers to each.
* collapsed: 32 ways to go on from the first `SHARED` tokens of one answer, each `MOST` tokens long
  in all, under the first 2 short prompts.
"""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tests.benchmarks.scoring.models import load, load_tokenizer

PATH = Path(__file__).with_name("rollouts.json")
MOST, SHARED = 160, 96
SHORT, LONG, COLLAPSED = (8, 8), (2, 16), 32
"""Prompts, and answers to each."""
LONG_TOKENS = 840
SIZE, WALLS, PITS = 7, 6, 4

SYSTEM = """\
You are a robot in a world of squares. Every turn you see a map and choose your next moves.
The letters of the map: # is a wall that nobody can enter, . is free floor, O is a pit that ends \
the game at once, B is a box, X is the place where the box has to go, and P is you.
The rules: you can go up, down, left or right, one square at a time. If you walk into the box, it \
moves one square in the same direction, if that square is free. You can never pull a box, and a \
box that stands in a corner is lost.
First think about where you are, where the box is and from which side you have to push it. Then \
give at most three moves, separated by commas. You get ten points when the box is on its place, \
and you lose one tenth of a point for every move that you make."""
QUESTION = "Say in one or two sentences where you go and why."
MOVES = ("up", "down", "left", "right")


def world(rng: np.random.Generator) -> str:
    """A map, `SIZE` squares wide and high without its border."""
    squares = np.full(SIZE * SIZE, ".")
    marks = [*"PBX", *"#" * WALLS, *"O" * PITS]
    squares[rng.permutation(SIZE * SIZE)[: len(marks)]] = marks
    return "\n".join("".join(row) for row in squares.reshape(SIZE, SIZE))


def seen(number: int, rng: np.random.Generator) -> str:
    """A turn before, as the robot is told of it."""
    return f"Map {number}:\n{world(rng)}\nYou went {', '.join(rng.choice(MOVES, 2).tolist())}.\n"


def prompt(tokenizer: Any, seed: int, *, tokens: int) -> list[int]:
    """Ids of a chat of as many turns as `tokens` have room for, and of one at least."""
    rng = np.random.default_rng(seed)
    now = f"The map now:\n{world(rng)}\n{QUESTION}"
    before, number, ids = "", 0, []
    while True:
        chat = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": before + now}]
        text = tokenizer.apply_chat_template(chat, add_generation_prompt=True, tokenize=False)
        longer: list[int] = tokenizer(text, add_special_tokens=False)["input_ids"]
        if ids and len(longer) > tokens:
            return ids
        ids, number = longer, number + 1
        before += seen(number, rng)


def sample(model: Any, ids: list[int], count: int, seed: int, **settings: Any) -> list[list[int]]:
    """What the model says behind these ids, with the end token where it came to one."""
    torch.manual_seed(seed)
    end = model.config.eos_token_id
    with torch.inference_mode():
        out = model.generate(
            torch.tensor([ids]),
            attention_mask=torch.ones(1, len(ids), dtype=torch.long),
            do_sample=True,
            temperature=1.0,
            top_k=0,
            top_p=1.0,
            num_return_sequences=count,
            pad_token_id=end,
            **settings,
        )
    said = out[:, len(ids) :].tolist()
    return [row[: row.index(end) + 1] if end in row else row for row in said]


def answered(tokenizer: Any, model: Any, shape: tuple[int, int], *, tokens: int) -> dict[str, Any]:
    """Prompts and the answers to each."""
    prompts = [prompt(tokenizer, seed, tokens=tokens) for seed in range(shape[0])]
    settings = {"max_new_tokens": MOST}
    return {
        "prompts": prompts,
        "answers": [sample(model, x, shape[1], seed, **settings) for seed, x in enumerate(prompts)],
    }


def collapsed(model: Any, short: dict[str, Any]) -> list[list[int]]:
    """Answers that begin alike."""
    ids = short["prompts"][0]
    opening = next(z for z in short["answers"][0] if len(z) >= SHARED)[:SHARED]
    rest = MOST - SHARED
    settings = {"min_new_tokens": rest, "max_new_tokens": rest}
    return [opening + z for z in sample(model, ids + opening, COLLAPSED, 1000, **settings)]


def main() -> None:
    """Write the file and say how long its rows are."""
    tokenizer, model = load_tokenizer(), load("fp32")
    short = answered(tokenizer, model, SHORT, tokens=1)
    made = {
        "short": short,
        "long": answered(tokenizer, model, LONG, tokens=LONG_TOKENS),
        "collapsed": collapsed(model, short),
    }
    PATH.write_text(json.dumps(made, separators=(",", ":")) + "\n")
    for name in ("short", "long"):
        lengths = [len(z) for answers in made[name]["answers"] for z in answers]
        sys.stdout.write(
            f"{name}: prompts {[len(x) for x in made[name]['prompts']]}, answers "
            f"{min(lengths)} to {max(lengths)}, mean {np.mean(lengths):.0f} tokens\n"
        )


if __name__ == "__main__":
    main()
