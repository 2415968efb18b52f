"""Load images, with errors that name the file and the reason."""
import io
from typing import Any

import cv2
import mmcv
import numpy as np
from mmcv.image.io import imread_flags
from mmcv.transforms import LoadImageFromFile as McvLoadImageFromFile
from mmengine import fileio
from PIL import Image

from ...errors import UserError
from ...registry import TRANSFORMS
from ...utils.images import bit_depth, image_problem, stored_turn, to_8_bits, turn_array
from ...utils.text import one_line


@TRANSFORMS.register_module()
class LoadImageFromFile(McvLoadImageFromFile):
    """mmcv's transform of the same name (same arguments and results), with a rule for more than 8 bits, and with errors
    that name the file.

    With ``color_type='unchanged'`` the values are those of the file. With the other types the image has 8 bits:

    * 16 bits, grey or colour (PNG, TIFF, PNM): ``round(value * 255 / largest)``. The largest value is the one that the
      file declares (TIFF ``MaxSampleValue``, PNM), else ``2**bits - 1``, else 65535. mmcv drops the low 8 bits instead.
    * 1 bit: 0 and 255. A palette and CMYK become colours, the alpha channel is dropped, of several pages the first is
      used, as mmcv's decoders do.
    * Floating-point and 32-bit values have no known range and are refused.

    A file that is missing, empty, truncated or not an image raises :class:`~mmkcla.errors.UserError`; with
    ``ignore_empty=True`` the result is None, as in mmcv. mmcv loads a truncated JPEG with its lower part grey.

    Args:
        args, kwargs: see mmcv's ``LoadImageFromFile``.
        bits: significant bits of 16-bit images without a declared largest value, 9 to 16: 12 for a camera or scanner
            that writes 0 to 4095. None: 16.
    """

    def __init__(self, *args: Any, bits: int | None = None, **kwargs: Any) -> None:
        if bits is not None and not (isinstance(bits, int) and 9 <= bits <= 16):
            raise UserError(f'LoadImageFromFile: bits={bits!r} must be an integer from 9 to 16')
        super().__init__(*args, **kwargs)
        self.bits = bits

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
            image = self.decode(data)
        except Exception as error:  # each decoder has its own
            raise UserError(f'cannot read the image {path}: {one_line(error, 200)}') from error
        if image is None:
            raise UserError(f'cannot read the image {path}: {self.imdecode_backend} cannot decode it '
                            '(damaged, or an unsupported format)')
        return image

    def decode(self, data: bytes) -> np.ndarray | None:
        """Decode the bytes of an image file; None if the decoder cannot."""
        if self.color_type == 'unchanged' or self.imdecode_backend == 'tifffile':
            return mmcv.imfrombytes(data, flag=self.color_type, backend=self.imdecode_backend)
        bits, declared = bit_depth(data)
        if bits > 16:
            raise UserError(f'its {bits}-bit values have no known range; save it with 8 or 16 bits per channel')
        if bits <= 8:
            image = mmcv.imfrombytes(data, flag=self.color_type, backend=self.imdecode_backend)
            if image is not None and data[8:12] == b'WEBP' and self.color_type in ('color', 'grayscale'):
                image = self._upright_webp(image, data)
            return image if declared is None or image is None else to_8_bits(image, declared)
        # OpenCV, whatever the backend: Pillow clips 16-bit values at 255
        image = cv2.imdecode(np.frombuffer(data, np.uint8), imread_flags[self.color_type] | cv2.IMREAD_ANYDEPTH)
        if image is None or image.dtype == np.uint8:
            return image
        return to_8_bits(image, declared or 2 ** (self.bits or 16) - 1)

    @staticmethod
    def _upright_webp(image: np.ndarray, data: bytes) -> np.ndarray:
        """Apply the EXIF orientation, as the decoders do for all other formats."""
        if b'EXIF' not in data:
            return image
        with Image.open(io.BytesIO(data)) as picture:
            method = stored_turn(picture)
            turned = picture.size != (image.shape[1], image.shape[0])  # by the decoder
        return image if method is None or turned else turn_array(image, method)
