"""Right or wrong for each image of a classification test set, as a table."""
from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mmengine.evaluator import BaseMetric

from ..errors import UserError
from ..registry import METRICS
from ..utils.tables import write_csv

TABLE = 'per_image.csv'


@METRICS.register_module()
class PerImageAccuracy(BaseMetric):
    """Write ``per_image.csv`` with one row per image: file, label, predicted label, and 1 or 0 for each top-k.

    It has no scores of its own; the mean of ``top1`` is ``accuracy/top1`` of mmpretrain's ``Accuracy`` (in percent).
    ``mmkcla seeds`` and ``mmkcla sweep`` add it to compare configs over images.

    Args:
        out_dir: folder of the table.
        topk: numbers of best predictions among which the label may be.
        collect_device, prefix, collect_dir: see mmengine's ``BaseMetric``.

    Raises:
        UserError: during evaluation, for a sample with several labels, or fewer classes than ``max(topk)``.
    """

    default_prefix = ''

    def __init__(self, out_dir: str, topk: int | Sequence[int] = (1,), collect_device: str = 'cpu',
                 prefix: str | None = None, collect_dir: str | None = None) -> None:
        super().__init__(collect_device=collect_device, prefix=prefix, collect_dir=collect_dir)
        self.out_dir = Path(out_dir)
        self.topk = (topk,) if isinstance(topk, int) else tuple(topk)

    @property
    def names(self) -> list[str]:
        """Keys that :meth:`evaluate` returns: none."""
        return []

    def process(self, data_batch: Any, data_samples: Sequence[dict]) -> None:
        """Append file, label and ranks of each sample to ``self.results``."""
        for sample in data_samples:
            labels = sample['gt_label'].reshape(-1).tolist()
            name = str(sample.get('img_path') or f'image {sample.get("sample_idx", len(self.results))}')
            if len(labels) != 1:
                raise UserError(f'PerImageAccuracy needs one label for each image; {name} has {len(labels)}')
            ranked = self._ranked(sample, name)
            self.results.append(dict(file=name, label=labels[0], predicted=ranked[0])
                                | {f'top{k}': int(labels[0] in ranked[:k]) for k in self.topk})

    def _ranked(self, sample: dict, name: str) -> list[int]:
        """The predicted labels, best first."""
        if 'pred_score' not in sample:
            return sample['pred_label'].reshape(-1).tolist()
        scores = sample['pred_score']
        if len(scores) < max(self.topk):
            raise UserError(f'PerImageAccuracy: topk={max(self.topk)}, but {name} has scores of {len(scores)} classes')
        return scores.topk(max(self.topk)).indices.tolist()

    def compute_metrics(self, results: list[dict]) -> dict[str, float]:
        """Write the table, sorted by file; return no scores."""
        rows = sorted(results, key=lambda row: row['file'])
        write_csv(self.out_dir / TABLE, rows, ['file', 'label', 'predicted', *(f'top{k}' for k in self.topk)])
        return {}
