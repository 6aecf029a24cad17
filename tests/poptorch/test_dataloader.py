"""The data loader: sizes, order, modes, sharing among processes, and workers that fail or die."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import subprocess
import sys

import pytest
import torch
from torch.utils.data import BatchSampler, Dataset, IterableDataset, SequentialSampler, TensorDataset

import poptorch
from poptorch import DataLoaderMode, SharingStrategy

MODES = list(DataLoaderMode)


class Numbers(Dataset):
    """Element i is a float [2] full of i, and i itself."""

    def __init__(self, length):
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        return {"x": torch.full((2,), float(index)), "i": torch.tensor(index)}


class Stream(IterableDataset):
    """The numbers below ``length``, shared out evenly among the workers."""

    def __init__(self, length):
        self.length = length

    def __iter__(self):
        info = torch.utils.data.get_worker_info()
        first, step = (0, 1) if info is None else (info.id, info.num_workers)
        return iter(torch.arange(first, self.length, step))


class Broken(Numbers):
    def __getitem__(self, index):
        if index >= 2:
            raise KeyError("no such number")
        return super().__getitem__(index)


class Gated(Broken):
    def __init__(self, length):
        super().__init__(length)
        self.gate = multiprocessing.get_context("fork").Event()

    def __getitem__(self, index):
        if index >= 2:
            self.gate.wait(30)
        return super().__getitem__(index)


class Growing(Numbers):
    def __getitem__(self, index):
        return torch.zeros(index + 1)


class Pair:
    def __init__(self, a, b):
        self.a, self.b = a, b


class PairParser(poptorch.ICustomArgParser):
    def yieldTensors(self, struct):
        yield struct.a
        yield struct.b

    def reconstruct(self, original_structure, tensor_iterator):
        return Pair(*tensor_iterator)


def collate_pair(elements):
    x = torch.stack([e["x"] for e in elements])
    return Pair(x, torch.tensor([int(e["i"]) for e in elements]))


def loader(dataset, iterations=1, mode=DataLoaderMode.Sync, **kwargs):
    options = poptorch.Options().deviceIterations(iterations)
    if mode is not DataLoaderMode.Sync:
        # Fork starts fastest, and nothing here runs threads.
        kwargs.setdefault("async_options", {"sharing_strategy": SharingStrategy.Fork})
    return poptorch.DataLoader(options, dataset, mode=mode, **kwargs)


def indices(batches):
    return [b["i"].tolist() for b in batches]


def test_the_batch_of_one_call():
    options = poptorch.Options().deviceIterations(2).replicationFactor(4)
    options.Training.gradientAccumulation(3)
    options.inputReplicaGrouping(2, poptorch.CommGroupType.Consecutive)
    made = poptorch.DataLoader(options, Numbers(100), batch_size=2)
    assert made.combinedBatchSize == 2 * 2 * 3 * 4 // 2
    assert len(made) == len(list(made)) == 4
    assert made.options is options
    options = poptorch.Options().inputReplicaGrouping(2, poptorch.CommGroupType.All)
    with pytest.raises(AssertionError, match="not a multiple"):
        poptorch.DataLoader(options, Numbers(100))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("drop_last", [True, False])
def test_every_mode_gives_the_same_batches_every_epoch(mode, drop_last):
    made = loader(Numbers(11), 2, mode, batch_size=2, drop_last=drop_last)
    expected = [[0, 1, 2, 3], [4, 5, 6, 7]] + ([] if drop_last else [[8, 9, 10]])
    for _ in range(2):
        assert indices(made) == expected
    assert len(made) == len(expected)
    made.terminate()


@pytest.mark.parametrize("mode", [DataLoaderMode.Async, DataLoaderMode.AsyncRebatched])
def test_leaving_an_epoch_early_starts_the_next_from_the_beginning(mode):
    made = loader(Numbers(12), 1, mode, batch_size=2)
    for position, batch in enumerate(made):
        assert batch["i"].tolist() == [2 * position, 2 * position + 1]
        if position == 3:
            break
    assert [i[0] for i in indices(made)] == [0, 2, 4, 6, 8, 10]
    made.terminate()


def test_rebatching_loses_less_of_an_iterable_data_set():
    def seen(mode):
        made = loader(Stream(22), 1, mode, batch_size=4, num_workers=3, drop_last=True)
        values = sorted(v for batch in made for v in batch.tolist())
        made.terminate()
        assert len(set(values)) == len(values)
        return len(values)

    # Workers have 8, 7 and 7 elements: whole batches of 4 keep 8 + 4 + 4.
    assert seen(DataLoaderMode.Async) == 16
    assert seen(DataLoaderMode.AsyncRebatched) == 20


def test_a_rebatched_worker_size_is_at_most_the_batch():
    arguments = {"mode": DataLoaderMode.AsyncRebatched, "batch_size": 4}
    made = loader(Numbers(10), **arguments, rebatched_worker_size=3)
    assert indices(made) == [[0, 1, 2, 3], [4, 5, 6, 7]]
    made.terminate()
    with pytest.raises(AssertionError, match="from 1 to the combined batch size of 4"):
        loader(Numbers(10), **arguments, rebatched_worker_size=5)


@pytest.mark.parametrize("mode", [DataLoaderMode.Sync, DataLoaderMode.Async])
def test_a_batch_sampler_and_a_type_of_the_users(mode):
    poptorch.registerCustomArgParser(Pair, PairParser())
    try:
        dataset = Numbers(10)
        sampler = BatchSampler(SequentialSampler(dataset), batch_size=2, drop_last=False)
        arguments = {"batch_sampler": sampler, "collate_fn": collate_pair}
        made = loader(dataset, 2, mode, **arguments)
        assert [pair.b.tolist() for pair in made] == [[0, 1, 2, 3], [4, 5, 6, 7]]
        assert (len(made), made.combinedBatchSize) == (2, 4)
        made.terminate()
        made = loader(dataset, 2, mode, **arguments, drop_last=False)
        assert [pair.a.shape for pair in made][-1] == (2, 2)
        assert len(made) == 3
        made.terminate()
    finally:
        poptorch.registerCustomArgParser(Pair, None)


def test_processes_share_a_data_set_out():
    def part(process):
        options = poptorch.Options()
        options.Distributed.configureProcessId(process, 3)
        made = poptorch.DataLoader(options, Numbers(20), batch_size=2)
        found = [i for batch in indices(made) for i in batch]
        assert len(found) == 2 * len(made)
        return found

    assert [part(p) for p in range(3)] == [list(range(6 * p, 6 * p + 6)) for p in range(3)]


def test_processes_share_a_shuffled_data_set_out():
    epochs = [[], []]
    for process in range(3):
        options = poptorch.Options().randomSeed(3)
        options.Distributed.configureProcessId(process, 3)
        made = poptorch.DataLoader(options, Numbers(20), batch_size=2, shuffle=True)
        for seen in epochs:
            seen += [i for batch in indices(made) for i in batch]
    assert [len(set(seen)) for seen in epochs] == [18, 18]
    assert epochs[0] != epochs[1]
    # What the first epoch left over is in the second.
    assert set(epochs[0]) | set(epochs[1]) == set(range(20))


def test_shuffling_in_several_processes_needs_a_seed():
    options = poptorch.Options()
    options.Distributed.configureProcessId(0, 2)
    with pytest.raises(AssertionError, match="randomSeed"):
        poptorch.DataLoader(options, Numbers(8), shuffle=True)
    with pytest.raises(AssertionError, match="auto_distributed_partitioning=False"):
        poptorch.DataLoader(options, Stream(8))


def test_what_drop_last_drops_is_logged(caplog):
    with caplog.at_level(logging.WARNING):
        loader(Numbers(11), batch_size=4)
        loader(Numbers(12), batch_size=4)
        loader(Numbers(41), batch_size=4)  # one in 41 is not worth a warning
        loader(Numbers(3), batch_size=4)
        loader(Numbers(11), batch_size=4, drop_last=False)
    messages = [r.getMessage() for r in caplog.records]
    assert len(messages) == 2
    assert "drops 3 of the 11 elements" in messages[0]
    assert "3 samples do not fill one batch of 4 = micro-batch 4" in messages[1]


def test_data_that_fill_no_batch_say_what_one_is():
    options = poptorch.Options().deviceIterations(2).replicationFactor(3)
    options.Training.gradientAccumulation(341)
    what = r"^2000 samples do not fill one batch of 8184 = micro-batch 4 × accumulation 341 × replicas 3 × device iter"
    with pytest.raises(poptorch.Error, match=what):
        poptorch.DataLoader(options, Numbers(2000), batch_size=4, mode=DataLoaderMode.Async)


def test_a_program_without_its_guard_is_told_so(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        "import poptorch, torch\n"
        "data = torch.utils.data.TensorDataset(torch.ones(4, 3))\n"
        "poptorch.DataLoader(poptorch.Options(), data, mode=poptorch.DataLoaderMode.Async)\n"
    )
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=100)
    assert done.returncode == 1
    assert done.stderr.count("Traceback") == 1 and "EOFError" not in done.stderr
    assert 'if __name__ == "__main__":' in done.stderr.strip().splitlines()[-1]


def test_workers_stay_by_default():
    assert loader(Numbers(4), num_workers=1).persistent_workers
    assert not loader(Numbers(4), num_workers=1, persistent_workers=False).persistent_workers
    assert not loader(Numbers(4)).persistent_workers


def test_an_accessor_over_a_data_set():
    accessor = poptorch.AsynchronousDataAccessor(
        TensorDataset(torch.arange(5.0)), buffer_size=2, sharing_strategy=SharingStrategy.Fork
    )
    for _ in range(2):
        assert [float(x) for (x,) in accessor] == [0, 1, 2, 3, 4]
    assert len(accessor) == 5
    accessor.terminate()
    accessor.terminate()
    with pytest.raises(poptorch.Error, match="terminated"):
        iter(accessor)


def test_data_is_loaded_once_when_asked():
    accessor = poptorch.AsynchronousDataAccessor(
        Numbers(3), load_indefinitely=False, sharing_strategy=SharingStrategy.Fork
    )
    assert [int(e["i"]) for e in accessor] == [0, 1, 2]
    assert list(accessor) == []
    accessor.terminate()


def test_the_default_strategy_starts_a_server():
    accessor = poptorch.AsynchronousDataAccessor(TensorDataset(torch.arange(3.0)), early_preload=True)
    assert [float(x) for (x,) in accessor] == [0, 1, 2]
    accessor.terminate()


def test_a_data_set_that_cannot_be_sent_names_the_remedy():
    dataset = Numbers(3)
    dataset.hook = lambda: None
    with pytest.raises(poptorch.Error, match=r"failed to start.*SharingStrategy\.Fork"):
        poptorch.AsynchronousDataAccessor(dataset)


def test_an_error_of_the_data_set_reaches_the_reader(capfd):
    with pytest.raises(poptorch.Error, match=r"failed to start.*\n(.*\n)*KeyError: 'no such number'"):
        loader(Broken(4), mode=DataLoaderMode.Async, batch_size=4)
    made = loader(Broken(4), mode=DataLoaderMode.Async, batch_size=1)
    with pytest.raises(poptorch.Error, match="KeyError: 'no such number'"):
        list(made)
    assert "no such number" in capfd.readouterr().err


def test_elements_of_other_shapes_are_refused():
    accessor = poptorch.AsynchronousDataAccessor(Growing(3), sharing_strategy=SharingStrategy.Fork)
    with pytest.raises(poptorch.Error, match=r"shape \[2\] where the first one has \[1\]"):
        list(accessor)


def test_a_worker_that_dies_is_noticed():
    made = loader(Numbers(100), mode=DataLoaderMode.Async)
    iterator = iter(made)
    next(iterator)
    os.kill(made._accessor._worker._process.pid, signal.SIGKILL)
    with pytest.raises(poptorch.Error, match="exit code -9"):
        for _ in range(200):
            next(iterator)


def test_a_worker_that_died_between_epochs_is_noticed():
    made = loader(Numbers(4), mode=DataLoaderMode.Async)
    assert len(list(made)) == 4
    process = made._accessor._worker._process
    os.kill(process.pid, signal.SIGKILL)
    process.join(10)
    with pytest.raises(poptorch.Error, match="exit code -9"):
        list(made)


@pytest.mark.parametrize("started", [False, True])
def test_what_a_worker_raised_before_it_ended_is_told(started):
    dataset = Gated(9)
    accessor = poptorch.AsynchronousDataAccessor(
        dataset, buffer_size=20, early_preload=True, sharing_strategy=SharingStrategy.Fork
    )
    iterator = iter(accessor) if started else None
    dataset.gate.set()
    accessor._worker._process.join(10)  # what a reader asks of it now, nobody hears
    with pytest.raises(poptorch.Error, match="KeyError: 'no such number'"):
        list(iterator or accessor)


@pytest.mark.parametrize("size", [0, -1, 1.5, "2", True])
def test_a_batch_size_that_is_no_count_is_refused(size):
    with pytest.raises(AssertionError, match="batch_size takes a whole number of 1 or more"):
        loader(Numbers(4), batch_size=size)


def test_no_process_is_left_when_the_loader_goes():
    made = loader(Numbers(8), mode=DataLoaderMode.Async, num_workers=1)
    next(iter(made))
    process = made._accessor._worker._process
    del made
    process.join(10)
    assert process.exitcode == 0
