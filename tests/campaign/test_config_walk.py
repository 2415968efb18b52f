"""Mutations of the options of every shipped family: each is refused in a line, or in effect; none ends in a traceback
or hangs. ``MMKCLA_FUZZ=1000`` sets their number (default: 60, always the same)."""
import os

import pytest
from family_configs import FAMILIES, ROOT, write_families
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mmengine.config import Config
from option_walk import VALUES, places, train_with

CASES = int(os.environ.get('MMKCLA_FUZZ', '60'))
NOT_READ = ('val_dataloader', 'test_dataloader', 'test_evaluator', 'test_cfg', 'tta_model', 'tta_pipeline')


@pytest.fixture(scope='module', autouse=True)
def workshop(tmp_path_factory):
    folder = tmp_path_factory.mktemp('families')
    write_families(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        yield folder


def test_families():
    assert set(FAMILIES) == {path.name for path in ROOT.iterdir() if path.is_dir() and path.name != '_base_'}


@st.composite
def mutations(draw):
    family = draw(st.sampled_from(sorted(FAMILIES)))
    keys = sorted(place for place in places(Config.fromfile(f'{family}.py').to_dict())
                  if place.split('.')[0] not in NOT_READ)
    return f'{family}.py', f'{draw(st.sampled_from(keys))}={draw(st.sampled_from(VALUES))}'


def test_walk():
    failures, codes, families = [], {}, set()

    @settings(max_examples=CASES, derandomize=CASES == 60, deadline=None, database=None,
              suppress_health_check=list(HealthCheck))
    @given(mutations())
    def mutate(mutation):
        try:
            outcome = train_with(*mutation)
        except AssertionError as error:
            failures.append(str(error).splitlines()[0][:400])
        else:
            codes[outcome.code] = codes.get(outcome.code, 0) + 1
            families.add(mutation[0])

    mutate()
    assert not failures, f'{len(failures)} failures beside {codes}:\n' + '\n'.join(failures)
    assert set(codes) == {0, 2} and len(families) > 10, (codes, families)
