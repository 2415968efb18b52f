"""Load images, with errors that name the file and the reason."""

import mmcv
import numpy as np
from mmcv.transforms import LoadImageFromFile as McvLoadImageFromFile
from mmengine import fileio

from ...errors import UserError
from ...registry import TRANSFORMS
from ...utils.images import image_problem
from ...utils.text import one_line


@TRANSFORMS.register_module()
class LoadImageFromFile(McvLoadImageFromFile):
    """mmcv's transform of the same name (same arguments and results), with errors that name the file.

    A file that is missing, empty, truncated or not an image raises :class:`~mmkcla.errors.UserError`; with
    ``ignore_empty=True`` the result is None, as in mmcv. mmcv loads a truncated JPEG with its lower part grey.
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
            raise UserError(f'cannot read the image {path}: {one_line(error, 200)}') from error
        if image is None:
            raise UserError(f'cannot read the image {path}: {self.imdecode_backend} cannot decode it '
                            '(damaged, or an unsupported format)')
        return image
