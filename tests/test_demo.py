"""The demo reaches what the README says (minutes)."""
import pytest

from mmkcla.cli import main


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_detection_demo(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    assert main(['demo']) == 0
    out = capfd.readouterr().out
    assert 'coco/segm_mAP_50 0.' in out and len(list(tmp_path.glob('work_dirs/demo/*/pictures/*.png'))) == 32
