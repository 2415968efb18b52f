"""Package configs/ and tools/ in the wheel, where `mim` expects them. All metadata is in setup.cfg."""
import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).parent


class BuildWithMim(build_py):
    """Copy ``configs/``, ``tools/`` and ``model-index.yml`` to ``mmkcla/.mim`` in the built package.

    An editable install needs no copy; the package finds them in the checkout.
    """

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
