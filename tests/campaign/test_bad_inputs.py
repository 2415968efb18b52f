"""The table of bad inputs: configs, options, annotations, masks, data sets, checkpoints, arguments; each with its
exit code and what its message says."""
import csv
from pathlib import Path

import pytest
from campaign import check, run, save_model, write_bad_files, write_workshop

with open(Path(__file__).with_name('bad_inputs.tsv'), encoding='utf-8', newline='') as table:
    CASES = list(csv.reader(table, delimiter='\t', quoting=csv.QUOTE_NONE))[1:]


@pytest.fixture(scope='module', autouse=True)
def workshop(tmp_path_factory):
    folder = write_workshop(tmp_path_factory.mktemp('workshop'))
    save_model(folder / 'cls.py', folder / 'good.pth')
    write_bad_files(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        yield folder


def test_table():
    assert len(CASES) >= 100 and len({words for _, words, _ in CASES}) == len(CASES)


@pytest.mark.parametrize(('code', 'words', 'message'), CASES, ids=[words for _, words, _ in CASES])
def test_bad_input(workshop, code, words, message):
    outcome = run(words.split())
    check(outcome, words)
    assert outcome.code == int(code) and message in ' '.join(outcome.text.split()), outcome.text[-600:]
    assert not (workshop / 'marker').exists()
