"""Every message in docs/troubleshooting/ is one that the source, or a library it names, really prints."""
import ast
import re
from functools import lru_cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
INDEX = ROOT / 'docs' / 'troubleshooting.md'
PAGES = sorted((ROOT / 'docs' / 'troubleshooting').glob('*.md'))
NOT_OURS = 'Installation and imports'  # messages of other packages, quoted under their exact text
PLACEHOLDER = re.compile(r'<[^<>]*>|…')


def rows() -> list[tuple[str, str]]:
    """The (section, message) of each row of all pages."""
    found, section = [], ''
    for line in (line for page in PAGES for line in page.read_text(encoding='utf-8').splitlines()):
        if line.startswith('## '):
            section = line[3:]
        elif match := re.match(r'\|\s*(`+)(.+?)\1\s*\|', line):
            found.append((section, match[2].strip().replace(r'\|', '|')))
    return found


@lru_cache
def source_text() -> str:
    """All string constants of the package; the values in an f-string become a NUL."""
    texts = []
    for path in sorted((ROOT / 'mmkcla').rglob('*.py')):
        tree = ast.parse(path.read_text(encoding='utf-8'))
        for node in ast.walk(tree):
            if isinstance(node, ast.JoinedStr):
                texts.append(''.join(str(part.value) if isinstance(part, ast.Constant) else '\0'
                                     for part in node.values))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                texts.append(node.value)
    return '\n'.join(texts)


def longest_fixed_part(message: str) -> str:
    return max((part.strip(' "\'()[],.;:') for part in PLACEHOLDER.split(message)), key=len)


@pytest.mark.parametrize(('section', 'message'), rows(), ids=[message[:60] for _, message in rows()])
def test_message_is_in_the_source(section, message):
    if section == NOT_OURS:
        pytest.skip('the text of another package')
    fixed = longest_fixed_part(message)
    assert len(fixed) >= 10, f'too little fixed text to find: {message}'
    assert fixed in source_text()


def test_the_index_links_every_section():
    assert len(PAGES) > 5
    links = re.findall(r'\(troubleshooting/([\w.-]+)#[\w-]+\)', INDEX.read_text(encoding='utf-8'))
    headings = [page.name for page in PAGES
                for _ in re.findall('^## ', page.read_text(encoding='utf-8'), re.MULTILINE)]
    assert sorted(links) == sorted(headings)  # tests/test_docs.py checks the anchors


@pytest.mark.parametrize('page', PAGES, ids=[page.stem for page in PAGES])
def test_pages_are_short(page):
    assert len(page.read_text(encoding='utf-8').splitlines()) < 200


def test_no_message_twice():
    messages = [message for _, message in rows()]
    assert len(messages) == len(set(messages))


def test_longest_fixed_part():
    assert longest_fixed_part("<file>: image <name> has no width; add it (<n> more)") == 'has no width; add it'
