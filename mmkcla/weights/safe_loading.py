"""Make the libraries of this process read files without running code from them."""
import os
from typing import Any

from ..errors import UserError
from .addresses import read_address


def load_safely() -> None:
    """Make mmengine, the hosts and torch read files without running code from them, for the rest of this process.

    Afterwards every address that mmengine loads (``init_cfg``, ``load_from``, ``pretrained``, the hosts' ``init_model``
    and ``get_model``) is read by :func:`~mmkcla.weights.addresses.read_address`, ``torch.load`` in any module behaves
    as with ``weights_only=True``, and ``mmengine.load`` refuses pickles, e.g. annotations or proposals. The commands do
    this; in a script, call it before building a model.
    """
    from mmengine.runner import CheckpointLoader

    def load_from_mmkcla(filename: str, map_location: Any = None, **_: Any) -> dict:
        return read_address(filename)

    CheckpointLoader.register_scheme(prefixes=sorted({'', *CheckpointLoader._schemes}), loader=load_from_mmkcla,
                                     force=True)
    _refuse_pickled_data()
    only_weights()


def only_weights() -> None:
    """Make ``torch.load`` behave as with ``weights_only=True``, in this process and those it starts."""
    os.environ.pop('TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD', None)
    os.environ['TORCH_FORCE_WEIGHTS_ONLY_LOAD'] = '1'


def _refuse_pickled_data() -> None:
    from mmengine.fileio import PickleHandler, register_handler

    class WriteOnlyPickleHandler(PickleHandler):
        """Writes pickles, e.g. of predictions, and refuses to read them."""

        def load_from_fileobj(self, file: Any, **_: Any) -> None:
            name = getattr(file, 'name', 'a data file')
            raise UserError(f'{name} is a pickle, which could run code when it is read; convert it to JSON')

    register_handler(['pickle', 'pkl'])(WriteOnlyPickleHandler)
