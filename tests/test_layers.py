"""Data flows one way: a module imports only what stands before it, and torch stays in its rooms."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import ragen_diag

PACKAGE = Path(ragen_diag.__file__).parent

# Left to right as the data flows. A module may import rooms to its left, and its own room.
ORDER = [
    "errors",
    "settings",
    "rollouts",
    "dumps",
    "spans",
    "answers",
    "tokens",
    "prompts",
    "encoding",
    "groups",
    "checkpoints",
    "scoring",
    "metrics",
    "trends",
    "snr",
    "judging",
    "survey",
    "result",
    "history",
    "timeline",
    "postmortem",
    "report",
    "pipeline",
    "cli",
]
# Rooms that know nothing of ours but themselves.
SELF_CONTAINED = {"errors", "settings", "metrics", "spans", "trends"}
TORCH_ROOMS = {
    "checkpoints/load.py",
    "checkpoints/loading",
    "checkpoints/conversion",
    "scoring",
    "dumps/torchfile.py",
}
HEAVY = {"torch", "transformers", "matplotlib"}


def _modules() -> Iterator[tuple[str, str, ast.Module]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        name = path.relative_to(PACKAGE).as_posix()
        room = name.split("/")[0].removesuffix(".py")
        if room not in ("__init__", "__main__", "testing"):
            yield name, room, ast.parse(path.read_text(encoding="utf-8"))


def _imports(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_every_room_has_its_place_in_the_order() -> None:
    assert {room for _, room, _ in _modules()} == set(ORDER)


def test_imports_go_one_way() -> None:
    for name, room, tree in _modules():
        for imported in _imports(tree):
            parts = imported.split(".")
            if parts[0] != "ragen_diag" or len(parts) < 2 or parts[1] not in ORDER:
                continue
            target = parts[1]
            assert ORDER.index(target) <= ORDER.index(room), f"{name} imports {imported}"
            if room in SELF_CONTAINED:
                assert target == room, f"{name} imports {imported}"


def test_metrics_know_numpy_only() -> None:
    for name, room, tree in _modules():
        if room == "metrics":
            foreign = {i.split(".")[0] for i in _imports(tree)} & (HEAVY | {"polars", "pyarrow"})
            assert not foreign, f"{name} imports {foreign}"


def test_torch_is_imported_in_its_rooms_only() -> None:
    for name, _, tree in _modules():
        if any(name.startswith(room) for room in TORCH_ROOMS):
            continue
        assert "torch" not in {i.split(".")[0] for i in _imports(tree)}, name


def _heavy_after(statement: str) -> set[str]:
    code = f"import sys; {statement}; print(*({HEAVY!r} & set(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(run.stdout.split())


@pytest.mark.parametrize(
    "statement",
    [
        "import ragen_diag.cli",
        "import ragen_diag.result, ragen_diag.judging.regimes, ragen_diag.metrics.information",
        "import ragen_diag.dumps, ragen_diag.spans, ragen_diag.groups",
        "import ragen_diag.checkpoints.locate, ragen_diag.checkpoints.layouts",
        "import ragen_diag.scoring.scores",
        "import ragen_diag.survey, ragen_diag.report.survey",
    ],
)
def test_what_needs_no_model_imports_no_torch(statement: str) -> None:
    assert _heavy_after(statement) == set()
