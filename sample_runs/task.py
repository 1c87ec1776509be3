"""The task: walk a 5x5 grid from the player to the goal without stepping into a hole.

Three things live here: states and their prompt text, the noisy expert that writes the warm-up
traces, and the reward. All text is words separated by single spaces, so a word is a token and
re-tokenising a text gives the ids back.
"""

import random
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

SIZE = 5
MAX_DISTANCE = 5
MAX_MOVES = 10
MIN_THOUGHT = 3
"""Shortest well-formed thought in words; keeps a length cost from emptying the block outright."""

Cell = tuple[int, int]

SPECIALS = ("<pad>", "<s>", "<unk>", "<think>", "</think>", "<answer>", "</answer>")
NUMBERS = ("zero", "one", "two", "three", "four")
MOVES: dict[str, Cell] = {"up": (-1, 0), "down": (1, 0), "left": (0, -1), "right": (0, 1)}


@dataclass(frozen=True)
class State:
    """One board. Holes are sorted, so that equal boards have equal prompts."""

    player: Cell
    goal: Cell
    holes: tuple[Cell, ...]

    def prompt(self) -> str:
        """Always 25 words, so prompts never need padding."""
        facts = [
            ("player", self.player),
            ("goal", self.goal),
            *(("hole", hole) for hole in self.holes),
        ]
        return "<s> " + " ; ".join(f"{name} {cell_words(cell)}" for name, cell in facts) + " ."


def cell_words(cell: Cell) -> str:
    return f"row {NUMBERS[cell[0]]} col {NUMBERS[cell[1]]}"


def step_cell(cell: Cell, move: str) -> Cell:
    """The neighbouring cell; the border stops the player rather than ending the episode."""
    row, col = (
        min(max(place + delta, 0), SIZE - 1) for place, delta in zip(cell, MOVES[move], strict=True)
    )
    return row, col


def shortest_path(
    start: Cell, goal: Cell, holes: Iterable[Cell], rng: random.Random
) -> list[str] | None:
    """A shortest path around the holes, ties broken at random; None when the goal is cut off."""
    closed = {start, *holes}
    queue: deque[tuple[Cell, list[str]]] = deque([(start, [])])
    while queue:
        cell, path = queue.popleft()
        if cell == goal:
            return path
        for move in rng.sample(list(MOVES), len(MOVES)):
            neighbour = step_cell(cell, move)
            if neighbour not in closed:
                closed.add(neighbour)
                queue.append((neighbour, [*path, move]))
    return None


def random_states(rng: random.Random, exclude: frozenset[State] = frozenset()) -> Iterator[State]:
    """Endless solvable boards with the goal at Manhattan distance 1 to 5, never one to exclude."""
    cells = [(row, col) for row in range(SIZE) for col in range(SIZE)]
    while True:
        player, goal, *holes = rng.sample(cells, 4)
        state = State(player, goal, tuple(sorted(holes)))
        near = abs(player[0] - goal[0]) + abs(player[1] - goal[1]) <= MAX_DISTANCE
        if near and state not in exclude and shortest_path(player, goal, holes, rng):
            yield state


# Expert traces

POSITION = (
    "i am at {cell} .",
    "my spot is {cell} .",
    "i stand on {cell} .",
    "player is in {cell} .",
    "now at {cell} .",
    "here is {cell} .",
)
GOAL = (
    "goal is at {cell} .",
    "head to {cell} .",
    "i need to go to {cell} .",
    "target sits on {cell} .",
    "the goal is in {cell} .",
    "must reach {cell} .",
)
ONE_AXIS = (
    ("so it is {parts} .", "{n} {move}", "and"),
    ("need to go {parts} .", "{move} {n}", "then"),
    ("goal lies {parts} from me .", "{n} steps {move}", "and"),
    ("move {parts} .", "{move} by {n}", ","),
    ("target is {parts} .", "{move} {n} away", "and"),
)
"""Displacement wordings: the sentence, one axis of it, and the word that joins two axes."""
HOLE_NEAR = (
    "careful , hole on the {move} side .",
    "a hole is {move} of me .",
    "watch the hole {move} .",
    "danger {move} .",
)
HOLE_FAR = ("no hole next to me .", "the way is free .", "no danger near .", "path is safe here .")
PLAN = (
    "plan : first {move} .",
    "i will start {move} .",
    "first step {move} .",
    "begin with {move} .",
    "my plan goes {move} first .",
)
GENERIC = (
    "let us think about this step by step .",
    "okay we must be careful .",
    "hmm the path looks clear .",
    "just go toward the goal .",
    "well there is a safe way .",
    "let us plan first and then move .",
    "watch out for danger .",
    "i need to move carefully .",
)
FILLERS = ("okay .", "hmm .", "well .")


def vocabulary() -> list[str]:
    """Special tokens, then every word of the task in alphabetical order; the index is the id."""
    frames = [text for frame in ONE_AXIS for text in frame]
    sentences = (*POSITION, *GOAL, *frames, *HOLE_NEAR, *HOLE_FAR, *PLAN, *GENERIC, *FILLERS)
    words = {
        word for sentence in sentences for word in sentence.split() if not word.startswith("{")
    }
    words |= {"player", "goal", "hole", "row", "col", ";", ".", *NUMBERS, *MOVES}
    return [*SPECIALS, *sorted(words)]


def expert_trace(state: State, rng: random.Random) -> str:
    """One warm-up response: a thought in varied words and an answer, right in some 72 % of cases.

    The expert errs in three ways. It may believe a wrong coordinate: thought and answer then agree
    with each other but not with the board, which teaches the model to heed the thought. It may
    ignore the holes. It may botch one move.
    """
    player, goal = believed_cells(state, rng) if rng.random() < 0.12 else (state.player, state.goal)
    holes = () if rng.random() < 0.3 else state.holes
    path = shortest_path(player, goal, holes, rng) or shortest_path(player, goal, (), rng) or []
    thought = (
        rng.sample(GENERIC, rng.choice((1, 2)))
        if rng.random() < 0.1
        else grounded_thought(player, goal, state.holes, path[0], rng)
    )
    if rng.random() < 0.2:
        path[rng.randrange(len(path))] = rng.choice(list(MOVES))
    return f"<think> {' '.join(thought)} </think> <answer> {' '.join(path)} </answer>"


def believed_cells(state: State, rng: random.Random) -> tuple[Cell, Cell]:
    """Player and goal with one coordinate of one of them wrong, still on different cells."""
    while True:
        cells = [list(state.player), list(state.goal)]
        cells[rng.randrange(2)][rng.randrange(2)] = rng.randrange(SIZE)
        player, goal = ((row, col) for row, col in cells)
        if player != goal and (player, goal) != (state.player, state.goal):
            return player, goal


def grounded_thought(
    player: Cell, goal: Cell, holes: tuple[Cell, ...], first_move: str, rng: random.Random
) -> list[str]:
    """Sentences about this board, order and wording random; position or goal is always named."""
    where = [
        rng.choice(POSITION).format(cell=cell_words(player)),
        rng.choice(GOAL).format(cell=cell_words(goal)),
    ]
    if rng.random() < 0.25:
        del where[rng.randrange(2)]
    sentences = [*where, displacement(player, goal, rng)]
    if rng.random() < 0.5:
        near = [move for move in MOVES if step_cell(player, move) in holes]
        sentences.append(
            rng.choice(HOLE_NEAR).format(move=rng.choice(near)) if near else rng.choice(HOLE_FAR)
        )
    if rng.random() < 0.5:
        sentences.append(rng.choice(PLAN).format(move=first_move))
    rng.shuffle(sentences)
    return [rng.choice(FILLERS), *sentences] if rng.random() < 0.15 else sentences


def displacement(player: Cell, goal: Cell, rng: random.Random) -> str:
    """The way to the goal in words, axes in random order: "need to go up two then right one ."."""
    rows, cols = goal[0] - player[0], goal[1] - player[1]
    axes = [(rows, "down" if rows > 0 else "up"), (cols, "right" if cols > 0 else "left")]
    sentence, axis, joint = rng.choice(ONE_AXIS)
    parts = [axis.format(n=NUMBERS[abs(length)], move=move) for length, move in axes if length]
    rng.shuffle(parts)
    return sentence.format(parts=f" {joint} ".join(parts))


# Reward


@dataclass(frozen=True)
class RewardRule:
    """What one response earns: 1 for success, less a price for bad format and per thought word."""

    format_penalty: float = 0.1
    length_cost: float = 0.0
    free_length: int = 0
    """Thought words that cost nothing. Without such a dead band the pressure never ends."""
    thought_required: bool = True
    """False: an answer block alone is good format, and all that precedes it, tags included, costs.

    Nothing but habit then keeps the reasoning.
    """

    def components(self, response: str, state: State) -> dict[str, float]:
        """Named parts that add up to the reward; `reaches_goal` has the meaning of success."""
        words = response.split()
        moves = answered_moves(words)
        good_format = moves is not None and (not self.thought_required or has_proper_thought(words))
        length = thought_length(words) if self.thought_required else preamble_length(words)
        excess = max(0, length - self.free_length)
        return {
            "success": float(good_format and moves is not None and reaches_goal(moves, state)),
            "format_penalty": 0.0 if good_format else -self.format_penalty,
            "length_penalty": -self.length_cost * excess if excess else 0.0,
        }


def reaches_goal(moves: list[str], state: State) -> bool:
    """Strict success: the last move, and none before it, lands on the goal; no move enters a hole.

    Counting a mere touch of the goal would reward sweeping across the board without looking at it.
    """
    cell = state.player
    for index, move in enumerate(moves):
        cell = step_cell(cell, move)
        if cell in state.holes:
            return False
        if cell == state.goal:
            return index == len(moves) - 1
    return False


def answered_moves(words: list[str]) -> list[str] | None:
    """The 1 to 10 moves of the one answer block that ends the response; None if it is not so."""
    if words.count("<answer>") != 1 or words[-1] != "</answer>":
        return None
    moves = words[words.index("<answer>") + 1 : -1]
    return moves if 1 <= len(moves) <= MAX_MOVES and all(move in MOVES for move in moves) else None


def thought_words(words: list[str]) -> list[str] | None:
    """What stands between the first opening tag and the next closing tag; None without a pair."""
    if "<think>" not in words:
        return None
    after = words[words.index("<think>") + 1 :]
    return after[: after.index("</think>")] if "</think>" in after else None


def thought_length(words: list[str]) -> int:
    """Words of the thought; one that is never closed counts to the end of the response."""
    thought = thought_words(words)
    if thought is not None:
        return len(thought)
    return len(words) - words.index("<think>") - 1 if "<think>" in words else 0


def preamble_length(words: list[str]) -> int:
    """Words before the answer block, or all of them if there is none."""
    return words.index("<answer>") if "<answer>" in words else len(words)


def has_proper_thought(words: list[str]) -> bool:
    """The response opens with a thought of at least three plain words; the answer follows it."""
    thought = thought_words(words)
    if thought is None or words[0] != "<think>" or len(thought) < MIN_THOUGHT:
        return False
    return not set(thought) & set(SPECIALS) and words[len(thought) + 2 : len(thought) + 3] == [
        "<answer>"
    ]
