"""What comparisons show: sentences, a CSV, a JSON file and a figure."""
from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from ...evaluation.directions import kind_of
from ...evaluation.significance import ALPHA, pairs_needed
from ...utils.figures import new_figure, write_figure
from ...utils.files import write_json
from ...utils.tables import write_csv
from .compare import IMAGES, SEEDS, Comparison

COLUMNS = ('metric', 'over', 'first', 'second', 'verdict', 'n', 'dropped', 'zeros', 'mean_first', 'mean_second',
           'difference', 'low', 'high', 'interval', 'p', 'p_holm', 'comparisons', 'smallest_p', 'test', 'detail',
           'rank_biserial', 'seeds', 'reason')
_SCALES = {'fraction': (100, 'points'), 'percent': (1, 'points'), 'pixels': (1, 'pixels'), '': (1, '')}
_COLOURS = {'shown': '#0072b2', 'not shown': '#888888', 'too few': '#bbbbbb', 'contradictory': '#e69f00'}
_MOST_ROWS = 40
ONLY_IMAGES = ('A difference that is shown over images but not over seeds holds for these trained networks; it is not '
               'shown that new trainings would differ in the same way.')


def sentence(comparison: Comparison) -> str:
    """Say in words what a comparison shows, and what it does not."""
    one, two, metric, result = comparison.first, comparison.second, comparison.metric, comparison.result
    verdict = comparison.verdict
    if result is None or verdict == 'not compared':
        why = comparison.reason or f'none of the {comparison.over} has a value for both'
        return f'{one} and {two} are not compared on {metric} over {comparison.over}: {why}.'
    if verdict == 'shown':
        return _shown(comparison)
    left = f' {one} − {two}: {_amount(comparison, result.difference)}{_interval(comparison)}.'
    if verdict == 'too few':
        needed = pairs_needed(comparison.comparisons)
        smallest = min(1., (result.smallest_p or 1.) * comparison.comparisons)
        holm = f' after Holm over {comparison.comparisons} comparisons' if comparison.comparisons > 1 else ''
        return (f'{metric}: too few {comparison.over} to show a difference between {one} and {two} ({result.n}; the '
                f'smallest possible p is {_p(smallest)}{holm}; {needed} are needed).' + left)
    if verdict == 'contradictory':
        return (f'{metric}: no difference of the means is shown between {one} and {two}. The ranks differ '
                f'({_facts(comparison)}), but the mean difference or its interval does not agree.' + left)
    if result.n and result.zeros == result.n:
        return (f'{metric}: no difference is shown between {one} and {two}: all {result.n} {comparison.over} have '
                'equal scores (p = 1).')
    return f'{metric}: no difference is shown between {one} and {two} ({_facts(comparison)}).' + left


def _shown(comparison: Comparison) -> str:
    result, way = comparison.result, kind_of(comparison.metric).direction
    assert result
    first_wins = (result.difference > 0) == (way != 'less')
    winner, loser = (comparison.first, comparison.second) if first_wins else (comparison.second, comparison.first)
    flip = result.difference < 0  # all numbers are those of the larger minus the smaller
    word = {'greater': 'higher (better)', 'less': 'lower (better)', None: 'higher'}[way]
    return (f'{comparison.metric}: {winner} is {word} than {loser} by {_amount(comparison, abs(result.difference))}'
            f'{_interval(comparison, flip)} ({_facts(comparison, flip)}).')


def _facts(comparison: Comparison, flip: bool = False) -> str:
    """p value, test, correction, number of pairs and effect size."""
    result = comparison.result
    assert result and comparison.p_holm is not None
    facts = [f'p {_equals(comparison.p_holm)}', result.test]
    if comparison.comparisons > 1:
        facts.append(f'Holm over {comparison.comparisons} comparisons')
    facts.append(f'n = {result.n} {comparison.over}')
    if comparison.over == IMAGES:
        seeds = comparison.seeds
        facts.append(f'mean of {len(seeds)} seeds' if len(seeds) > 1 else f'seed {seeds[0]}')
    if result.dropped:
        facts.append(f'{result.dropped} without a value left out')
    if result.effect is not None:
        effect = -result.effect if flip else result.effect
        facts.append(f'rank-biserial {"−" if round(effect, 2) < 0 else ""}{abs(effect):.2f}')
    return ', '.join(facts)


def _interval(comparison: Comparison, flip: bool = False) -> str:
    result = comparison.result
    assert result
    if result.low is None or result.high is None:
        return ''
    low, high = (-result.high, -result.low) if flip else (result.low, result.high)
    return f', 95 % interval {_amount(comparison, low, False)} to {_amount(comparison, high, False)}'


def _amount(comparison: Comparison, value: float, unit: bool = True) -> str:
    scale, name = _SCALES[kind_of(comparison.metric).unit]
    text = (f'{value * scale:.2f}' if name else f'{value:.4g}').replace('-', '−')
    text = '0.00' if text == '−0.00' else text
    return f'{text} {name}'.strip() if unit else text


def _equals(p: float) -> str:
    return '< 0.001' if p < 0.001 else f'= {_p(p)}'


def _p(p: float) -> str:
    return f'{p:.2f}' if p >= 0.1 else f'{p:.4f}'


def comparison_lines(comparisons: Sequence[Comparison], metrics: Sequence[str]) -> list[str]:
    """Sentences for the reported metrics, as Markdown; a reason that holds for several metrics is given once."""
    lines: list[str] = []
    given: set[tuple[str, str, str]] = set()
    for over in (IMAGES, SEEDS):
        part = []
        for each in comparisons:
            if each.over != over or each.metric not in metrics:
                continue
            if each.reason and (each.first, each.second, each.reason) in given:
                continue
            given.add((each.first, each.second, each.reason))
            part.append(f'* {sentence(each)}')
        if part:
            lines += [f'Over {over}:', '', *part, '']
    shown = {over: {(each.first, each.second, each.metric) for each in comparisons
                    if each.over == over and each.metric in metrics and each.verdict == 'shown'}
             for over in (IMAGES, SEEDS)}
    if shown[IMAGES] - shown[SEEDS]:
        lines += [ONLY_IMAGES, '']
    return lines[:-1]


def write_comparisons(stem: Path, comparisons: Sequence[Comparison], metrics: Sequence[str]) -> list[Path]:
    """Write ``<stem>.csv`` and ``<stem>.json`` with all comparisons, and ``<stem>.png`` with the reported metrics.

    Returns:
        the files that were written: no figure if nothing could be compared.
    """
    rows = [_row(each) for each in comparisons]
    paths = [stem.with_name(f'{stem.name}.{kind}') for kind in ('csv', 'json', 'png')]
    write_csv(paths[0], rows, COLUMNS, digits=None)
    items = [dict.fromkeys(COLUMNS) | row | dict(seeds=each.seeds, sentence=sentence(each))
             for row, each in zip(rows, comparisons, strict=True)]
    write_json(paths[1], dict(alpha=ALPHA, correction='Holm, for each metric and unit', comparisons=items))
    drawn = [each for each in comparisons if each.metric in metrics and each.result is not None
             and math.isfinite(each.result.difference)]
    if not drawn:
        paths.pop().unlink(missing_ok=True)  # of an earlier call
        return paths
    draw(paths[2], drawn[:_MOST_ROWS], len(drawn))
    return paths


def _row(comparison: Comparison) -> dict:
    row = dict(metric=comparison.metric, over=comparison.over, first=comparison.first, second=comparison.second,
               verdict=comparison.verdict, seeds=' '.join(map(str, comparison.seeds)), reason=comparison.reason,
               p_holm=comparison.p_holm, comparisons=comparison.comparisons)
    if (result := comparison.result) is not None:
        finite = math.isfinite(result.difference)
        row |= dict(n=result.n, dropped=result.dropped, zeros=result.zeros, low=result.low, high=result.high,
                    mean_first=result.first if finite else None, mean_second=result.second if finite else None,
                    difference=result.difference if finite else None, p=result.p, smallest_p=result.smallest_p,
                    test=result.test, detail=result.detail, interval=result.interval, rank_biserial=result.effect)
    return row


def draw(path: Path, comparisons: Sequence[Comparison], total: int) -> None:
    """Draw the differences with their 95 % intervals, one panel for each metric and unit."""
    panels = list(dict.fromkeys((each.metric, each.over) for each in comparisons))
    heights = [sum((each.metric, each.over) == panel for each in comparisons) for panel in panels]
    figure = new_figure(7.5, 0.5 + sum(0.9 + 0.3 * height for height in heights))
    axes = figure.subplots(len(panels), 1, squeeze=False, gridspec_kw=dict(height_ratios=[1 + n for n in heights]))
    for axis, (metric, over) in zip(axes[:, 0], panels, strict=True):
        scale, unit = _SCALES[kind_of(metric).unit]
        members = [each for each in comparisons if (each.metric, each.over) == (metric, over)]
        for place, each in enumerate(members):
            result, colour = each.result, _COLOURS.get(each.verdict, '#bbbbbb')
            assert result
            if result.low is not None and result.high is not None:
                axis.plot([result.low * scale, result.high * scale], [place, place], color=colour, linewidth=2)
            axis.plot([result.difference * scale], [place], 'o', color=colour)
        axis.axvline(0, color='black', linewidth=0.8)
        axis.set_yticks(range(len(members)), [f'{each.first} − {each.second}' for each in members], fontsize=8)
        axis.set_ylim(len(members) - 0.5, -0.5)
        axis.set_title(f'{metric} over {over}', fontsize=9, loc='left')
        better = {'greater': '; right of 0: the first is better', 'less': '; left of 0: the first is better', None: ''}
        axis.set_xlabel(f'difference{f" in {unit}" if unit else ""}{better[kind_of(metric).direction]}', fontsize=8)
        axis.tick_params(axis='x', labelsize=8)
    more = f'; {len(comparisons)} of {total} comparisons' if total > len(comparisons) else ''
    figure.suptitle(f'Differences with 95 % intervals{more}. Blue: a difference is shown (p < {ALPHA}, Holm)',
                    fontsize=9)
    write_figure(path, figure, dpi=130)

