"""Make the libraries of this process read files without running code from them."""
import functools
import os
import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any

from ..errors import UserError
from ..utils.files import parse_json
from ..utils.text import one_line
from .addresses import read_address

_REFUSED = 'is a pickle, which could run code when it is read; convert it to JSON'
# Modules that unpickle files for others. numpy.lib reads arrays of objects.
_READERS = ('mmengine', 'mmcv', 'mmdet', 'mmseg', 'mmpretrain', 'numpy.lib')
# Modules that unpickle bytes of this run: of a data set in memory, or passed between the processes of a run.
_OWN_BYTES = ('mmengine.dataset.base_dataset', 'mmengine.dist.dist', 'mmdet.utils.dist_utils',
              'mmdet.evaluation.metrics.base_video_metric')
_VERIFIED = ('mmpretrain.datasets.cifar', )  # compares each file with the published MD5 before it is read


def load_safely() -> None:
    """Make mmengine, the hosts and torch read files without running code from them, for the rest of this process.

    Afterwards every address that mmengine loads (``init_cfg``, ``load_from``, ``pretrained``, the hosts' ``init_model``
    and ``get_model``) is read by :func:`~mmkcla.weights.addresses.read_address`, ``torch.load`` in any module behaves
    as with ``weights_only=True``, and ``mmengine.load`` refuses pickles, e.g. annotations or proposals, and Python
    objects in YAML. Pickles that the hosts or numpy read themselves may contain plain values only. The commands do
    this; in a script, call it before building a model.
    """
    from mmengine.runner import CheckpointLoader

    def load_from_mmkcla(filename: str, map_location: Any = None, **_: Any) -> dict:
        return read_address(filename)

    CheckpointLoader.register_scheme(prefixes=sorted({'', *CheckpointLoader._schemes}), loader=load_from_mmkcla,
                                     force=True)
    _register_data_handlers()
    _restrict_unpickling()
    only_weights()


def only_weights() -> None:
    """Make ``torch.load`` behave as with ``weights_only=True``, in this process and those it starts."""
    os.environ.pop('TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD', None)
    os.environ['TORCH_FORCE_WEIGHTS_ONLY_LOAD'] = '1'


def _register_data_handlers() -> None:
    from mmengine.fileio import JsonHandler, PickleHandler, register_handler
    from mmengine.fileio.handlers.yaml_handler import YamlHandler

    class WriteOnlyPickleHandler(PickleHandler):
        """Writes pickles, e.g. of predictions, and refuses to read them."""

        def load_from_fileobj(self, file: Any, **_: Any) -> None:
            raise UserError(f'{getattr(file, "name", None) or _read_by_mmengine()} {_REFUSED}')

    class SafeYamlHandler(YamlHandler):
        """Reads plain values and tuples from YAML; mmengine's own reads any Python object, which can run code."""

        def load_from_fileobj(self, file: Any, **_: Any) -> Any:
            import yaml
            try:
                return yaml.load(file, Loader=_yaml_loader())
            except yaml.YAMLError as error:
                if 'python/' not in (problem := str(getattr(error, 'problem', ''))):
                    raise UserError(f'cannot read {_read_by_mmengine()}: it is not YAML ({one_line(error, 200)})'
                                    ) from error
                raise UserError(f'{_read_by_mmengine()} contains a Python object, which could run code when it is read '
                                f'({problem}); write plain values') from error

    class NamingJsonHandler(JsonHandler):
        """Names the file that is no JSON."""

        def load_from_fileobj(self, file: Any) -> Any:
            try:
                return parse_json(file.read())
            except ValueError as error:
                raise UserError(f'cannot read {_read_by_mmengine()}: it is not JSON ({one_line(error)})') from error

    register_handler(['pickle', 'pkl'])(WriteOnlyPickleHandler)
    register_handler('json')(NamingJsonHandler)
    register_handler(['yaml', 'yml'])(SafeYamlHandler)


@functools.cache
def _yaml_loader() -> type:
    import yaml

    class Loader(getattr(yaml, 'CSafeLoader', yaml.SafeLoader)):  # type: ignore[misc]
        """The safe loader, with tuples, which mmengine writes into configs."""

    Loader.add_constructor('tag:yaml.org,2002:python/tuple',
                           lambda loader, node: tuple(loader.construct_sequence(node, deep=True)))
    return Loader


@functools.cache
def _restrict_unpickling() -> None:
    """Refuse pickles that name a class or function if the hosts or numpy read them.

    They call ``pickle.load`` in a few places themselves. The interpreter's audit event is raised for each name in a
    pickle, before it is imported. A hook cannot be removed again.
    """
    def check(event: str, names: tuple) -> None:
        if event == 'pickle.find_class':
            frame = sys._getframe(1)
            if _reads_foreign_bytes(str(frame.f_globals.get('__name__'))):
                name = '.'.join(map(str, names))
                raise UserError(f'{_file_of(frame)} contains {name}, which could run code when it is read; '
                                'save plain numbers and text')

    sys.addaudithook(check)


def _reads_foreign_bytes(module: str) -> bool:
    return (any(module == reader or module.startswith(f'{reader}.') for reader in _READERS)
            and module not in (*_OWN_BYTES, *_VERIFIED))


def _frames(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _file_of(frame: FrameType) -> str:
    """Name of the file that the frame unpickles: an open file among the variables of its nearest callers."""
    for caller, _ in zip(_frames(frame), range(4), strict=False):
        for value in caller.f_locals.values():
            if hasattr(value, 'read') and isinstance(name := getattr(value, 'name', None), str):
                return name
    return f'a file that {frame.f_globals.get("__name__")} reads'


def _read_by_mmengine() -> str:
    """Name of the file that ``mmengine.load`` reads: it passes only the content to the handlers."""
    for frame in _frames(sys._getframe(1)):
        if frame.f_globals.get('__name__') == 'mmengine.fileio.io' and isinstance(frame.f_locals.get('file'), str):
            return frame.f_locals['file']
    return 'a data file'
