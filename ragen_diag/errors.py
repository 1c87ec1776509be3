"""The errors a user can meet. Every message is one line: what, where, and what to do next.

    RagenDiagError
    ├── UsageError        the command's words do not fit together
    ├── DumpError         a rollout dump cannot be read, or what it holds cannot be used
    ├── CheckpointError   a checkpoint is missing, incomplete or not loadable as it stands
    ├── HistoryError      a training run's own log cannot be read
    ├── ScoringError      the model ran but gave nothing that may be trusted
    └── ResultError       a saved result cannot be read or compared

All of them mean "could not judge", exit code 2. Exit code 1 belongs to a failed gate alone.
"""


class RagenDiagError(Exception):
    """Base of all errors that are reported on one line, without a traceback."""

    exit_code = 2


class UsageError(RagenDiagError):
    """Options that contradict each other or name something that is not there."""


class DumpError(RagenDiagError):
    """A dump that is missing, empty, of an unknown dialect, or without a needed column."""


class CheckpointError(RagenDiagError):
    """A checkpoint without weights, tokenizer or configuration, or with weights that do not fit."""


class HistoryError(RagenDiagError):
    """A scalar log that is missing, damaged, of an unknown kind, or without steps or numbers."""


class Interrupted(RagenDiagError):
    """The user stopped a run whose work so far is kept."""

    exit_code = 130


class ScoringError(RagenDiagError):
    """Log-probabilities that are not finite, or nothing left to score."""


class ResultError(RagenDiagError):
    """A result file of another schema version, or one that is not a result."""
