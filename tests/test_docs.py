"""The pages: links lead somewhere, and the commands that are shown exist with their options."""
import re
import shlex
from pathlib import Path

import pytest

from mmkcla.cli import build_parser

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / 'README.md', ROOT / 'CHANGELOG.md', *sorted(ROOT.glob('docs/**/*.md')),
         *sorted(ROOT.glob('configs/*/README.md')), *sorted(ROOT.glob('examples/**/*.md'))]
_BLOCK = re.compile(r'^```(\w*)\n(.*?)^```', re.DOTALL | re.MULTILINE)
_LINK = re.compile(r'\]\(([^)\s]+)\)')
_START = re.compile(r'^(?:\$ )?(?:[A-Z_]+=\S+ )*(?:python3? -m )?mmkcla ')
_TOOL = re.compile(r'^(?:\$ )?(?:[A-Z_]+=\S+ )*python3? (tools/[\w/]+\.py) ')
_MAIN = re.compile(r'main\(\[(.*)\*sys\.argv\[1:\]\]\)')


def anchor(heading: str) -> str:
    """The anchor that GitHub gives a heading."""
    text = re.sub(r'\[([^\]]*)\]\([^)]*\)', r'\1', heading).strip().lower()
    return re.sub(r'[^\w\- ]', '', text).replace(' ', '-')


def anchors(page: Path) -> set[str]:
    text = _BLOCK.sub('', page.read_text(encoding='utf-8'))
    return {anchor(heading) for heading in re.findall(r'^#+ (.*)$', text, re.MULTILINE)}


def broken_links(page: Path) -> list[str]:
    """Relative links of a page to files or anchors that do not exist."""
    broken = []
    for link in _LINK.findall(_BLOCK.sub('', page.read_text(encoding='utf-8'))):
        if re.match(r'\w+:', link):
            continue
        name, _, place = link.partition('#')
        target = page.parent / name if name else page
        if not target.exists() or (place and place not in anchors(target)):
            broken.append(link)
    return broken


def command_of(script: str) -> list[str] | None:
    """The ``mmkcla`` command that a script in tools/ calls; None for scripts of their own."""
    called = _MAIN.search((ROOT / script).read_text(encoding='utf-8'))
    return [word.strip("'") for word in re.findall(r"'\w+'", called[1])] if called else None


def commands(text: str) -> list[list[str]]:
    """The arguments of every ``mmkcla …`` and ``python tools/….py …`` in the shell blocks of a page."""
    found = []
    for language, block in _BLOCK.findall(text):
        if language not in ('bash', 'sh', 'shell', 'console'):
            continue
        for line in block.replace('\\\n', ' ').splitlines():
            tool = _TOOL.match(line)
            if tool and (start := command_of(tool[1])):
                found.append([*start, *shlex.split(line[tool.end():], comments=True)])
            elif own := _START.match(line):
                found.append(shlex.split(line[own.end():], comments=True))
    return [until_pipe(words) for words in found]


def until_pipe(words: list[str]) -> list[str]:
    """The words before a pipe or a redirection."""
    return words[:next((i for i, word in enumerate(words) if word[:1] in '|>&;'), len(words))]


@pytest.mark.parametrize('page', PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_links(page):
    assert broken_links(page) == []


def examples_in_help() -> list[tuple[Path, list[str]]]:
    """The example commands in the help texts."""
    lines = [(path.relative_to(ROOT), line) for path in sorted(ROOT.glob('mmkcla/cli/*.py'))
             for line in path.read_text(encoding='utf-8').replace('\\\n', ' ').splitlines()]
    found = [(path, re.split('"""|\'\'\'', line)[0]) for path, line in lines if re.match(r'  mmkcla [a-z]+', line)]
    return [(path, until_pipe(shlex.split(line, comments=True)[1:])) for path, line in found if '{' not in line]


SHOWN = [(page.relative_to(ROOT), words) for page in PAGES for words in commands(page.read_text(encoding='utf-8'))]
SHOWN += examples_in_help()


@pytest.mark.parametrize(('page', 'words'), SHOWN, ids=[f'{page}: {" ".join(words)[:60]}' for page, words in SHOWN])
def test_commands(page, words, capsys):
    """The command parses; nothing is run."""
    try:
        build_parser().parse_args(words)
    except SystemExit as stop:
        assert stop.code == 0, capsys.readouterr().err  # --help


def test_the_pages_show_commands():
    assert len(examples_in_help()) > 15 and len(SHOWN) > 50
    assert {words[0] for _, words in SHOWN} >= {'train', 'test', 'infer', 'plan', 'doctor'}


def test_what_is_found(tmp_path):
    (tmp_path / 'a.md').write_text('# One `two`: three\n[x](#one-two-three) [y](#gone) [z](b.md) [w](https://a.b)\n'
                                   '```bash\n$ X=1 mmkcla train a.py \\\n  --amp  # note\n'
                                   'python tools/analysis_tools/decay.py b\n'
                                   'mmkcla doctor --json > x\nls\n```\n```python\nmmkcla nothing\n```\n')
    assert broken_links(tmp_path / 'a.md') == ['#gone', 'b.md']
    assert commands((tmp_path / 'a.md').read_text()) == [
        ['train', 'a.py', '--amp'], ['analyse', 'decay', 'b'], ['doctor', '--json']]
