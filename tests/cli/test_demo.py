"""The demos reach what the README says (minutes)."""
import pytest

from mmkcla.cli import main


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(('name', 'shown', 'pictures'), [
    ('detection', 'coco/segm_mAP_50 0.', 32), ('segmentation', 'DSC_pooled 0.9', 48), ('classification', 'top1 9', 0)])
def test_demo(tmp_path, monkeypatch, capfd, name, shown, pictures):
    monkeypatch.chdir(tmp_path)
    assert main(['demo', name]) == 0
    assert shown in capfd.readouterr().out
    drawn = [*tmp_path.glob('work_dirs/demo/*/pictures/*.[jp][pn]g'),  # named as their images
             *tmp_path.glob('work_dirs/demo/*/evaluation/*/*.png')]
    assert len(drawn) >= pictures
