"""Random mutations of annotations and checkpoints: none may end in a traceback or hang, and what is accepted is in
effect. ``MMKCLA_FUZZ=1000`` sets the number of cases of a kind (default: 100, always the same)."""
import json
import os

import pytest
import torch
from campaign import check, mutated, run, save_model, write_workshop
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

CASES = int(os.environ.get('MMKCLA_FUZZ', '100'))
FUZZ = settings(max_examples=CASES, derandomize=CASES == 100, deadline=None, database=None,
                suppress_health_check=list(HealthCheck))


@pytest.fixture(scope='module')
def workshop(tmp_path_factory):
    folder = write_workshop(tmp_path_factory.mktemp('workshop'))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        yield folder


def all_cases(failures, one):
    """Run a case; keep its failure, so that one run of the fuzz shows all."""
    try:
        one()
    except AssertionError as error:
        failures.append(str(error).splitlines()[0][:400])


NUMBERS = (None, 'text', '1', -1, 0, 1, 0.5, 1e30, float('nan'), float('inf'), True, [], {}, [1], 2**70,
           [[]], {'a': 1}, '')


def replaced(rng, _):
    return rng.choice(NUMBERS)


def load_and_score(folder):
    """What training and evaluation do with annotations: the number of objects, and the scores of detections that equal
    the boxes in the original file."""
    from mmdet.datasets import CocoDataset

    from mmkcla.evaluation import CocoMetric
    data = CocoDataset(ann_file=str(folder / 'ann.json'), data_prefix=dict(img=str(folder / 'images')), pipeline=[],
                       metainfo=dict(classes=('blue', 'green')), test_mode=True)
    metric = CocoMetric(ann_file=str(folder / 'ann.json'), metric='bbox')
    metric.dataset_meta = data.metainfo
    original = json.loads((folder / 'original.json').read_text())
    for info in (data.get_data_info(number) for number in range(len(data))):
        truth = [each for each in original['annotations'] if each['image_id'] == info['img_id']]
        boxes = torch.tensor([each['bbox'] for each in truth], dtype=torch.float32).reshape(-1, 4)
        boxes[:, 2:] += boxes[:, :2]
        metric.process({}, [dict(img_id=info['img_id'], ori_shape=(info['height'], info['width']), pred_instances=dict(
            bboxes=boxes, labels=torch.tensor([each['category_id'] - 1 for each in truth], dtype=torch.long),
            scores=torch.ones(len(boxes))))])
    return metric.evaluate(len(data))['coco/bbox_mAP']


@pytest.mark.slow
def test_annotations(workshop, capfd):
    folder, failures, counts = workshop / 'coco', [], {}
    content = json.loads((folder / 'ann.json').read_text())
    (folder / 'original.json').write_text(json.dumps(content))
    assert load_and_score(folder) == 1

    @FUZZ
    @given(st.randoms(use_true_random=False))
    def mutate(rng):
        place, changed = mutated(content, rng, replaced)
        (folder / 'ann.json').write_text(json.dumps(changed))
        outcome = run(['data', 'verify', 'det.py', '--json', 'report.json'])
        accepted = outcome.code == 0
        counts[outcome.code] = counts.get(outcome.code, 0) + 1

        def one():
            check(outcome, place)
            if accepted:
                try:
                    score = load_and_score(folder)
                except Exception as error:
                    raise AssertionError(f'{place}: accepted, but {type(error).__name__}: {error}') from error
                assert -1 <= score <= 1, f'{place}: the score is {score}'
        try:
            all_cases(failures, one)
        finally:
            (folder / 'ann.json').write_text(json.dumps(content))

    mutate()
    assert not failures, f'{len(failures)} of {counts}:\n' + '\n'.join(failures)


def values_of_checkpoints(rng, old):
    choices = [*NUMBERS, torch.ones(1), torch.ones(2, 2, dtype=torch.int64), torch.zeros(0), torch.tensor(float('nan'))]
    if isinstance(old, torch.Tensor):
        choices += [old.double(), old.reshape(-1), old.half(), old.to_sparse() if old.ndim else old, old * float('nan'),
                    old.to('meta'), old.to(torch.complex64), old[:0] if old.ndim else old]
    return rng.choice(choices)


def changed_checkpoint(rng, good):
    """A damaged copy of the file, or one with another value in it; and what was done."""
    data = good.read_bytes()
    way = rng.choice(['flip', 'cut', 'zero', 'value', 'value', 'value', 'delete'])
    if way in ('flip', 'zero'):
        start, length = rng.randrange(len(data)), rng.choice([1, 8, 500])
        part = bytes(255 - byte for byte in data[start:start + length]) if way == 'flip' else bytes(length)
        return f'{way} {start}+{length}', data[:start] + part + data[start + length:]
    if way == 'cut':
        length = rng.randrange(len(data))
        return f'cut {length}', data[:length]
    content = torch.load(good, weights_only=True)
    holder = rng.choice([content, content['state_dict'], content['state_dict'], content['meta']])
    key = rng.choice(list(holder))
    if way == 'delete':
        del holder[key]
    else:
        holder[key] = values_of_checkpoints(rng, holder[key])
    import io
    buffer = io.BytesIO()
    torch.save(content, buffer)
    return f'{way} {key}: {str(holder.get(key))[:60]!r}', buffer.getvalue()


@pytest.mark.parametrize('command', ['infer cls.py bad.pth image.png --out-dir out', 'convert bad.pth out.pth --force',
                                     'train cls.py --resume bad.pth --work-dir w --no-checks'])
@pytest.mark.slow
def test_checkpoints(workshop, command):
    good, failures, counts = save_model('cls.py', workshop / 'good.pth'), [], {}
    Image.new('L', (8, 8), 99).save('image.png')

    def scores():
        return json.loads((workshop / 'out' / 'predictions.json').read_text())['images']

    reference = run(['infer', 'cls.py', 'good.pth', 'image.png', '--out-dir', 'out'])
    assert reference.code == 0, reference
    expected = scores()

    @settings(FUZZ, max_examples=max(1, CASES // 3))
    @given(st.randoms(use_true_random=False))
    def mutate(rng):
        what, data = changed_checkpoint(rng, good)
        (workshop / 'bad.pth').write_bytes(data)
        outcome = run(command.split())
        counts[outcome.code] = counts.get(outcome.code, 0) + 1

        def one():
            check(outcome, what)
            if command.startswith('infer') and outcome.code == 0 and what.split()[0] == 'delete':
                assert scores() == expected, f'{what}: accepted, with other scores'
        all_cases(failures, one)

    mutate()
    assert not failures, f'{len(failures)} of {counts}:\n' + '\n'.join(failures)
