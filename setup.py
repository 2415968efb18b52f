"""Metadata stands in setup.cfg; this only puts configs/ and tools/ into the wheel, where `mim` looks for them."""
import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).parent


class BuildWithMim(build_py):
    """Copies ``configs/``, ``tools/`` and ``model-index.yml`` to ``mmkcla/.mim`` of the built package. An editable
    install needs no copy: the package then finds them beside itself in the checkout."""

    def run(self):
        super().run()
        if getattr(self, 'editable_mode', False):
            return
        target = Path(self.build_lib) / 'mmkcla' / '.mim'
        for name in ('configs', 'tools'):
            shutil.copytree(ROOT / name, target / name, dirs_exist_ok=True,
                            ignore=shutil.ignore_patterns('__pycache__'))
        shutil.copy(ROOT / 'model-index.yml', target)


setup(cmdclass={'build_py': BuildWithMim})
