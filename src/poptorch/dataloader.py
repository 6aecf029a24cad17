"""Loading data: batches of the size that one call of a model takes, and loading ahead in another process."""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import functools
import logging
import os
import weakref
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
import torch.multiprocessing

from . import _async_worker, _batching
from ._async_worker import Command, Failure, Ring, Waiter, Worker
from ._errors import Error, require
from ._logging import logger
from ._structure import rebuild
from .enums import DataLoaderMode, SharingStrategy
from .options import Options

_START_METHODS = {
    SharingStrategy.SharedMemory: "spawn",
    SharingStrategy.FileSystem: "spawn",
    SharingStrategy.Fork: "fork",
    SharingStrategy.ForkServer: "forkserver",
}
#: How long a worker may take to stop by itself before it is stopped, in seconds.
PATIENCE = 5.0
#: The worker's name, by which a process that is being started as one knows it while it imports the user's program.
_WORKER = "poptorch data loader"
#: Exit code of a worker whose import of the user's program came to make a data loader again.
_UNGUARDED = 78
_GUARD = (
    "The process that loads ahead imports the program, which makes a data loader outside of "
    '`if __name__ == "__main__":` and would do so without end. '
    "Put the program's statements under that line, or use "
    "sharing_strategy=poptorch.SharingStrategy.Fork or mode=DataLoaderMode.Sync."
)
#: The part of a data set whose loss at the end of each epoch is warned of.
NOTABLE_LOSS = 0.1


@dataclasses.dataclass
class _Recipe:
    """How to load: arguments of PyTorch's loader, and what is done with its batches."""

    arguments: dict[str, Any]
    batches_per_call: int = 1
    rebatched_size: int | None = None
    drop_last: bool = True

    def over(self, loader: Any) -> Any:
        """The batches of calls from the batches of ``loader``."""
        return _Batches(loader, self)

    def make(self) -> Any:
        """A new loader of batches of calls."""
        return self.over(torch.utils.data.DataLoader(**self.arguments))


class _Batches:
    """Iterates over a loader any number of times, forming the batches of calls."""

    def __init__(self, loader: Any, recipe: _Recipe) -> None:
        self._loader, self._recipe = loader, recipe

    def __iter__(self) -> Iterator[Any]:
        recipe = self._recipe
        if recipe.rebatched_size is not None:
            return _batching.rebatch(self._loader, recipe.rebatched_size, recipe.drop_last)
        if recipe.batches_per_call > 1:
            return _batching.combine(self._loader, recipe.batches_per_call, recipe.drop_last)
        return iter(self._loader)


class DataLoader(torch.utils.data.DataLoader):
    """PyTorch's data loader with batches of the size that one call of a model takes.

    One call takes ``batch_size`` × device iterations × gradient accumulation × replicas ÷ input group size
    elements. With several processes (``options.Distributed``) each loads its own part of the data set.

    Args:
        options: the options of the model; they freeze.
        dataset: the data set.
        batch_size: elements of one micro-batch; None to take the elements of the data set as batches.
        shuffle: whether to permute at every epoch; with several processes ``options.randomSeed`` is needed.
        num_workers: processes that load.
        drop_last: leave out what does not fill the last batch (default True, unlike PyTorch).
        persistent_workers: keep the workers from epoch to epoch (default: when there are any).
        auto_distributed_partitioning: give each process its part of the data set.
        mode: whether to load in this process or ahead in another.
        async_options: further arguments of :class:`AsynchronousDataAccessor`.
        rebatched_worker_size: with ``AsyncRebatched``, the elements that a worker loads at a time.
        batch_sampler: gives the indices of each micro-batch, instead of ``batch_size`` and ``shuffle``.
        kwargs: further arguments of PyTorch's loader.
    """

    def __init__(
        self,
        options: Options,
        dataset: torch.utils.data.Dataset[Any],
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        num_workers: int = 0,
        drop_last: bool = True,
        persistent_workers: bool | None = None,
        auto_distributed_partitioning: bool = True,
        mode: DataLoaderMode = DataLoaderMode.Sync,
        async_options: dict[str, Any] | None = None,
        rebatched_worker_size: int | None = None,
        batch_sampler: torch.utils.data.Sampler[Sequence[int]] | Iterable[Sequence[int]] | None = None,
        **kwargs: Any,
    ) -> None:
        require(isinstance(options, Options), f"The options are poptorch.Options, not {options!r}.")
        require(isinstance(mode, DataLoaderMode), f"The mode is a poptorch.DataLoaderMode, not {mode!r}.")
        require(
            async_options is None or mode is not DataLoaderMode.Sync,
            "The async_options need mode=DataLoaderMode.Async or AsyncRebatched.",
        )
        require(
            rebatched_worker_size is None or mode is DataLoaderMode.AsyncRebatched,
            "The rebatched_worker_size needs mode=DataLoaderMode.AsyncRebatched.",
        )
        options._freeze()
        self._options = options
        self._accessor: AsynchronousDataAccessor | None = None
        per_call = micro_batches_per_call(options)
        self._combined_batch_size = None if batch_size is None else batch_size * per_call
        arguments: dict[str, Any] = {
            "dataset": dataset,
            "num_workers": num_workers,
            "persistent_workers": num_workers > 0 if persistent_workers is None else persistent_workers,
            **kwargs,
        }
        recipe = _Recipe(arguments, drop_last=drop_last)
        if batch_sampler is not None:
            require(batch_size == 1 and not shuffle, "A batch_sampler excludes batch_size and shuffle.")
            arguments["batch_sampler"] = batch_sampler
            recipe.batches_per_call = per_call
            size = getattr(batch_sampler, "batch_size", None)
            self._combined_batch_size = size * per_call if isinstance(size, int) else None
        else:
            arguments |= {
                "batch_size": self._combined_batch_size,
                # Without batches there is no incomplete one: PyTorch refuses the combination.
                "drop_last": drop_last and batch_size is not None,
            }
            if shuffle is not None:
                arguments["shuffle"] = shuffle
            if auto_distributed_partitioning and options.Distributed.numProcesses > 1:
                self._partition(arguments)
            self._check_losses(arguments, batch_size, mode)
        self._recipe = recipe
        super().__init__(**arguments)
        if mode is DataLoaderMode.Sync:
            return
        if mode is DataLoaderMode.AsyncRebatched and batch_sampler is None and batch_size is not None:
            self._recipe = self._rebatched(recipe, rebatched_worker_size)
        self._accessor = AsynchronousDataAccessor(self, **(async_options or {}))
        # Not a strong reference: the loader would keep itself, and so the process, until a garbage collection.
        self._accessor._dataset = weakref.proxy(self)

    def _partition(self, arguments: dict[str, Any]) -> None:
        """Replace the order of the elements by this process's part of it."""
        dataset: Any = arguments["dataset"]
        distributed = self._options.Distributed
        require(
            not issubclass(type(dataset), torch.utils.data.IterableDataset) and arguments.get("sampler") is None,
            "An iterable data set, or one with a sampler, cannot be shared out among processes: share it out "
            "yourself and pass auto_distributed_partitioning=False.",
        )
        require(
            self._combined_batch_size is not None,
            "A data set without batch_size cannot be shared out among processes: pass "
            "auto_distributed_partitioning=False.",
        )
        shuffle = bool(arguments.pop("shuffle", False))
        seed = self._options.random_seed
        require(
            not shuffle or seed is not None,
            "Shuffling with several processes needs a seed that they share: set options.randomSeed.",
        )
        arguments["sampler"] = _batching.DistributedSampler(
            len(dataset),
            self._combined_batch_size or 1,
            distributed.processId,
            distributed.numProcesses,
            shuffle,
            seed or 0,
            arguments["drop_last"],
        )

    def _rebatched(self, recipe: _Recipe, worker_size: int | None) -> _Recipe:
        size = self._combined_batch_size
        require(
            worker_size is None or 1 <= worker_size <= (size or 1),
            f"The rebatched_worker_size is from 1 to the combined batch size of {size}, not {worker_size!r}.",
        )
        arguments = {**recipe.arguments, "batch_size": worker_size or size, "drop_last": False}
        return dataclasses.replace(recipe, arguments=arguments, rebatched_size=size)

    def _check_losses(self, arguments: dict[str, Any], batch_size: int | None, mode: DataLoaderMode) -> None:
        """Warn of what ``drop_last`` drops; an asynchronous loader that drops everything is an error."""
        dataset, size = arguments["dataset"], arguments["batch_size"]
        if not arguments["drop_last"] or isinstance(dataset, torch.utils.data.IterableDataset):
            return
        try:
            source: Any = arguments.get("sampler") or dataset
            length = len(source)
        except TypeError:
            return
        if length < size:
            what = f"{length} samples do not fill one batch of {_product(size, batch_size, self._options)}"
            if mode is not DataLoaderMode.Sync:
                raise Error(f"{what}: take a smaller one, or pass drop_last=False.")
            logger.warning("%s: with drop_last=True there is no batch.", what)
        elif length % size:
            # A few elements are what the default is known for; a good part of the data is worth a warning.
            logger.log(
                logging.WARNING if length % size >= NOTABLE_LOSS * length else logging.DEBUG,
                "drop_last=True drops %d of the %d elements at the end of each epoch: the combined batch size is %d.",
                length % size,
                length,
                size,
            )

    def __len__(self) -> int:
        batches = super().__len__()
        count = self._recipe.batches_per_call
        return batches // count if self._recipe.drop_last else -(-batches // count)

    @property
    def combinedBatchSize(self) -> int | None:
        """Elements of one call; None when the sizes are not known in advance."""
        return self._combined_batch_size

    @property
    def options(self) -> Options:
        """The options that the batch sizes follow."""
        return self._options

    def terminate(self) -> None:
        """Stop the process that loads ahead, if there is one; the loader cannot be used any more."""
        if self._accessor is not None:
            self._accessor.terminate()

    def __iter__(self) -> Any:
        if self._accessor is not None:
            return iter(self._accessor)
        if self._recipe.batches_per_call > 1:
            return _batching.combine(super().__iter__(), self._recipe.batches_per_call, self._recipe.drop_last)
        return super().__iter__()


def micro_batches_per_call(options: Options) -> int:
    """How many micro-batches one call of a model with these options takes."""
    groups, rest = divmod(options.replication_factor, options.input_group_size)
    require(
        rest == 0,
        f"The replication factor {options.replication_factor} is not a multiple of the input group size "
        f"{options.input_group_size}.",
    )
    return options.device_iterations * groups * options.Training.gradient_accumulation


def _product(size: int, batch_size: int | None, options: Options) -> str:
    """The size of a batch with its factors, those above 1 alone."""
    factors = {
        "micro-batch": batch_size or 1,
        "accumulation": options.Training.gradient_accumulation,
        "replicas": options.replication_factor // options.input_group_size,
        "device iterations": options.device_iterations,
    }
    shown = [f"{name} {n}" for name, n in factors.items() if n > 1 or name == "micro-batch"]
    return f"{size} = {' × '.join(shown)}"


class AsynchronousDataAccessor:
    """Loads the elements of a data set ahead, in another process.

    The tensors that it gives are in shared memory and are overwritten later: clone what is to be kept beyond one
    step of the loop.

    Args:
        dataset: a data set, or a :class:`DataLoader`.
        buffer_size: how many elements may wait.
        miss_sleep_time_in_ms: how long to sleep when no element is ready before looking again.
        load_indefinitely: start over at the end of the data, so that one can iterate again.
        early_preload: load before an iterator is created.
        sharing_strategy: how the process is started; ``Fork`` needs no pickling of the data set.
        rebatched_size: cut the batches of the data set into batches of this many elements.
    """

    def __init__(
        self,
        dataset: Any,
        buffer_size: int = 3,
        miss_sleep_time_in_ms: float = 0.1,
        load_indefinitely: bool = True,
        early_preload: bool = False,
        sharing_strategy: SharingStrategy = SharingStrategy.ForkServer,
        rebatched_size: int | None = None,
    ) -> None:
        require(isinstance(buffer_size, int) and buffer_size >= 1, f"Invalid buffer_size: {buffer_size!r}.")
        require(
            isinstance(sharing_strategy, SharingStrategy),
            f"The sharing_strategy is a poptorch.SharingStrategy, not {sharing_strategy!r}.",
        )
        self._dataset = dataset
        self._rebatched_size = rebatched_size
        self._worker = _WorkerHandle(
            Worker(
                make=_maker(dataset, rebatched_size),
                slots=buffer_size,
                pause=miss_sleep_time_in_ms / 1000,
                load_indefinitely=load_indefinitely,
                early_preload=early_preload,
                seed=int(torch.empty((), dtype=torch.int64).random_().item()),
                file_sharing=sharing_strategy is SharingStrategy.FileSystem,
            ),
            _START_METHODS[sharing_strategy],
        )

    def terminate(self) -> None:
        """Stop the process; the accessor cannot be used any more."""
        self._worker.stop()

    def __len__(self) -> int:
        if self._rebatched_size is None:
            return len(self._dataset)
        return len(self._dataset) // self._rebatched_size

    def __iter__(self) -> AsynchronousDataAccessor:
        self._worker.restart()
        return self

    def __next__(self) -> Any:
        return self._worker.next()


def _maker(dataset: Any, rebatched_size: int | None) -> Any:
    """A function without arguments, to be called in the worker, that gives what is iterated over."""
    if isinstance(dataset, DataLoader):
        recipe = dataset._recipe
        if rebatched_size is not None:
            recipe = dataclasses.replace(recipe, rebatched_size=rebatched_size)
        return recipe.make
    if rebatched_size is not None:
        return functools.partial(_Recipe({}, rebatched_size=rebatched_size).over, dataset)
    return functools.partial(_identity, dataset)


def _identity(dataset: Any) -> Any:
    return dataset


class _WorkerHandle:
    """The reader's side: starts the process, reads the ring, and stops the process whatever happens."""

    def __init__(self, worker: Worker, method: str) -> None:
        self._process: Any = None
        starting: Any = torch.multiprocessing.current_process()
        if getattr(starting, "_inheriting", False) and starting.name == _WORKER:
            os._exit(_UNGUARDED)  # the reader says what to do; an exception would print its traceback here too
        context: Any = torch.multiprocessing.get_context(method)
        if method == "forkserver":
            # The server imports PyTorch once; else every worker would, which takes seconds.
            context.set_forkserver_preload(["__main__", "torch", "poptorch.dataloader"])
        self._pause = worker.pause
        self._position = 0
        self._holds: int | None = None
        self._fresh = True
        self._at_end = False
        self._conn, theirs = context.Pipe()
        process = context.Process(
            target=worker.run, args=(theirs, self._conn if method == "fork" else None), daemon=False, name=_WORKER
        )
        try:
            process.start()
        except Exception as error:
            raise Error(
                f"The data loader's worker thread failed to start: its data set cannot be sent to another process "
                f"({error}). Define it, its collate function and its sampler at the top level of a module, or use "
                "sharing_strategy=poptorch.SharingStrategy.Fork."
            ) from error
        finally:
            theirs.close()
        self._process = process
        self._owner = os.getpid()
        _live.add(self)
        logger.debug("AsynchronousDataAccessor worker process: %d", process.pid)
        first = self._receive("failed to start")
        if not isinstance(first, Ring):
            raise Error(f"The data loader's worker thread failed to start: it sent {first!r}.")
        self._data_buffers = _RingReader(first)

    def _receive(self, what: str) -> Any:
        """The worker's next message; an error when it has failed or died instead."""
        waiter = Waiter(self._pause)
        while not self._conn.poll():
            if not waiter.sleep(self._process.is_alive) and not self._conn.poll():
                self._died(what)
        try:
            message = self._conn.recv()
        except (EOFError, OSError):
            # The kernel resets the pipe of a process that is killed with commands unread.
            return self._died(what)
        if isinstance(message, Failure):
            self.stop()
            raise Error(f"The data loader's worker thread {what}. It raised:\n{message.traceback}")
        return message

    def _died(self, what: str) -> Any:
        self._process.join(PATIENCE)
        code = self._process.exitcode
        self.stop()
        if code == _UNGUARDED:
            raise Error(_GUARD) from None
        raise Error(f"The data loader's worker thread {what}: its process ended with exit code {code}.")

    def _ask(self, command: Command) -> None:
        try:
            self._conn.send(command)
        except OSError:
            self._died("has died")

    def restart(self) -> None:
        """Be at the start of the data, whatever has been read."""
        self._check_running()
        if not self._fresh and not self._at_end:
            self._ask(Command.Reset)
            while self._receive("failed to restart") is not Command.Reset:
                pass
            self._position, self._holds = 0, None
        else:
            self._ask(Command.Start)
        self._fresh = self._at_end = False

    def next(self) -> Any:
        """The next element; raises ``StopIteration`` at the end of the data."""
        self._check_running()
        if self._at_end or self._fresh:
            raise StopIteration
        reader = self._data_buffers
        if self._holds is not None:
            reader.free(self._holds)
            self._holds = None
        waiter = Waiter(self._pause)
        while reader.state(self._position) == _async_worker.FREE:
            if self._conn.poll():
                self._receive("failed")
            elif not waiter.sleep(self._process.is_alive) and not self._conn.poll():
                self._died("has died")
        slot, self._position = self._position, (self._position + 1) % reader.slots
        if reader.state(slot) == _async_worker.END:
            reader.free(slot)
            self._at_end = True
            raise StopIteration
        self._holds = slot
        return reader.element(slot)

    def _check_running(self) -> None:
        if self._process is None:
            raise Error("The data loader has been terminated and cannot be used any more.")

    def stop(self) -> None:
        """Stop the process: ask, then insist. Safe to call more than once."""
        process, self._process = self._process, None
        if process is None or os.getpid() != self._owner:
            return
        _live.discard(self)
        with contextlib.suppress(OSError, ValueError):
            self._conn.send(Command.Shutdown)
        for insist in (process.terminate, process.kill):
            process.join(PATIENCE)
            if process.is_alive():
                insist()
        process.join()
        self._conn.close()

    def __del__(self) -> None:
        if getattr(self, "_process", None) is not None:
            self.stop()


class _RingReader:
    """Reads elements out of a ring."""

    def __init__(self, ring: Ring) -> None:
        self._ring = ring
        self.indices_mem = ring.states
        self.slots = len(ring.states)

    def state(self, slot: int) -> int:
        """Whether a slot is free, full, or marks the end."""
        return int(self._ring.states[slot])

    def free(self, slot: int) -> None:
        """Let the worker fill the slot again."""
        self._ring.states[slot] = _async_worker.FREE

    def element(self, slot: int) -> Any:
        """The element in a slot, on the shared memory itself."""
        rows = int(self._ring.rows[slot])
        buffers = self._ring.buffers[slot]
        return rebuild(self._ring.element, buffers if rows < 0 else [b[:rows] for b in buffers])


_live: weakref.WeakSet[_WorkerHandle] = weakref.WeakSet()


@atexit.register
def _stop_all() -> None:
    """Before the interpreter waits for its child processes: they would wait for it."""
    for handle in list(_live):
        handle.stop()
