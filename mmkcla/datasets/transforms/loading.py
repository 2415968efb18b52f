"""Loading of images that says which file cannot be read, and why."""
from typing import Any

import mmcv
import numpy as np
from mmcv.transforms import LoadImageFromFile as McvLoadImageFromFile
from mmengine import fileio

from ...errors import UserError
from ...registry import TRANSFORMS

_JPEG, _PNG = b'\xff\xd8\xff', b'\x89PNG\r\n\x1a\n'
_PNG_END = b'IEND\xaeB`\x82'
_NO_LENGTH = {0x01, *range(0xD0, 0xD8)}  # JPEG markers without a segment


@TRANSFORMS.register_module()
class LoadImageFromFile(McvLoadImageFromFile):
    """mmcv's transform of the same name (arguments and results are equal), with errors that name the file.

    An image that is missing, empty, cut off, or no image at all raises :class:`~mmkcla.errors.UserError`; with
    ``ignore_empty=True`` it gives None, as mmcv's does. mmcv loads a JPEG that is cut off, its lower part grey.
    """

    def transform(self, results: dict) -> dict | None:
        """Load ``results['img_path']`` into ``img`` (H×W×C), ``img_shape`` and ``ori_shape``."""
        path = results['img_path']
        try:
            image = self._read(path)
        except UserError:
            if self.ignore_empty:
                return None
            raise
        if self.to_float32:
            image = image.astype(np.float32)
        results['img'] = image
        results['img_shape'] = image.shape[:2]
        results['ori_shape'] = image.shape[:2]
        return results

    def _read(self, path: str) -> np.ndarray:
        try:
            if self.file_client_args is not None:
                data = fileio.FileClient.infer_client(self.file_client_args, path).get(path)
            else:
                data = fileio.get(path, backend_args=self.backend_args)
        except OSError as error:
            raise UserError(f'cannot read the image {path}: {(error.strerror or str(error)).lower()}') from error
        problem = image_problem(data)
        if problem is not None:
            raise UserError(f'cannot read the image {path}: {problem}')
        try:
            image = mmcv.imfrombytes(data, flag=self.color_type, backend=self.imdecode_backend)
        except Exception as error:  # each decoder has its own
            raise UserError(f'cannot read the image {path}: {_first_line(error)}') from error
        if image is None:
            raise UserError(f'cannot read the image {path}: {self.imdecode_backend} cannot decode it '
                            '(damaged, or in a format it does not know)')
        return image


def image_problem(data: bytes) -> str | None:
    """What is wrong with the bytes of an image file as far as they tell by themselves; None if nothing is."""
    data = bytes(data)
    if not data:
        return 'the file is empty'
    if data.startswith(b'version https://git-lfs'):
        return 'it is a git-lfs pointer, not the image (run: git lfs pull)'
    if data.lstrip()[:1] == b'<' and b'<svg' not in data[:1000] and b'<html' in data[:1000].lower():
        return 'it is a web page, not an image'
    if data.startswith(_JPEG) and data.rfind(b'\xff\xd9') < _scan_start(data):
        return f'the JPEG is cut off (no end marker in its {len(data)} bytes)'
    if data.startswith(_PNG) and data.rfind(_PNG_END) < 0:
        return f'the PNG is cut off (no end chunk in its {len(data)} bytes)'
    if data[:4] == b'RIFF' and data[8:12] == b'WEBP' and int.from_bytes(data[4:8], 'little') + 8 > len(data):
        return f'the WebP is cut off ({len(data)} of {int.from_bytes(data[4:8], "little") + 8} bytes)'
    return None


def _scan_start(data: bytes) -> int:
    """Where a JPEG's own image data starts; a thumbnail in its head has an end marker, too. Its length if nowhere."""
    at = 2
    while at + 4 <= len(data):
        if data[at] != 0xFF:
            return at  # not a marker: let the decoder judge
        marker = data[at + 1]
        if marker == 0xFF:  # padding
            at += 1
        elif marker in _NO_LENGTH:
            at += 2
        elif marker == 0xDA:
            return at
        else:
            at += 2 + int.from_bytes(data[at + 2:at + 4], 'big')
    return len(data)


def _first_line(error: Any) -> str:
    return ' '.join(str(error).split())[:200] or type(error).__name__
