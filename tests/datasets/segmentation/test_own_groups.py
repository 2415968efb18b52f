"""Groups stay together in splits and folds."""
from collections import Counter, defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mmkcla.datasets.segmentation.converters.groups import draw_folds, draw_grouped, find_groups
from mmkcla.errors import UserError

GROUPS = st.lists(st.integers(1, 9), min_size=3, max_size=30)  # images of each group
SEEDS = st.integers(0, 99)


def grouped(sizes):
    return {f'{group}_{i}': f'g{group}' for group, size in enumerate(sizes) for i in range(size)}


@settings(deadline=None)
@given(GROUPS, SEEDS, st.sampled_from([(8, 1, 1), (7, 3), (1, 1, 1)]))
def test_no_group_is_in_two_splits(sizes, seed, ratio):
    groups = grouped(sizes)
    if len(groups) < 10:
        return
    splits = draw_grouped(groups, ratio, seed)
    assert splits.keys() == groups.keys() and len(set(splits.values())) == len(ratio)
    places = defaultdict(set)
    for name, group in groups.items():
        places[group].add(splits[name])
    assert all(len(found) == 1 for found in places.values())
    assert splits == draw_grouped(dict(reversed(groups.items())), ratio, seed)


@settings(deadline=None)
@given(GROUPS, SEEDS, st.integers(2, 3))
def test_no_group_is_in_two_folds(sizes, seed, count):
    groups = grouped(sizes)
    folds = draw_folds(list(groups), count, seed, groups)
    assert sorted(sum(folds, [])) == sorted(groups) and len(folds) == count
    assert sum(len({groups[name] for name in fold}) for fold in folds) == len(sizes)
    numbers = [len(fold) for fold in folds]
    assert min(numbers) > 0 and max(numbers) - min(numbers) <= max(sizes)


def test_the_ratio_is_met_by_images():
    groups = grouped([1, 2, 3, 4, 5, 6, 7, 8, 9, 10] * 10)  # 550 images
    for seed in range(5):
        counts = Counter(draw_grouped(groups, (8, 1, 1), seed).values())
        for split, wanted in (('train', 440), ('val', 55), ('test', 55)):
            assert abs(counts[split] - wanted) <= 5
    assert draw_grouped(groups, (8, 1, 1), 0) != draw_grouped(groups, (8, 1, 1), 1)


def test_a_large_group_leaves_no_split_empty():
    assert sorted(Counter(draw_grouped(grouped([10, 10, 10]), (8, 1, 1), 0).values()).values()) == [10, 10, 10]


def test_folds_are_stable():
    names = [f'n{i}' for i in range(100)]
    folds = draw_folds(names, 5, 0)
    assert [len(fold) for fold in folds] == [20] * 5 and folds == draw_folds(names[::-1], 5, 0)
    assert folds != draw_folds(names, 5, 1)
    # the order by sha256 is h f g d j a i c b e, dealt to three
    assert draw_folds('abcdefghij', 3, 0) == [['d', 'e', 'h', 'i'], ['c', 'f', 'j'], ['a', 'b', 'g']]


def test_groups_of_a_file(tmp_path):
    names = ['p__a', 'p__b', 'q__a', 'c']
    for text in ('name,group\np/a.jpg,1\nb.png,1\nq/a,2\nc,3\nz,3\n', 'p__a\t1\nb\t1\nq__a\t2\nc\t3\nz\t9\n',
                 'images/p/a.jpg 1\nb.jpg 1\nq__a 2\nc 3\nz 9\n'):
        (tmp_path / 'groups.csv').write_text(text)
        groups, notes = find_groups(tmp_path / 'groups.csv', names)
        assert groups == {'p__a': '1', 'p__b': '1', 'q__a': '2', 'c': '3'}
        assert notes == ['1 line of groups.csv name no image here']
    for text, message in (('a,1', 'has no group for 4 of 4 names: p__a, p__b, q__a and 1 more$'),  # a is p__a or q__a
                          ('c,1\nc.png,2', 'line 2: c.png is in the groups 1 and 2'),
                          ('c', "line 1: 'c' is not a name and its group")):
        (tmp_path / 'groups.csv').write_text(text)
        with pytest.raises(UserError, match=message):
            find_groups(tmp_path / 'groups.csv', names)
    assert find_groups(r'^(\w)__|(?:^)', ['p__a'])[0] == {'p__a': 'p'}
