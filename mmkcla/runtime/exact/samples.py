"""Training samples whose random augmentation depends only on their place in the training.

mmengine seeds each worker process once. What a sample looks like then depends on the samples that the same worker has
loaded before, and thus on the number of workers and on interruptions. Here, the generators are seeded for each sample
from the seed of the run, the rank, the epoch and the position in the epoch.
"""
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from mmengine.dist import get_rank
from torch.utils.data import BatchSampler, DataLoader, IterableDataset

from ...utils.parent import end_with_parent
from .random_state import kept_random_state, seed_for_sample


class Draw(NamedTuple):
    """A sample to load: the numbers that seed its augmentation, and its index in the data set."""

    key: tuple[int, ...]
    index: Any


class NumberedBatches(BatchSampler):
    """The batches of another batch sampler, as lists of :class:`Draw`.

    Args:
        batches: the batch sampler of a dataloader.
        seed: seed of the run.
    """

    def __init__(self, batches: Any, seed: int) -> None:
        self.batches, self.seed = batches, seed
        self._epoch, self._skip, self._endless = 0, 0, False

    def __getattr__(self, name: str) -> Any:
        if name == 'batches':  # while unpickling
            raise AttributeError(name)
        return getattr(self.batches, name)

    def __len__(self) -> int:
        return len(self.batches)

    def start(self, epoch: int, skip: int = 0, endless: bool = False) -> None:
        """Set what the next iterator returns.

        Args:
            epoch: its number; a part of the seeds.
            skip: leave out this number of batches. Nothing is loaded for them.
            endless: begin the next epoch when one ends.
        """
        self._epoch, self._skip, self._endless = epoch, skip, endless

    def __iter__(self) -> Iterator[list[Draw]]:
        epoch, endless, left = self._epoch, self._endless, self._skip
        self._skip = 0  # not before the first batch is drawn: torch makes two iterators when it starts workers
        while True:
            position = 0
            for batch in self.batches:
                if left:
                    left -= 1
                else:
                    key = (self.seed, get_rank(), epoch)
                    yield [Draw((*key, position + i), index) for i, index in enumerate(batch)]
                position += len(batch)
            if not endless or not position:
                return
            epoch += 1
            set_epoch(self, epoch)


def set_epoch(loader: Any, epoch: int) -> None:
    """Set the epoch of the sampler of a dataloader or batch sampler, if it has one."""
    sampler = seeded_sampler(loader)
    if hasattr(sampler, 'set_epoch'):
        sampler.set_epoch(epoch)


def seeded_sampler(loader: Any) -> Any:
    """Return the sampler that shuffles: that of the dataloader, or of its batch sampler."""
    sampler = getattr(loader, 'sampler', None)
    if not hasattr(sampler, 'seed') and hasattr(loader, 'batch_sampler'):
        return getattr(loader.batch_sampler, 'sampler', sampler)
    return sampler


def load_draws(dataset: Any, draws: Sequence[Any]) -> list[Any]:
    """Return the samples of a batch, each with its own random numbers. The generators of the process are unchanged
    afterwards."""
    samples = []
    with kept_random_state():
        for draw in draws:
            if isinstance(draw, Draw):
                seed_for_sample(draw.key)
                draw = draw.index
            samples.append(dataset[draw])
    return samples


def number_samples(loader: DataLoader, seed: int) -> NumberedBatches | None:
    """Let ``loader`` seed each sample.

    Returns:
        The new batch sampler of the loader; None for streams, loaders without batches and data sets without attributes,
        which stay as they are.
    """
    if isinstance(loader.batch_sampler, NumberedBatches):
        return loader.batch_sampler
    if isinstance(loader.dataset, IterableDataset) or loader.batch_sampler is None:
        return None
    batches = NumberedBatches(loader.batch_sampler, seed)
    try:
        # torch loads a batch by __getitems__ if the data set has it: no class of a host has to be wrapped or changed
        loader.dataset.__getitems__ = partial(load_draws, loader.dataset)
    except AttributeError:  # a list, or a class with slots
        return None
    object.__setattr__(loader, 'batch_sampler', batches)  # DataLoader refuses a new batch sampler
    return batches


def prepare_loader(loader: DataLoader, seed: int) -> None:
    """Let the workers of ``loader`` end with this process, and draw their seeds apart from the global generator.

    torch draws a seed from the global generator whenever it starts an iterator, which is less often with persistent
    workers.
    """
    if loader.generator is None:
        loader.generator = torch.Generator()
        loader.generator.manual_seed(seed)
    if loader.num_workers and getattr(loader.worker_init_fn, 'func', None) is not _start_worker:
        loader.worker_init_fn = partial(_start_worker, loader.worker_init_fn)


def _start_worker(then: Any, worker: int) -> None:
    end_with_parent()
    if then is not None:
        then(worker)
