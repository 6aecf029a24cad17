"""The chips that were sold, as tables of constants: Mk1 GC2, Mk2 GC200, Bow and C600; and one that was announced.

Where no public source gives a number it is marked assumed and says what it rests on; all of them can be
changed with `Chip.derive`. A clock of 1.325 GHz is taken for the GC200 (1.33 is printed too: 0.4 % apart).
"""

from __future__ import annotations

from abele.machine.chip import Chip
from abele.machine.constants import Confidence, Constant

_DATASHEET = "docs.graphcore.ai, IPU and Bow Pod datasheets"
_POPLIBS = "graphcore/poplibs"
_IPU21 = "osmarks/ipu-stack, an independent compiler for C600"  # alone it makes a number no more than assumed
_ELK = "platformxlab/elk, fitted constants of the T10 cost model"
_TESSELLATE = "graphcore-research/tessellate-ipu notebooks"


def _c(value: float, unit: str, source: str, confidence: Confidence) -> Constant:
    return Constant(value, unit, source, confidence)


_GC200: dict[str, Constant] = {
    "tiles": _c(1472, "tiles", _DATASHEET, "published"),
    "workers": _c(6, "contexts/tile", f"{_DATASHEET}: 8832 threads an IPU", "published"),
    "tile_memory": _c(638_976, "B/tile", f"{_DATASHEET}: 624 KiB a tile", "published"),
    "clock_hz": _c(1.325e9, "Hz", "IPU-POD128 datasheet: 31.955 PFLOPS / 128 / (1472 * 128)", "derived"),
    "data_path_bytes": _c(8, "B", f"{_POPLIBS}, popops/popopsCycleEstimators.cpp", "published"),
    "load_bytes_per_cycle": _c(
        16, "B/cycle/tile", "24 B/cycle at 1.325 GHz is 46.8 TB/s; 47.5 quoted, 46.55 measured", "derived"
    ),
    "store_bytes_per_cycle": _c(
        8, "B/cycle/tile", "24 B/cycle at 1.325 GHz is 46.8 TB/s; 47.5 quoted, 46.55 measured", "derived"
    ),
    "memcpy_bytes_per_cycle": _c(8, "B/cycle/tile", _IPU21, "assumed"),
    "atomic_store_bytes": _c(4, "B", f"{_POPLIBS}, popops/popopsCycleEstimators.cpp", "published"),
    "sram_latency_cycles": _c(6, "cycles", "notes on arXiv 1912.03413 (Mk1), taken for Mk2", "assumed"),
    "accumulator_width_f16": _c(
        8, "elements", f"{_POPLIBS}, popops/reduction/CycleEstimationFunctions.cpp", "published"
    ),
    "accumulator_width_f32": _c(
        4, "elements", f"{_POPLIBS}, popops/reduction/CycleEstimationFunctions.cpp", "published"
    ),
    "amp_units_f16_f16": _c(16, "units", f"{_POPLIBS}, poplin/ConvModel.cpp; 249.65 TFLOPS an IPU", "derived"),
    "amp_units_f16_f32": _c(8, "units", f"{_POPLIBS}, poplin/ConvModel.cpp; 125 TFLOPS an IPU", "derived"),
    "amp_units_f32_f32": _c(16, "units", f"{_POPLIBS}, poplin/ConvModel.cpp; 62.4 TFLOPS an IPU", "derived"),
    "amp_units_f8_f16": _c(0, "units", f"{_DATASHEET}: no 8-bit floating point", "published"),
    "amp_load_f16": _c(4, "elements/cycle", f"{_POPLIBS}, poplin/ConvModel.cpp", "published"),
    "amp_load_f32": _c(2, "elements/cycle", f"{_POPLIBS}, poplin/ConvModel.cpp", "published"),
    "amp_load_f8": _c(8, "elements/cycle", f"{_POPLIBS}, poplin/ConvModel.cpp", "published"),
    "amp_loop_cycles_f16": _c(
        4, "cycles/position", f"{_TESSELLATE}, IPU Peak Flops: slope 4.000 cycles a row", "measured"
    ),
    "amp_loop_cycles_f32": _c(8, "cycles/position", f"{_POPLIBS}, poplin/PerformanceEstimation.hpp", "published"),
    "conv_chain": _c(4, "stages", f"{_POPLIBS}, poplin/ConvModel.cpp", "published"),
    "coefficient_load_bytes_per_cycle": _c(
        8, "B/cycle", f"{_POPLIBS}, poplin: 16 with use128BitConvUnitLoad, off by default", "published"
    ),
    "coefficient_wide_load_bytes_per_cycle": _c(
        16, "B/cycle", f"{_POPLIBS}, poplin: use128BitConvUnitLoad, weights in interleaved memory", "published"
    ),
    "slic_window": _c(4, "positions", f"{_POPLIBS}, poplin/ConvModel.cpp", "published"),
    "slic_chains_f16": _c(4, "chains", f"{_POPLIBS}, poplin/ConvModel.cpp", "published"),
    "slic_chains_f32": _c(2, "chains", f"{_POPLIBS}, poplin/ConvModel.cpp", "published"),
    "exchange_bytes_per_cycle": _c(
        4, "B/cycle/tile", f"{_POPLIBS} defaults; {_IPU21}; 7.80 TB/s against 8 quoted", "published"
    ),
    "tiles_per_exchange_bus": _c(2, "tiles", f"{_POPLIBS}, ExchangeEstimator; {_IPU21}", "published"),
    "exchange_efficiency": _c(
        0.893, "of the rate", f"{_ELK}: 0.56 cycles for 2 B shifted, against 0.5 at the full rate", "derived"
    ),
    "exchange_start_cycles": _c(
        72,
        "cycles",
        f"{_POPLIBS}, popnn/CTCLossPlan.cpp: 90 for a sync and 100 fixed for a small exchange, less the sync's 118",
        "derived",
    ),
    "exchange_receive_instructions": _c(
        2,
        "instructions",
        "osmarks/ipu-stack, docs/EXCHANGE_INSTRUCTION_REFERENCE.md: the vendor's programs take one merged instruction "
        "of two words for each message, which sets source, place and time",
        "published",
    ),
    "exchange_send_bytes": _c(
        16384,
        "B",
        "osmarks/ipu-stack, docs/EXCHANGE_INSTRUCTION_REFERENCE.md: a sendoff counts up to 4,096 words",
        "published",
    ),
    "sync_cycles": _c(118, "cycles", f"{_ELK}: SYNC_CYCLES", "derived"),
    "compute_set_cycles": _c(
        127,
        "cycles",
        f"{_TESSELLATE}, tile API basics: 1,860 cycles for 1,024 float adds less 1,733 by the formula",
        "derived",
    ),
    "supervisor_call_cycles": _c(11, "cycles", f"{_IPU21}; {_POPLIBS} elementwise entry", "published"),
    "instruction_bytes": _c(4, "B", "assumed: 32-bit instructions", "assumed"),
    "idle_watts": _c(91.0, "W", "assumed: 35 % of the average under load", "assumed"),
    "load_watts": _c(
        259.0,
        "W",
        "Bow-2000 average of 1.25 kW over 4 IPUs, divided by 1.4 / 1.16 (vendor's ratios)",
        "derived",
    ),
    "joules_per_mac_f16": _c(0.5e-12, "J", "assumed: 62 W at the peak rate", "assumed"),
    "joules_per_mac_f32": _c(2.0e-12, "J", "assumed: four times half", "assumed"),
    "joules_per_vector_flop": _c(1.0e-12, "J", "assumed: 8 W at the peak half rate", "assumed"),
    "joules_per_sram_byte": _c(1.0e-12, "J/B", "assumed: 47 W at the full rate", "assumed"),
    "joules_per_exchange_byte": _c(3.0e-12, "J/B", "assumed: 23 W at the full rate", "assumed"),
}

_ENERGIES = [name for name in _GC200 if name.startswith("joules")]
_SHRINK = 1.207 / 1.396  # Bow against Mk2: power by 1.4 / 1.16 and clock by 1.85 / 1.325

_BOW = _GC200 | {
    "clock_hz": _c(1.85e9, "Hz", "MLPerf Training v2.0 system files; device property 1850 MHz", "published"),
    "idle_watts": _c(109.0, "W", "assumed: 35 % of the average under load", "assumed"),
    "load_watts": _c(312.5, "W", "eenewseurope.com: Bow-2000 average 1.25 kW, over 4 IPUs", "derived"),
    **{
        name: _c(
            float(f"{_GC200[name].value * _SHRINK:.3g}"),
            _GC200[name].unit,
            "assumed: the GC200's, times Bow's energy per cycle against Mk2 (vendor's ratios)",
            "assumed",
        )
        for name in _ENERGIES
    },
}

_C600 = _BOW | {
    "clock_hz": _c(1.5e9, "Hz", "graphcore/PopRT, tools/calc_ipu_utilization.py", "published"),
    "amp_units_f8_f16": _c(16, "units", f"{_POPLIBS}, poplin; 560 TFLOPS in 8 bits", "derived"),
    "idle_watts": _c(65.0, "W", "assumed: 35 % of the board's power", "assumed"),
    "load_watts": _c(185.0, "W", "docs.graphcore.ai, C600: TDP 185 W", "published"),
}

_GC2_NOTES = "notes on arXiv 1912.03413"
_MK1 = _GC200 | {
    "tiles": _c(1216, "tiles", f"{_POPLIBS} tool defaults; {_GC2_NOTES}", "published"),
    "workers": _c(6, "contexts/tile", _GC2_NOTES, "published"),
    "tile_memory": _c(262_144, "B/tile", f"{_POPLIBS} tool defaults", "published"),
    "clock_hz": _c(1.6e9, "Hz", f"{_GC2_NOTES}; UoB-HPC/ipu-hpc-cookbook warns that it may be 1.3 GHz", "published"),
    "load_bytes_per_cycle": _c(16, "B/cycle/tile", f"{_GC2_NOTES}: 31.1 TB/s read", "derived"),
    "store_bytes_per_cycle": _c(8, "B/cycle/tile", f"{_GC2_NOTES}: 45 TB/s in all", "derived"),
    "amp_units_f16_f16": _c(8, "units", f"{_GC2_NOTES}: 124.5 TFLOPS mixed", "derived"),
    "amp_units_f16_f32": _c(8, "units", f"{_GC2_NOTES}: 124.5 TFLOPS mixed", "derived"),
    "amp_units_f32_f32": _c(8, "units", f"{_GC2_NOTES}: 31.1 TFLOPS", "derived"),
    "exchange_bytes_per_cycle": _c(4, "B/cycle/tile", f"{_GC2_NOTES}: 7.78 TB/s against 8 quoted", "derived"),
    "sync_cycles": _c(90, "cycles", "thorbenlouw/lbm-graphcore: 64 to 117 cycles an iteration, the middle", "measured"),
    "idle_watts": _c(52.0, "W", "assumed: 35 % of the board's share", "assumed"),
    "load_watts": _c(150.0, "W", "assumed: half of a two-IPU C2 board of 300 W", "assumed"),
}

_GOOD_SOURCE = (
    "assumed: the Good computer was announced (March 2022) with over 10 EFLOPS in 8192 IPUs, no chip described"
)
_GOOD = _BOW | {
    "tiles": _c(2944, "tiles", f"{_GOOD_SOURCE}; two Bow dies stacked", "assumed"),
    "clock_hz": _c(1.65e9, "Hz", f"{_GOOD_SOURCE}; 10.2 EFLOPS in 8 bits with these tiles", "assumed"),
    "amp_units_f8_f16": _c(16, "units", f"{_GOOD_SOURCE}; 8-bit units as the C600's", "assumed"),
    "idle_watts": _c(219.0, "W", "assumed: 35 % of the average under load", "assumed"),
    "load_watts": _c(625.0, "W", f"{_GOOD_SOURCE}; two Bow dies", "assumed"),
}

gc200 = Chip.build("gc200", "Mk2 GC200", _GC200)
bow = Chip.build("bow", "Bow", _BOW)
c600 = Chip.build("c600", "C600", _C600)
mk1 = Chip.build("mk1", "Mk1 GC2", _MK1)
good_ipu = Chip.build("good-ipu", "announced", _GOOD)

CHIPS: dict[str, Chip] = {chip.name: chip for chip in (mk1, gc200, bow, c600, good_ipu)}
"""The chips that Abele knows, by name."""
