"""Add the classification configs of this package to mmpretrain's list of models: ``import mmkcla.zoo``.

Afterwards ``mmpretrain.list_models('*kcla*')`` lists them, and ``mmpretrain.get_model`` and
``ImageClassificationInferencer`` accept their names. The package has no trained weights: give ``pretrained=<file>``.
``MMSegInferencer`` and ``DetInferencer`` search only the metafiles of their own package for a name; give them the path
``mmkcla.config_file('<name>.py')``.
"""
from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from .errors import UserError
from .paths import configs_root

# folders of configs whose models are classifiers
FOLDERS = ('cifar', 'cifar_ablations', 'imagenet')
TASK = 'Image Classification'


def register() -> list[str]:
    """Register the models in mmpretrain's hub and return their names; a second call registers none.

    A name that mmpretrain itself has (``resnet50_8xb32_in1k``) stays mmpretrain's model.

    Raises:
        UserError: mmpretrain is not installed, or the configs are missing from the installation.
    """
    try:
        from mmpretrain.apis import ModelHub, list_models
    except ModuleNotFoundError as error:
        if str(error.name).partition('.')[0] != 'mmpretrain':
            raise
        raise UserError('mmkcla.zoo needs mmpretrain: run `pip install onedl-mmpretrain`') from error
    import yaml  # a requirement of mmengine, and so of mmpretrain
    root = configs_root()
    if root is None:
        raise UserError('mmkcla.zoo needs the configs of the package, which are missing from its installation')
    known = set(list_models())  # registers mmpretrain's own models first, which refuses a name that is taken
    added = []
    for folder in FOLDERS:
        content = yaml.safe_load((root / folder / 'metafile.yml').read_text(encoding='utf-8'))
        content['Models'] = _new_models(content['Models'], known)
        with tempfile.TemporaryDirectory() as place:
            path = Path(place, 'metafile.yml')
            path.write_text(yaml.safe_dump(content), encoding='utf-8')
            if content['Models']:
                ModelHub.register_model_index(path, config_prefix=root.parent)
        added += [model['Name'] for model in content['Models']]
    return added


def _new_models(models: list[dict[str, Any]], known: set[str]) -> list[dict[str, Any]]:
    """Return the models that are not in ``known``, with the task by which mmpretrain selects the inferencer."""
    return [dict(Results=[dict(Task=TASK, Dataset=model['Metadata']['Training Data'], Metrics={})]) | model
            for model in models if model['Name'].lower() not in known]


register()
