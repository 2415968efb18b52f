"""Try LayerAttentionMixin on every backbone of mmdet, mmseg and mmpretrain, and write docs/host-backbones.md.

    python tools/dev/host_backbones.py              write the table
    python tools/dev/host_backbones.py --check      write nothing; exit with 1 if the table is stale

ResNets are all classes that derive from the ResNet of their library. Each is built small and run.
"""
from __future__ import annotations

import argparse
import importlib
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))  # a checkout works without being installed

import torch  # noqa: E402
from torch import Tensor, nn  # noqa: E402

import mmkcla  # noqa: E402

mmkcla.use_torchvision_ops()

from mmkcla.errors import UserError  # noqa: E402
from mmkcla.models.backbones import LayerAttentionMixin  # noqa: E402
from mmkcla.utils.files import whole_file  # noqa: E402
from mmkcla.utils.tables import markdown_table  # noqa: E402

PAGE = ROOT / 'docs' / 'host-backbones.md'
START, END = '<!-- table: start -->', '<!-- table: end -->'
LIBRARIES = ('mmdet', 'mmseg', 'mmpretrain')
SMALL: dict[str, Any] = dict(depth=50, base_channels=8, stem_channels=8, out_indices=(0, 1, 2, 3), norm_eval=False)
THREE: dict[str, Any] = dict(num_stages=3, strides=(1, 2, 2), dilations=(1, 1, 1))
# arguments that a class needs, or that exercise what only it has
OWN: dict[str, dict[str, Any]] = {
    'DetectoRS_ResNet': dict(output_img=True),
    'DetectoRS_ResNeXt': dict(output_img=True, groups=4, base_width=2),
    'SEResNet': dict(se_ratio=4),
    'SEResNeXt': dict(se_ratio=4, groups=4, width_per_group=2),
    'TridentResNet': dict(THREE, out_indices=(2, ), num_branch=3, test_branch_idx=1, trident_dilations=(1, 2, 3)),
}
REGNET = dict(arch=dict(w0=16, wa=6., wm=2., group_w=8, depth=7, bot_mul=1.), stem_channels=8, out_indices=(0, 1, 2),
              norm_eval=False, strides=(2, 2, 2), dilations=(1, 1, 1))
NOT_RUN = {'SparseResNet': 'runs only inside SparK, with a mask'}


def backbones() -> Iterator[tuple[str, type[nn.Module]]]:
    """Library and class of every registered backbone."""
    for library in LIBRARIES:
        importlib.import_module(f'{library}.models')
        for _, kind in sorted(importlib.import_module(f'{library}.registry').MODELS.module_dict.items()):
            if inspect.isclass(kind) and kind.__module__.startswith(f'{library}.models.backbones.'):
                yield library, kind


def is_resnet(library: str, kind: type[nn.Module]) -> bool:
    """Whether the class derives from its library's ResNet, or is it."""
    return issubclass(kind, importlib.import_module(f'{library}.models.backbones').ResNet)


def arguments(library: str, kind: type[nn.Module]) -> dict[str, Any]:
    """Arguments of a small network of the class."""
    if kind.__name__ == 'RegNet':
        return REGNET
    groups = dict(groups=4) | {'width_per_group' if library == 'mmpretrain' else 'base_width': 2}
    return SMALL | (groups if kind.__name__ == 'ResNeXt' else {}) | OWN.get(kind.__name__, {})


def mixed(kind: type[nn.Module]) -> Any:
    """The class with the mixin before it."""
    return type(f'Mixed{kind.__name__}', (LayerAttentionMixin, kind), {})


def image() -> Tensor:
    """Two images of an odd size."""
    return torch.randn(2, 3, 33, 47, generator=torch.Generator().manual_seed(0))


def randomise_(net: nn.Module) -> None:
    """Random weights, which TridentResNet leaves unset, and statistics of batch norms."""
    with torch.no_grad():
        for name, tensor in net.state_dict().items():
            if tensor.ndim > 1:
                tensor.copy_(torch.randn_like(tensor) / tensor[0].numel() ** .5)
            elif tensor.is_floating_point() and tensor.ndim == 1:
                tensor.copy_(torch.rand_like(tensor) + .5 if 'var' in name or 'weight' in name
                             else torch.randn_like(tensor) * .3)


def without_attention(library: str, kind: type[nn.Module]) -> str:
    """Compare the mixin with ``layer_attention=None`` with the class itself, in evaluation and training."""
    if kind.__name__ in NOT_RUN:
        return NOT_RUN[kind.__name__]
    torch.manual_seed(0)
    plain = kind(**arguments(library, kind))
    randomise_(plain)
    ours = mixed(kind)(**arguments(library, kind), layer_attention=None)
    ours.load_state_dict(plain.state_dict())
    for training in (False, True):
        plain.train(training)
        ours.train(training)
        outs, theirs = ours(image()), plain(image())
        if len(outs) != len(theirs) or not all(map(torch.equal, outs, theirs)):
            return 'differs'
    states = plain.state_dict(), ours.state_dict()
    if list(states[0]) != list(states[1]) or not all(map(torch.equal, states[0].values(), states[1].values())):
        return 'differs'
    return 'equal'


def with_attention(library: str, kind: type[nn.Module], layer_attention: dict[str, Any]) -> str:
    """Run the mixin with a layer attention forward and backward; the refusal, if it is refused."""
    torch.manual_seed(0)
    try:
        net = mixed(kind)(**arguments(library, kind), layer_attention=layer_attention)
    except UserError as error:
        return f'refused: {error}'
    x = image()
    outs = net.train()(x)
    loss = sum((out * torch.randn(out.shape)).sum() for out in outs)
    assert isinstance(loss, Tensor)
    loss.backward()
    if not all(parameter.grad is not None and parameter.grad.isfinite().all() for parameter in net.parameters()):
        return 'a parameter without a gradient'
    shapes = [tuple(out.shape[1:]) for out in outs]
    sizes = [tuple(-(-side // stride) for side in x.shape[2:]) for stride in net.out_strides]
    expected = [(channels, *size) for channels, size in zip(net.out_channels, sizes, strict=True)]
    return 'runs' if shapes == expected else f'out_channels and out_strides say {expected}, got {shapes}'


def table() -> str:
    """The table of all ResNets."""
    rows = [(library, kind.__name__, without_attention(library, kind),
             with_attention(library, kind, dict(type='KCLA', drop_path=0.)))
            for library, kind in backbones() if is_resnet(library, kind)]
    return '\n'.join(markdown_table(['library', 'class', '`layer_attention=None`', 'KCLA'], rows))


def page(text: str, content: str) -> str:
    """The page with the table replaced."""
    head, rest = text.split(START)
    return f'{head}{START}\n{content}\n{END}{rest.split(END)[1]}'


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--check', action='store_true', help='write nothing; exit with 1 if the table is stale')
    args = parser.parse_args()
    text = PAGE.read_text(encoding='utf-8')
    new = page(text, table())
    if args.check or new == text:
        return int(new != text)
    with whole_file(PAGE, 'w') as file:
        file.write(new)
    return 0


if __name__ == '__main__':
    sys.exit(main())
