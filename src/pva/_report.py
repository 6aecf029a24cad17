"""A report: how it is opened, and what made it."""

from __future__ import annotations

import re
from enum import Enum
from functools import cached_property
from pathlib import Path

from abele.errors import InvalidOption
from pva._compilation import CompilationReport
from pva._data import Data
from pva._execution import ExecutionReport
from pva._programs import Programs


class ComputeInstrumentationLevel(Enum):
    Off = 0
    Vertex = 1
    Tile = 2
    Ipu = 3
    Device = 4
    Unknown = 5


class ExternalExchangeInstrumentationLevel(Enum):
    Off = 0
    Tile = 1
    Unknown = 2


class InstrumentationSettings:
    """How closely a run was watched: the model knows every tile, at no cost to the program."""

    ComputeInstrumentationLevel = ComputeInstrumentationLevel
    ExternalExchangeInstrumentationLevel = ExternalExchangeInstrumentationLevel
    compute = ComputeInstrumentationLevel.Tile
    externalExchange = ExternalExchangeInstrumentationLevel.Tile


class PoplarVersion:
    """What made the report: Abele, whose version stands in Poplar's place."""

    packageHash = ""

    def __init__(self, version: str) -> None:
        self.major, self.minor, self.point = (int(part) for part in (re.findall(r"\d+", version) + ["0"] * 3)[:3])
        self.string = f"Abele {version}"


class ProfileReportVersion:
    """The version of the report's schema."""

    minor, point = 0, 0
    isUnstableFormat = False

    def __init__(self, schema: int) -> None:
        self.major = schema


class Report:
    """A report. ``compilation`` and ``execution`` are read when they are first asked for."""

    instrumentationSettings = InstrumentationSettings()

    def __init__(self, data: Data) -> None:
        self._data = data
        self.poplarVersion, self.version = PoplarVersion(data.abele), ProfileReportVersion(data.schema)

    @cached_property
    def _programs(self) -> Programs:
        return Programs(self._data)

    @cached_property
    def compilation(self) -> CompilationReport:
        return CompilationReport(self._data, self._programs)

    @cached_property
    def execution(self) -> ExecutionReport:
        return ExecutionReport(self._data, self._programs)

    def listPrintLength(self, newLength: int) -> None:
        """Nothing: lists show how many items they have."""


def openReport(profile: str | Path, debug: str | Path | None = None) -> Report:
    """Open a report that Abele wrote.

    Args:
        profile: ``profile.pop``; of a report of several programs the first is read.
        debug: the vendor's file of debug information. Reports of Abele hold layers and lines themselves, so that the
            file only has to be there.

    Raises:
        InvalidOption: there is no such file.
        BadReport: it is no report of Abele (one of the vendor's has a format that is not public).
    """
    if debug is not None and not Path(debug).is_file():
        raise InvalidOption(
            f"There is no debug information {str(debug)!r}", remedy="Leave it out: reports of Abele hold it."
        )
    return Report(Data(profile))
