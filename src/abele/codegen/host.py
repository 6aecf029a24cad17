"""What the kernels are compiled for: the processor of this computer, as LLVM names it."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import llvmlite.binding as llvm


@dataclass(frozen=True, slots=True)
class Host:
    """A processor: LLVM's name and features, floats in a vector register, and whether it rounds to half itself."""

    cpu: str
    features: str
    lanes: int
    rounds_to_half: bool

    @property
    def vector_bits(self) -> int:
        return 32 * self.lanes


@functools.cache
def host() -> Host:
    """The processor that this process runs on."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    has = llvm.get_host_cpu_features()
    arm = llvm.get_process_triple().startswith(("aarch64", "arm64"))
    if has.get("avx512f") and has.get("avx512vl") and has.get("avx512bw") and has.get("avx512dq"):
        lanes = 16
    else:
        lanes = 8 if has.get("avx2") else 4
    return Host(llvm.get_host_cpu_name(), has.flatten(), lanes, arm or bool(has.get("f16c")))
