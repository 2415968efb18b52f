"""Comparisons of configs: what is claimed, what is refused, and the words for it."""
import csv
import json
from pathlib import Path

import numpy as np
import pytest
from segmentation_samples import cases, evaluate

from mmkcla.errors import UserError
from mmkcla.evaluation.significance import compare_paired
from mmkcla.runtime.comparison import Candidate, compare, compare_and_write
from mmkcla.runtime.comparison.compare import preferred
from mmkcla.runtime.comparison.images import read_images
from mmkcla.runtime.comparison.report import ONLY_IMAGES, sentence
from mmkcla.utils.tables import write_csv

EVALUATOR = dict(type='mmkcla.BinarySegMetric', threshold=0.5)
DATA = dict(type='mmkcla.BinarySegDataset', data_root='data/lesions', split='test')


def write_scores(folder, columns, names=None, truth=None, **metrics):
    """Write the table of a segmentation test; return the metrics that belong to it."""
    n = len(next(iter(columns.values())))
    names = names or [f'{number:03d}.png' for number in range(n)]
    fixed = dict(TP=[50] * n, FP=[5] * n, FN=(truth or [10] * n), TN=[35] * n, ignored=[0] * n, height=[10] * n,
                 width=[10] * n)
    rows = [dict(file=name) | {key: '' if values[row] != values[row] else values[row]
                               for key, values in (columns | fixed).items()} for row, name in enumerate(names)]
    write_csv(folder / 'evaluation' / 'per_image.csv', rows, list(rows[0]), digits=None)
    return {f'{key}_mean': float(np.nanmean(values)) for key, values in columns.items()} | metrics


def candidate(root, name, columns_of_seeds, evaluator=EVALUATOR, data=DATA, **options):
    folders = {seed: root / name / f'seed_{seed}' for seed in columns_of_seeds}
    metrics = {seed: write_scores(folders[seed], columns, **options) for seed, columns in columns_of_seeds.items()}
    return Candidate(name, folders, metrics, evaluator, data)


def only(found, metric, over='images'):
    members = [each for each in found if (each.metric, each.over) == (metric, over)]
    assert len(members) == 1
    return members[0]


RNG = np.random.default_rng(0)
BASE = np.round(RNG.uniform(0.6, 0.8, 40), 6)
BETTER = np.round(BASE + RNG.uniform(0, 0.03, 40), 6)


def test_a_difference_is_shown_with_all_its_numbers(tmp_path):
    found = only(compare([candidate(tmp_path, 'kcla', {0: dict(DSC=BETTER)}),
                          candidate(tmp_path, 'plain', {0: dict(DSC=BASE)})]), 'DSC_mean')
    expected = compare_paired(BETTER, BASE)
    assert found.result == expected and found.p_holm == expected.p < 1e-9 and found.verdict == 'shown'
    assert sentence(found) == (
        f'DSC_mean: kcla is higher (better) than plain by {expected.difference * 100:.2f} points, 95 % interval '
        f'{expected.low * 100:.2f} to {expected.high * 100:.2f} (p < 0.001, Wilcoxon, n = 40 images, '
        'seed 0, rank-biserial 1.00).')


def test_less_is_better(tmp_path):
    """The winner is named first, also as the second config, and the interval is that of its advantage."""
    far, near = candidate(tmp_path, 'far', {0: dict(HD95=BETTER * 100)}), candidate(
        tmp_path, 'near', {0: dict(HD95=BASE * 100)})
    found = only(compare([far, near]), 'HD95_mean')
    amount = found.result.difference
    assert amount > 0 and sentence(found).startswith(
        f'HD95_mean: near is lower (better) than far by {amount:.2f} pixels, 95 % interval ')
    swapped = only(compare([near, far]), 'HD95_mean')
    assert swapped.result.difference == -amount
    assert sentence(swapped) == sentence(found)  # all numbers are of the larger minus the smaller
    unknown = candidate(tmp_path, 'a', {0: dict(MyScore=BETTER)}), candidate(tmp_path, 'b', {0: dict(MyScore=BASE)})
    assert ': a is higher than b by' in sentence(only(compare(unknown), 'MyScore_mean'))


def test_no_difference_and_identical_runs(tmp_path):
    noise = np.round(BASE + np.random.default_rng(1).normal(0, 0.02, 40), 6)
    found = only(compare([candidate(tmp_path, 'a', {0: dict(DSC=BASE)}),
                          candidate(tmp_path, 'b', {0: dict(DSC=noise)})]), 'DSC_mean')
    assert found.verdict == 'not shown' and found.result.low < 0 < found.result.high
    assert sentence(found).startswith('DSC_mean: no difference is shown between a and b (p = 0.')
    same = only(compare([candidate(tmp_path, 'a', {0: dict(DSC=BASE)}), candidate(tmp_path, 'c', {0: dict(DSC=BASE)})]),
                'DSC_mean')
    assert sentence(same) == ('DSC_mean: no difference is shown between a and c: all 40 images have equal scores '
                              '(p = 1).')
    constant = candidate(tmp_path, 'd', {0: dict(DSC=[1.] * 40)}), candidate(tmp_path, 'e', {0: dict(DSC=[1.] * 40)})
    assert only(compare(constant), 'DSC_mean').verdict == 'not shown'


def test_missing_values_are_left_out_and_counted(tmp_path):
    holes = BETTER.copy()
    holes[[3, 7]] = np.nan
    found = only(compare([candidate(tmp_path, 'a', {0: dict(DSC=holes)}),
                          candidate(tmp_path, 'b', {0: dict(DSC=BASE)})]), 'DSC_mean')
    kept = ~np.isnan(holes)
    assert found.result.difference == pytest.approx((holes - BASE)[kept].mean())
    assert 'n = 38 images, seed 0, 2 without a value left out' in sentence(found)
    nothing = candidate(tmp_path, 'c', {0: dict(DSC=[0.5, np.nan])}), candidate(
        tmp_path, 'd', {0: dict(DSC=[np.nan, 0.5])})
    assert sentence(only(compare(nothing), 'DSC_mean')) == (
        'c and d are not compared on DSC_mean over images: none of the images has a value for both.')


def test_few_images_and_one_seed(tmp_path):
    few = candidate(tmp_path, 'a', {0: dict(DSC=BETTER[:5])}), candidate(tmp_path, 'b', {0: dict(DSC=BASE[:5])})
    found = compare(few)
    words = [sentence(only(found, 'DSC_mean', over)) for over in ('images', 'seeds')]
    assert 'too few images to show a difference between a and b (5; the smallest possible p is 0.0625; 6 ' in words[0]
    assert 'too few seeds to show a difference between a and b (1; the smallest possible p is 1.00; 6 are' in words[1]
    single = candidate(tmp_path, 'c', {0: dict(DSC=[0.5])}), candidate(tmp_path, 'd', {0: dict(DSC=[0.7])})
    assert only(compare(single), 'DSC_mean').verdict == 'too few'


def test_seeds(tmp_path):
    def seeds(name, shift, numbers):
        return candidate(tmp_path, name, {seed: dict(DSC=np.round(BASE + shift + 0.001 * seed * (shift + 1), 6))
                                          for seed in numbers})
    found = compare([seeds('a', 0.02, range(7)), seeds('b', 0, range(1, 8))])
    over_seeds = only(found, 'DSC_mean', 'seeds')
    assert over_seeds.seeds == [1, 2, 3, 4, 5, 6] and over_seeds.result.n == 6
    assert over_seeds.p_holm == pytest.approx(2 / 2**6) and over_seeds.verdict == 'shown'
    assert 'p = 0.0312, Wilcoxon, n = 6 seeds' in sentence(over_seeds)
    over_images = only(found, 'DSC_mean')
    assert 'mean of 6 seeds' in sentence(over_images)
    assert over_images.result.difference == pytest.approx(over_seeds.result.difference)
    apart = compare([seeds('c', 0.02, [0]), seeds('d', 0, [1])])
    assert [each.reason for each in apart] == ['no seed in common (0 and 1); run both with the same seeds']


def test_holm_over_pairs_and_baseline(tmp_path):
    three = [candidate(tmp_path, name, {0: dict(DSC=np.round(BASE + shift, 6))})
             for name, shift in (('a', 0.), ('b', 0.01), ('c', 0.02))]
    noise = np.random.default_rng(2).normal(0, 0.028, 40)
    three[1] = candidate(tmp_path, 'b', {0: dict(DSC=np.round(BASE + 0.01 + noise, 6))})
    found = [each for each in compare(three) if each.over == 'images']
    assert [(each.first, each.second, each.comparisons) for each in found] == [
        ('a', 'b', 3), ('a', 'c', 3), ('b', 'c', 3)]
    raw = [each.result.p for each in found]
    order = np.argsort(raw)
    assert found[order[0]].p_holm == pytest.approx(3 * raw[order[0]])
    assert all(each.p_holm >= p for each, p in zip(found, raw, strict=True))
    assert 'Holm over 3 comparisons' in sentence(found[1])
    based = [each for each in compare(three, 'a') if each.over == 'images']
    assert [(each.first, each.second, each.comparisons) for each in based] == [('b', 'a', 2), ('c', 'a', 2)]
    few = [each for each in compare(three) if each.over == 'seeds'][0]
    assert 'is 1.00 after Holm over 3 comparisons; 7 are needed' in sentence(few)


def test_ranks_and_mean_that_disagree_claim_nothing(tmp_path):
    """Most images are a little better, few are much worse."""
    odd = np.round(BASE + 0.001 * np.arange(1, 41) / 40, 6)
    odd[:4] -= 0.3
    found = only(compare([candidate(tmp_path, 'a', {0: dict(DSC=odd)}), candidate(tmp_path, 'b', {0: dict(DSC=BASE)})]),
                 'DSC_mean')
    assert found.p_holm < 0.05 and found.result.effect > 0 > found.result.difference
    assert found.verdict == 'contradictory' and 'no difference of the means is shown' in sentence(found)


def test_other_images_truth_evaluators_and_data_are_not_compared(tmp_path):
    here = candidate(tmp_path, 'here', {0: dict(DSC=BASE)})

    def reasons(name, columns=None, **options):
        there = candidate(tmp_path, name, {0: columns or dict(DSC=BETTER)}, **options)
        found = compare([here, there])
        assert all(each.result is None for each in found)
        return {each.reason for each in found}
    others = [f'{number:03d}.png' for number in range(1, 41)]
    assert reasons('images', names=others) == {
        'the test images differ: 1 only in here, 1 only in images (for example 000.png)'}
    assert reasons('fewer', dict(DSC=BETTER[:30])) == {
        'the test images differ: 10 only in here, 0 only in fewer (for example 030.png)'}
    assert reasons('truth', truth=[10] * 38 + [11] * 2) == {
        'the ground truth or its size differs between here and truth for 2 of 40 images (for example 038.png)'}
    assert reasons('evaluator', evaluator=EVALUATOR | dict(empty='skip')) == {
        'the evaluators differ: 0.empty: nothing and "skip"'}
    assert reasons('unknown', evaluator=None) == {
        'it is not recorded how unknown was tested; use --test-only to test again'}
    moved = candidate(tmp_path, 'moved', {0: dict(DSC=BETTER)}, data=DATA | dict(data_root='/elsewhere/lesions'),
                      evaluator=EVALUATOR | dict(hd95=True, out_dir='x'))
    assert only(compare([here, moved]), 'DSC_mean').verdict == 'shown'  # the same images in another folder
    for each, root in ((here, 'a'), (moved, 'b')):
        each.replaced = 'replaced'
        each._images.clear()
        each.data = DATA | dict(data_root=root)
    assert {each.reason for each in compare([here, moved])} == {'the test data differ: data_root: "a" and "b"'}
    here.data, moved.data = DATA | dict(data_root='./b/'), DATA | dict(data_root='b')
    found = compare([here, moved])
    assert {each.over: each.reason for each in found} == dict(images='replaced', seeds='')


def test_damaged_and_foreign_records(tmp_path):
    first = candidate(tmp_path, 'a', {0: dict(DSC=BASE)})
    table = tmp_path / 'a' / 'seed_0' / 'evaluation' / 'per_image.csv'
    whole = table.read_text()

    def fault(text, metrics=first.metrics[0]):
        table.write_text(text)
        with pytest.raises(UserError) as error:
            read_images(tmp_path / 'a' / 'seed_0', metrics)
        return str(error.value).replace(str(tmp_path), '')
    assert fault(whole, dict(DSC_mean=0.5)).startswith(
        '/a/seed_0/evaluation/per_image.csv does not belong to metrics.json: DSC_mean is 0.')
    assert 'images without a name' in fault(whole.replace('001.png', '000.png')) and 'damaged' in fault('')
    assert 'is damaged; use --test-only' in fault(whole.replace('35', 'x'))
    assert 'is damaged' in fault(whole.replace('height', 'depth'))
    table.unlink()
    with pytest.raises(UserError, match='has no scores per image'):
        read_images(tmp_path / 'a' / 'seed_0', {})


def test_records_of_the_metric_itself(tmp_path):
    """The table that BinarySegMetric writes gives every score that is a mean over images, and the pooled ones."""
    options = dict(bootstrap=0, hd95=True, distances=True, structure=True, boundary_f1=True, polyp_protocol=True)
    candidates = []
    for name, seed in (('a', 1), ('b', 2)):
        folder = tmp_path / name / 'seed_0'
        metrics = evaluate(cases(8, seed=seed, shape=(40, 48)), out_dir=str(folder / 'evaluation'), **options)
        candidates.append(Candidate(name, {0: folder}, {0: metrics}, EVALUATOR | options, DATA))
    found = compare(candidates, metrics=['DSC_mean', 'DSC_pooled', 'maxDice_256'])
    for each in found:
        expected = [one.metrics[0][each.metric] for one in candidates]
        if each.over == 'images' and each.result:
            assert (each.result.first, each.result.second) == pytest.approx(expected, rel=1e-5), each.metric
    tested = {each.metric for each in found if each.over == 'images' and each.result}
    assert tested == {key for key in candidates[0].metrics[0] if key.endswith('_mean')} | {
        'DSC_pooled', 'mDice_256', 'mIoU_256', 'failed_share'}
    assert only(found, 'DSC_pooled').result.test == 'paired randomization'
    assert only(found, 'maxDice_256').reason == 'maxDice_256 is not recorded for each image'


def test_outputs(tmp_path):
    three = [candidate(tmp_path, name, {0: dict(DSC=np.round(BASE + shift * RNG.random(40), 6), IoU=BASE)})
             for name, shift in (('a', 0.), ('b', 0.01), ('c', 0.02))]
    three.append(candidate(tmp_path, 'd', {0: dict(DSC=BASE)}, truth=[1] * 40))
    lines, paths = compare_and_write(tmp_path / 'out', three)
    assert [path.name for path in paths] == ['out.csv', 'out.json', 'out.png']
    assert lines[0] == 'Over images:' and 'Over seeds:' in lines and sum('not compared' in line for line in lines) == 3
    content = json.loads((tmp_path / 'out.json').read_text())
    rows = list(csv.DictReader((tmp_path / 'out.csv').open(encoding='utf-8')))
    assert len(rows) == len(content['comparisons']) and content['alpha'] == 0.05
    for row, item in zip(rows, content['comparisons'], strict=True):
        assert (row['p_holm'] or None) == (None if item['p_holm'] is None else repr(item['p_holm']))
        assert item['sentence'] and (item['reason'] if item['n'] is None else item['test'] and item['n'] >= 1)
    assert any(line == f'* {item["sentence"]}' for item in content['comparisons'] for line in lines)
    assert (tmp_path / 'out.png').read_bytes().startswith(b'\x89PNG')
    assert lines[-1] == ONLY_IMAGES  # one seed cannot show a difference
    apart = [three[0], three[3]]
    lines, paths = compare_and_write(tmp_path / 'out', apart)
    assert len(paths) == 2 and not (tmp_path / 'out.png').exists() and len(lines) == 3
    assert ONLY_IMAGES not in lines
    assert compare_and_write(tmp_path / 'none', three[:1]) == ([], [])
    assert compare_and_write(tmp_path / 'none', three, 'absent')[0] == [
        'The baseline absent has no results, so nothing is compared.']
    assert not Path(tmp_path / 'none.csv').exists()


def test_preferred_metrics():
    def names(*keys):
        return preferred([Candidate('a', {}, {0: dict.fromkeys(keys, 0.5)})])
    assert names('IoU_pooled', 'IoU_mean', 'DSC_mean', 'DSC_mean_lo') == ['DSC_mean', 'IoU_mean']
    assert names('coco/bbox_mAP', 'coco/bbox_mAP_50', 'coco/segm_mAP') == ['coco/bbox_mAP', 'coco/segm_mAP']
    assert names('single-label/recall', 'accuracy/top5', 'accuracy/top1') == ['accuracy/top1']
    assert names('time', 'EPE', '1px') == ['EPE'] and names('time', 'D1') == ['D1'] and names('own') == ['own']
