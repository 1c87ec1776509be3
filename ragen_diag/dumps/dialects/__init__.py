"""The registry: every dialect that is known, one line each."""

from ragen_diag.dumps.dialect import Dialect
from ragen_diag.dumps.dialects.areal import AREAL
from ragen_diag.dumps.dialects.art import ART
from ragen_diag.dumps.dialects.canonical import CANONICAL
from ragen_diag.dumps.dialects.generic import GENERIC
from ragen_diag.dumps.dialects.nemo import NEMO_RL
from ragen_diag.dumps.dialects.open_instruct import OPEN_INSTRUCT
from ragen_diag.dumps.dialects.prime_rl import PRIME_RL
from ragen_diag.dumps.dialects.ragen import RAGEN
from ragen_diag.dumps.dialects.rllm import RLLM
from ragen_diag.dumps.dialects.roll import ROLL
from ragen_diag.dumps.dialects.skyrl import SKYRL
from ragen_diag.dumps.dialects.slime import SLIME
from ragen_diag.dumps.dialects.swift import MS_SWIFT
from ragen_diag.dumps.dialects.tinker import TINKER
from ragen_diag.dumps.dialects.trl import TRL
from ragen_diag.dumps.dialects.vagen import VAGEN
from ragen_diag.dumps.dialects.verifiers import VERIFIERS
from ragen_diag.dumps.dialects.verl import VERL, VERL_AGENT

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
