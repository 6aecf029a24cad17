"""The vendor's library for reading reports (libpva), over reports that Abele writes.

``openReport("training/profile.pop")`` gives what was compiled (``compilation``: tiles, programs, compute sets,
liveness) and what one device iteration takes on the modelled machine (``execution``: runs, steps, cycles). A field that
a report of Abele does not hold raises ``NotInReport``, which says why.
"""

from pva._analysis import DebugContext, Operation, OperationAnalysis, SourceLocation
from pva._code import Vertex, VertexMemory, VertexType
from pva._compilation import (
    IPU,
    CompilationReport,
    Graph,
    LiveMemory,
    LivenessStep,
    Target,
    Tile,
    TileMemory,
)
from pva._data import NotInReport
from pva._execution import Block, ExecutionReport, Run, Step, StepIpu
from pva._lowered import EquivalenceClass, Interval, LoweredVariable, LoweredVariables, Variable
from pva._programs import ComputeSet, OnTileExecute, Program, ProgramVisitor
from pva._report import InstrumentationSettings, PoplarVersion, ProfileReportVersion, Report, openReport
from pva._trace import Event, Process, Thread, Trace, openTrace

__all__ = [
    "IPU",
    "Block",
    "CompilationReport",
    "ComputeSet",
    "DebugContext",
    "EquivalenceClass",
    "Event",
    "ExecutionReport",
    "Graph",
    "InstrumentationSettings",
    "Interval",
    "LiveMemory",
    "LivenessStep",
    "LoweredVariable",
    "LoweredVariables",
    "NotInReport",
    "OnTileExecute",
    "Operation",
    "OperationAnalysis",
    "PoplarVersion",
    "Process",
    "ProfileReportVersion",
    "Program",
    "ProgramVisitor",
    "Report",
    "Run",
    "SourceLocation",
    "Step",
    "StepIpu",
    "Target",
    "Thread",
    "Tile",
    "TileMemory",
    "Trace",
    "Variable",
    "Vertex",
    "VertexMemory",
    "VertexType",
    "openReport",
    "openTrace",
]
