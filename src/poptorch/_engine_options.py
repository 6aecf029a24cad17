"""Names of the vendor's engine options, so that a mistyped one is noticed.

None of them steers anything here: they choose how the vendor's compiler works and what its profiler writes. Programs
set them by the dozen, also some that later releases dropped, so an unknown one is no reason to stop: it is said once,
with the names that are near.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from abele.errors import suggest

from ._logging import log_once

_BY_GROUP = {
    "autoReport": """
        all directory executionProfileProgramRunCount outputArchive outputDebugInfo outputExecutionProfile
        outputGraphProfile outputLoweredVars outputSerializedGraph streamAtEachRun
    """,
    "debug": """
        allowOutOfMemory branchRecordFlush branchRecordTile computeInstrumentationLevel executionProfile
        floatPointOpException instrument instrumentCompute instrumentControlFlow instrumentExternalExchange
        nanOverflowException nanOverflowMode outputAllSymbols retainDebugInformation runtimeVerify trace verify
    """,
    "exchange": "enablePrefetch multicastPolicy streamBufferOverlap",
    "opt": """
        enableInlining enableMultiAccessCopies internalExchangeOptimisationTarget maxCompilationThreads
        maxComputeSetsPerLoweredCopy useAutoloader
    """,
    "prng": "enable enableStochasticRounding seed",
    "profiler": """
        blocks.filter blocks.implicitFlush blocks.tile format includeCycleEstimates includeFlopEstimates programs.filter
    """,
    "streamCallbacks": "maxLookahead multiThreadMode numWorkerThreads numaAware",
    "target": """
        deterministicWorkers extendedMemory firstRuntimeReplica gatewayMode hostSyncTimeout numberRuntimeReplica
        saveArchive supervisorStackSizeInBytes syncPollPeriodUs syncReplicasIndependently textSectionSizeInBytes
        workerStackSizeInBytes
    """,
}
KNOWN = frozenset(f"{group}.{name}" for group, names in _BY_GROUP.items() for name in names.split())


def note_unknown(names: Iterable[str]) -> None:
    """Warn once of each name that is not an engine option."""
    for name in names:
        if name not in KNOWN:
            message = f"There is no engine option {name!r}; it is passed over. {suggest(name, KNOWN)}"
            log_once(logging.WARNING, message.rstrip())
