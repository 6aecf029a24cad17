"""Validation: published measurements as cases, predicted by the model and compared, misses included."""

from abele.cost.validate.cases import COLUMNS, UNITS, Case, builtin_cases, read_cases
from abele.cost.validate.outcome import RUNNERS, NoRunner, Outcome
from abele.cost.validate.ratios import Ratio, RatioSummary, ratios, summarise_ratios
from abele.cost.validate.run import RUNNER_MODULES, run_case, validate
from abele.cost.validate.summary import Row, Summary, summarise

__all__ = [
    "COLUMNS",
    "RUNNERS",
    "RUNNER_MODULES",
    "UNITS",
    "Case",
    "NoRunner",
    "Outcome",
    "Ratio",
    "RatioSummary",
    "Row",
    "Summary",
    "builtin_cases",
    "ratios",
    "read_cases",
    "run_case",
    "summarise",
    "summarise_ratios",
    "validate",
]
