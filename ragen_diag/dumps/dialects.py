"""The registry: every dialect that is known, one line each."""

from ragen_diag.dumps.areal import AREAL
from ragen_diag.dumps.art import ART
from ragen_diag.dumps.canonical import CANONICAL
from ragen_diag.dumps.dialect import Dialect
from ragen_diag.dumps.generic import GENERIC
from ragen_diag.dumps.nemo import NEMO_RL
from ragen_diag.dumps.open_instruct import OPEN_INSTRUCT
from ragen_diag.dumps.prime_rl import PRIME_RL
from ragen_diag.dumps.ragen import RAGEN
from ragen_diag.dumps.rllm import RLLM
from ragen_diag.dumps.roll import ROLL
from ragen_diag.dumps.skyrl import SKYRL
from ragen_diag.dumps.slime import SLIME
from ragen_diag.dumps.swift import MS_SWIFT
from ragen_diag.dumps.tinker import TINKER
from ragen_diag.dumps.trl import TRL
from ragen_diag.dumps.vagen import VAGEN
from ragen_diag.dumps.verifiers import VERIFIERS
from ragen_diag.dumps.verl import VERL, VERL_AGENT

__all__ = ["DIALECTS", "GENERIC"]

DIALECTS: tuple[Dialect, ...] = (
    CANONICAL,
    VERL,
    VERL_AGENT,
    VAGEN,
    TRL,
    MS_SWIFT,
    ROLL,
    NEMO_RL,
    RAGEN,
    VERIFIERS,
    PRIME_RL,
    AREAL,
    SLIME,
    OPEN_INSTRUCT,
    SKYRL,
    RLLM,
    ART,
    TINKER,
)
