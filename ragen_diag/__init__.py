"""Diagnose reasoning collapse in RL post-training, offline, from rollout dumps and checkpoints."""

__version__ = "0.1.0"
