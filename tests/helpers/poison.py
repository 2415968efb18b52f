"""A data transform that puts an infinite pixel into chosen images."""
from mmcv.transforms import BaseTransform
from mmengine.registry import TRANSFORMS


@TRANSFORMS.register_module(name='poison.InfinitePixel', force=True)
class InfinitePixel(BaseTransform):
    """Make the first pixel of the images whose path contains ``name`` infinite; all images become float32."""

    def __init__(self, name: str, value: float = float('inf')) -> None:
        self.name, self.value = name, value

    def transform(self, results: dict) -> dict:
        results['img'] = results['img'].astype('float32')
        if self.name in results['img_path']:
            results['img'][0, 0, 0] = self.value
        return results
