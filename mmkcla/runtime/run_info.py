"""Provenance of a metrics file."""
import datetime
import os
import sys
from collections.abc import Mapping
from typing import Any

from ..compat import TESTED
from ..utils.files import sha256_of
from ..version import __version__
from ..weights.addresses import download

METRICS, INFO = 'metrics.json', 'metrics_info.json'


def run_info(checkpoint: str, progress: Mapping[str, int], **options: Any) -> dict[str, Any]:
    """Return the content of ``metrics_info.json``.

    Args:
        checkpoint: path or http(s) URL.
        progress: ``epoch`` and ``iter`` of the checkpoint, if known.
        options: config and command-line options.

    Returns:
        ``checkpoint`` and ``checkpoint_sha256`` (None if it is not a local file), the progress, the options, ``date``
        (ISO 8601, UTC) and ``versions`` of this package and of the imported libraries.
    """
    file = download(checkpoint)
    versions = {name: str(sys.modules[name].__version__) for name in TESTED if name in sys.modules}
    return {'checkpoint': checkpoint, 'checkpoint_sha256': sha256_of(file) if os.path.isfile(file) else None,
            **progress, **options,
            'date': datetime.datetime.now(datetime.timezone.utc).isoformat(timespec='seconds'),
            'versions': {'mmkcla': __version__, **versions}}
