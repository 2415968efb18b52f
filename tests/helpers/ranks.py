"""Processes of a gloo group, forked from the test: they start in a moment, since everything is imported already."""
import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from torch import distributed


def run_ranks(function: Callable[..., Any], world_size: int, folder: Path, *args: Any) -> list[Any]:
    """Call ``function(*args)`` in ``world_size`` processes of one group; return the results by rank.

    They are in the state of ranks under torchrun, in a folder of their own.
    """
    home = folder / f'ranks_{world_size}'
    home.mkdir(parents=True)
    torch.multiprocessing.start_processes(_rank, (world_size, home, function, args), world_size, start_method='fork')
    return [torch.load(home / f'{rank}.pt', weights_only=False) for rank in range(world_size)]


def _rank(rank: int, world_size: int, home: Path, function: Callable[..., Any], args: tuple[Any, ...]) -> None:
    torch.set_num_threads(1)
    os.chdir(home)
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(world_size), LOCAL_RANK=str(rank), MASTER_ADDR='127.0.0.1',
                      MASTER_PORT='1')  # the port is not used
    distributed.init_process_group('gloo', init_method=f'file://{home}/store', rank=rank, world_size=world_size,
                                   timeout=timedelta(seconds=120))
    torch.save(function(*args), home / f'{rank}.pt')
    distributed.barrier()
    distributed.destroy_process_group()
