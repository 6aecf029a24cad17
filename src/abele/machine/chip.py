"""A chip as data: tiles, widths, clocks, overheads and energies, each number with its source.

The fields of `Chip` are plain numbers, so that formulas read them directly; `Chip.provenance` gives the
`Constant` behind a field. A chip of one's own is made from a known one by `Chip.derive`.
"""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from abele.errors import AbeleError, InvalidOption, UserProgramError, suggest
from abele.machine.constants import FLOAT8, Constant, changed, checked, complete, dtype_bytes, number
from abele.machine.cycles import ESTIMATES, Estimate
from abele.user import is_own, line_of

VertexCost = Callable[..., Any]
"""``function(chip, **fields) -> tile cycles``; fields are integers, NumPy integer arrays or dtype names."""

ExchangeCost = Callable[..., Any]
"""``function(chip, received, sent, *, paired, messages, distance) -> cycles`` of one exchange, sync apart.

``received`` and ``sent`` are bytes in and out of the busiest tile, integers or NumPy arrays (the result has their
shape); zero bytes must cost nothing. ``paired``: the tiles of a shared bus receive the same bytes. ``messages``: runs
of bytes that the busiest tile receives, 0 where they are not known. ``distance``: mean difference of the numbers of
receiving and sending tile, 0 where it is not known (a plan is still being looked for): take what is usual on the chip
then.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chip:
    """One processor: ``tiles`` equal tiles, each with memory and ``workers`` contexts, and an exchange.

    Every numeric field has a `Constant` in ``constants``; a number given without one is recorded as assumed,
    from the user's own description. ``vertex_costs`` overrides cycle estimates by vertex name; a vertex of one's own
    is first registered with ``abele.machine.cycles.estimate``, so that every chip has cycles for it. ``exchange_cost``
    stands in place of the formula of ``abele.machine.exchange.exchange_cycles``.
    """

    name: str
    generation: str

    tiles: int = number("tiles")
    workers: int = number("contexts/tile")
    tile_memory: int = number("B/tile")
    clock_hz: float = number("Hz")

    data_path_bytes: int = number("B")  # one load or store of a worker
    load_bytes_per_cycle: int = number("B/cycle/tile")
    store_bytes_per_cycle: int = number("B/cycle/tile")
    memcpy_bytes_per_cycle: int = number("B/cycle/tile")
    atomic_store_bytes: int = number("B")  # a narrower store reads, merges and writes
    sram_latency_cycles: int = number("cycles")
    accumulator_width_f16: int = number("elements")
    accumulator_width_f32: int = number("elements")

    amp_units_f16_f16: int = number("units")  # amp_units_<input>_<partials>; 0: the chip cannot
    amp_units_f16_f32: int = number("units")
    amp_units_f32_f32: int = number("units")
    amp_units_f8_f16: int = number("units")
    amp_load_f16: int = number("elements/cycle")
    amp_load_f32: int = number("elements/cycle")
    amp_load_f8: int = number("elements/cycle")
    amp_loop_cycles_f16: int = number("cycles/position")
    amp_loop_cycles_f32: int = number("cycles/position")
    conv_chain: int = number("stages")
    coefficient_load_bytes_per_cycle: int = number("B/cycle")
    coefficient_wide_load_bytes_per_cycle: int = number("B/cycle", default=0)  # from interleaved memory; 0: not so
    slic_window: int = number("positions")
    slic_chains_f16: int = number("chains")
    slic_chains_f32: int = number("chains")

    exchange_bytes_per_cycle: float = number("B/cycle/tile")
    tiles_per_exchange_bus: int = number("tiles")
    exchange_start_cycles: int = number("cycles")
    exchange_efficiency: float = number("of the rate")
    exchange_receive_instructions: int = number("instructions")
    exchange_send_bytes: int = number("B")
    sync_cycles: int = number("cycles")
    compute_set_cycles: int = number("cycles")
    supervisor_call_cycles: int = number("cycles")

    instruction_bytes: int = number("B")

    idle_watts: float = number("W")
    load_watts: float = number("W")
    joules_per_mac_f16: float = number("J")
    joules_per_mac_f32: float = number("J")
    joules_per_vector_flop: float = number("J")
    joules_per_sram_byte: float = number("J/B")
    joules_per_exchange_byte: float = number("J/B")

    constants: Mapping[str, Constant] = field(default_factory=dict, compare=False, repr=False)
    vertex_costs: Mapping[str, VertexCost] = field(default_factory=dict, hash=False, repr=False)
    exchange_cost: ExchangeCost | None = field(default=None, hash=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "constants", complete(self, self.constants))
        checked(self, whole=("tiles", "workers", "tile_memory"))
        needed = ("tiles", "workers", "tile_memory", "clock_hz", "data_path_bytes", "exchange_bytes_per_cycle")
        for name in needed:
            if not getattr(self, name):
                raise InvalidOption(f"The chip '{self.name}' has 0 as {name}", remedy="Give a positive number.")
        for vertex in self.vertex_costs:
            if vertex not in ESTIMATES:
                raise InvalidOption(
                    f"The chip '{self.name}' gives cycles for the vertex '{vertex}', which no plan asks for",
                    remedy=f"{suggest(vertex, ESTIMATES)} A vertex of your own is registered first, with "
                    "abele.machine.cycles.estimate.".strip(),
                )
        self._check_exchange()

    def _check_exchange(self) -> None:
        """Refuse an ``exchange_cost`` that cannot be called as `ExchangeCost` is, before anything asks it."""
        if self.exchange_cost is None:
            return
        try:
            signature = inspect.signature(self.exchange_cost)
        except ValueError:  # a builtin may tell no signature
            return
        except TypeError:
            problem = f"it is {self.exchange_cost!r}, which is no function"
        else:
            try:
                signature.bind(self, 0, 0, paired=False, messages=0, distance=0.0)
                return
            except TypeError as error:
                problem = f"its arguments are {signature}: {error}"
        raise UserProgramError(
            f"The exchange_cost of the chip '{self.name}' cannot be asked; {problem}",
            where=_defined_at(self.exchange_cost),
            remedy="Write it as function(chip, received, sent, *, paired, messages, distance).",
        )

    @classmethod
    def build(
        cls,
        name: str,
        generation: str,
        constants: Mapping[str, Constant],
        vertex_costs: Mapping[str, VertexCost] | None = None,
    ) -> Chip:
        """A chip from a table of constants, one for each numeric field."""
        numbers = {key: constant.value for key, constant in constants.items()}
        made: dict[str, Any] = {
            "name": name,
            "generation": generation,
            "constants": dict(constants),
            "vertex_costs": dict(vertex_costs or {}),
            **numbers,
        }
        return cls(**made)

    def derive(
        self,
        name: str,
        *,
        generation: str | None = None,
        vertex_costs: Mapping[str, VertexCost] | None = None,
        exchange_cost: ExchangeCost | None = None,
        **changes: float | Constant,
    ) -> Chip:
        """A chip like this one, with some numbers changed, vertex costs overridden, or an exchange of its own.

        Args:
            name: the new chip's name.
            vertex_costs: cycle estimates by vertex name, laid over this chip's own.
            exchange_cost: cycles of an exchange, see `ExchangeCost`; this chip's own unless given.
            changes: new values by field name, as plain numbers (recorded as assumed) or as `Constant`. Another number
                of ``tiles`` takes ``idle_watts`` and ``load_watts`` with it, in proportion, unless they are given.

        Raises:
            InvalidOption: no field or vertex has such a name; the nearest names are suggested.
        """
        constants = dict(self.constants)
        if "tiles" in changes:
            changes = {**self._power_of(name, changes["tiles"]), **changes}
        values = changed(self, changes, constants)
        return dataclasses.replace(
            self,
            name=name,
            generation=generation or self.generation,
            constants=constants,
            vertex_costs={**self.vertex_costs, **(vertex_costs or {})},
            exchange_cost=exchange_cost or self.exchange_cost,
            **values,
        )

    def _power_of(self, name: str, tiles: float | Constant) -> dict[str, Constant]:
        """Watts of a chip like this one with another number of tiles: in proportion, an assumption."""
        count = tiles.value if isinstance(tiles, Constant) else tiles
        if not isinstance(count, (int, float)) or count == self.tiles:
            return {}
        source = f"assumed: in proportion to tiles, {count} of '{name}' to {self.tiles} of '{self.name}'"
        return {
            power: Constant(getattr(self, power) * count / self.tiles, "W", source, "assumed")
            for power in ("idle_watts", "load_watts")
        }

    def provenance(self, name: str) -> Constant:
        """The `Constant` behind the numeric field ``name``: value, unit, source, confidence."""
        try:
            return self.constants[name]
        except KeyError:
            raise InvalidOption(f"A chip has no field '{name}'", remedy=suggest(name, self.constants)) from None

    # Vertices

    def estimate(self, vertex: str, **fields: Any) -> Any:
        """Tile cycles of one vertex, all workers of a tile together; `abele.machine.cycles` lists the names.

        Fields are integers, NumPy integer arrays (one entry for each class of tiles) or dtype names. The
        chip's own ``vertex_costs`` come before the common estimates. An unknown vertex raises.
        """
        own = self.vertex_costs.get(vertex)
        if own is not None:
            return self._asked(f"the vertex '{vertex}'", own, **fields)
        try:
            known = ESTIMATES[vertex]
        except KeyError:
            raise InvalidOption(
                f"The chip '{self.name}' has no cycle estimate for the vertex '{vertex}'",
                remedy=f"{suggest(vertex, ESTIMATES)} Or register one with abele.machine.cycles.estimate.".strip(),
            ) from None
        return known(self, **fields)

    def exchange(self, received: Any, sent: Any, **how: Any) -> Any:
        """Cycles of one exchange by the chip's own ``exchange_cost``; see `ExchangeCost` for the arguments.

        Raises:
            UserProgramError: it raised, or gave no cycles, or not the shape of ``received`` and ``sent``.
        """
        assert self.exchange_cost is not None
        cycles = self._asked("an exchange", self.exchange_cost, received, sent, **how)
        given = np.shape(cycles)
        all_shapes = (np.shape(received), np.shape(sent), *(np.shape(value) for value in how.values()))
        if not (_covers(np.broadcast_shapes(*all_shapes), given) and _covers(given, np.shape(received))):
            raise UserProgramError(
                f"The cycles of an exchange on the chip '{self.name}' have the shape {given}, where received has "
                f"{np.shape(received)} and sent {np.shape(sent)}",
                where=_defined_at(self.exchange_cost),
                remedy="Return an entry for each entry of received: arithmetic and np.where, no sum over it.",
            )
        return cycles

    def _asked(self, what: str, function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        """What a function of the chip's own gives, which are finite cycles, 0 or more; else ``UserProgramError``."""
        try:
            cycles = function(self, *arguments, **named)
        except AbeleError:
            raise
        except Exception as error:
            raise UserProgramError(
                f"The cycles of {what} on the chip '{self.name}' raised {type(error).__name__}: {error}",
                where=line_of(error),
            ) from error
        numbers = np.asarray(cycles)
        if numbers.dtype.kind not in "biuf":
            problem = f"are {cycles!r}, no number"
        elif not np.all(np.isfinite(numbers) & (numbers >= 0)):
            wrong = numbers[~(np.isfinite(numbers) & (numbers >= 0))]
            problem = f"are {wrong.flat[0]:.6g}, which is no time"
        else:
            return cycles
        raise UserProgramError(
            f"The cycles of {what} on the chip '{self.name}' {problem}",
            where=_defined_at(function),
            remedy="Return finite cycles, 0 or more.",
        )

    def estimate_of(self, vertex: str) -> Estimate:
        """The record behind `estimate`: function, source and confidence."""
        own = self.vertex_costs.get(vertex)
        if isinstance(own, Estimate):
            return own
        if own is not None:
            return Estimate(vertex, own, f"the description of '{self.name}'", "assumed")
        if vertex not in ESTIMATES:
            raise InvalidOption(f"No cycle estimate for '{vertex}'", remedy=suggest(vertex, ESTIMATES))
        return ESTIMATES[vertex]

    # Arithmetic

    def vector_width(self, dtype: str) -> int:
        """Elements of ``dtype`` in one data-path word (half 4, float 2); at least 1."""
        return max(1, self.data_path_bytes // dtype_bytes(dtype))

    def accumulator_width(self, dtype: str) -> int:
        """Accumulators of a reduction over ``dtype`` operands: elements summed at once."""
        return self.accumulator_width_f16 if dtype_bytes(dtype) <= 2 else self.accumulator_width_f32

    def amp_units(self, dtype: str, partials: str) -> int:
        """Matrix-unit rows that work at once for this input and partials type; 0 when the chip has none."""
        units = {
            ("f16", "f16"): self.amp_units_f16_f16,
            ("bf16", "f32"): self.amp_units_f16_f32,
            ("f16", "f32"): self.amp_units_f16_f32,
            ("f32", "f32"): self.amp_units_f32_f32,
            ("f8", "f16"): self.amp_units_f8_f16,
        }
        return units.get(("f8" if dtype in FLOAT8 else dtype, partials), 0)

    def amp_in_group(self, dtype: str) -> int:
        """Input channels of one pass of the matrix unit: half 16, float 8, quarter 32."""
        load = {4: self.amp_load_f32, 2: self.amp_load_f16, 1: self.amp_load_f8}.get(dtype_bytes(dtype), 0)
        return self.conv_chain * load

    def macs_per_cycle(self, dtype: str, partials: str) -> float:
        """Peak multiply-accumulates of a tile in a cycle; the vector unit's where the matrix unit has none."""
        units = self.amp_units(dtype, partials)
        if units == 0:
            return float(self.vector_width(dtype))
        loop = self.amp_loop_cycles_f32 if dtype_bytes(dtype) >= 4 else self.amp_loop_cycles_f16
        return units * self.amp_in_group(dtype) / loop

    def peak_flops(self, dtype: str = "f16", partials: str | None = None) -> float:
        """Peak flop/s, a multiply-accumulate counted as two; ``partials`` are of ``dtype`` unless given."""
        partials = partials or {**dict.fromkeys(FLOAT8, "f16"), "bf16": "f32"}.get(dtype, dtype)
        return 2.0 * self.macs_per_cycle(dtype, partials) * self.tiles * self.clock_hz

    def memory(self) -> int:
        """Bytes of tile memory on the chip."""
        return self.tiles * self.tile_memory

    def seconds(self, cycles: float) -> float:
        """Time of ``cycles`` tile cycles."""
        return cycles / self.clock_hz

    def cycles(self, seconds: float) -> float:
        """Tile cycles in ``seconds``."""
        return seconds * self.clock_hz

    def key(self) -> str:
        """A digest of everything that a plan or a cost reads from the chip, for content-addressed caches.

        Costs that are functions enter by their code, defaults and what they use of their module, so that editing one
        changes the key.
        """
        digest = hashlib.sha256()
        for f in dataclasses.fields(self):
            if f.name not in ("constants", "vertex_costs", "exchange_cost"):
                digest.update(f"{f.name}={getattr(self, f.name)!r};".encode())
        for vertex, cost in sorted(self.vertex_costs.items()):
            function = cost.function if isinstance(cost, Estimate) else cost
            digest.update(f"{vertex}={_function_key(function)};".encode())
        if self.exchange_cost is not None:
            digest.update(f"exchange={_function_key(self.exchange_cost)};".encode())
        return digest.hexdigest()


def _covers(shape: tuple[int, ...], other: tuple[int, ...]) -> bool:
    """Whether an array of ``other`` can be spread over one of ``shape`` without changing it."""
    try:
        return np.broadcast_shapes(shape, other) == shape
    except ValueError:
        return False


def _defined_at(function: Any) -> str:
    """``file:line`` where a function of the user's, or what an object that is called does, is written."""
    if isinstance(function, Estimate):
        function = function.function
    while isinstance(function, partial):
        function = function.func
    function = inspect.unwrap(function)
    code = getattr(function, "__code__", None)
    if code is None:  # an object that is called
        code = getattr(vars(type(function)).get("__call__"), "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code is not None else ""


def _function_key(value: Any, seen: set[int] | None = None) -> str:
    """What a cost function of the user's, or something that it uses, does, as text: its code and that of what it calls.

    What is Abele's or a library's enters by name. An object that is called enters by its type's ``__call__`` and its
    fields.
    """
    seen = set() if seen is None else seen
    if isinstance(value, FunctionType):
        if id(value) in seen or not is_own(value.__code__.co_filename):
            return f"{value.__module__}.{value.__qualname__}"
        seen.add(id(value))
        used = [value.__globals__[name] for name in sorted(_names(value.__code__)) if name in value.__globals__]
        held = [
            [cell.cell_contents for cell in value.__closure__ or ()],
            value.__defaults__,
            value.__kwdefaults__,
            used,
        ]
        return f"{_code_key(value.__code__)}{_function_key(held, seen)}"
    if isinstance(value, (list, tuple)):
        return repr([_function_key(v, seen) for v in value])
    if isinstance(value, dict):
        return repr({repr(k): _function_key(v, seen) for k, v in value.items()})
    if isinstance(value, partial):
        return _function_key([value.func, value.args, value.keywords], seen)
    if isinstance(value, MethodType):
        return _function_key([value.__func__, value.__self__], seen)
    call = getattr(type(value), "__call__", None)  # noqa: B004 - its code is wanted, not whether there is one
    if isinstance(call, FunctionType) and not isinstance(value, type) and hasattr(value, "__dict__"):
        if id(value) in seen:
            return "again"
        seen.add(id(value))
        return f"{_function_key(call, seen)}{_function_key(vars(value), seen)}"
    name = getattr(value, "__qualname__", None) or (value.__name__ if isinstance(value, ModuleType) else None)
    return repr(value) if name is None else f"{getattr(value, '__module__', '')}.{name}"


def _names(code: CodeType) -> set[str]:
    """Names that code and the functions in it look up."""
    return {*code.co_names}.union(*(_names(c) for c in code.co_consts if isinstance(c, CodeType)))


def _code_key(code: CodeType) -> str:
    inner = [_code_key(c) if isinstance(c, CodeType) else repr(c) for c in code.co_consts]
    return f"{code.co_code.hex()}{code.co_names!r}{inner!r}"
