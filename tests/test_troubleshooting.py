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


def pages_text() -> str:
    return '\n'.join(page.read_text(encoding='utf-8') for page in PAGES).replace(r'\|', '|')


def rows() -> list[tuple[str, str]]:
    """The (section, message) of each row of all pages."""
    found, section = [], ''
    for line in pages_text().splitlines():
        if line.startswith('## '):
            section = line[3:]
        elif match := re.match(r'\|\s*(`+)(.+?)\1\s*\|', line):
            found.append((section, match[2].strip()))
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


# Messages that need no row, since the line itself has what a row would say
SELF_EXPLAINING = {
    'what to do': r'(?:[;:,?.]|, or) (?:\0|--\S+|`)?(?:first |either )?(?:add|check|choose|combine|convert|correct'
                  r'|create|declare|delete|download|export|fix|give|inherit|install|leave|load|lower|make|move|name|pass'
                  r'|pip|prepare|put|reinstall|remove|rename|repeat|report|restore|run|save|scale|see|set|shorten'
                  r'|start|test|try|unpack|use|wait|write)\b',
    'what the value must be': r'\b(?:must|takes|needs?|is for|expected|is not a probability|is not a number)\b',
    'which values exist': r'choose one of|one of:|available:|known are|there are |the stages are',
    'named twice': r'more than once|there twice',
    'a file that is not there': r'\bno (?:such )?(?:[\w-]+ )?(?:file|folder|checkpoint|config|image or folder)\b',
    'options that exclude each other': r'cannot (?:both )?be (?:used|combined|set)\b|not both',
}


def user_errors() -> list[tuple[str, str]]:
    """The place and the text of every error that users see as one line; a NUL in place of each value."""
    found = []
    for path in sorted((ROOT / 'mmkcla').rglob('*.py')):
        for node in ast.walk(ast.parse(path.read_text(encoding='utf-8'))):
            if isinstance(node, ast.Call) and node.args and ast.unparse(node.func).rpartition('.')[2] in (
                    'UserError', 'NonFiniteError', 'UnusableCheckpoint'):
                found += [(f'{path.relative_to(ROOT)}:{node.lineno}', text) for text in texts(node.args[0])]
    return found


def texts(node: ast.expr) -> list[str]:
    if isinstance(node, ast.Constant):
        return [str(node.value)]
    if isinstance(node, ast.JoinedStr):
        return [''.join(str(part.value) if isinstance(part, ast.Constant) else '\0' for part in node.values)]
    if isinstance(node, ast.BinOp):
        return [left + right for left in texts(node.left) for right in texts(node.right)]
    if isinstance(node, ast.IfExp):
        return texts(node.body) + texts(node.orelse)
    return ['\0']


def without_row(errors: list[tuple[str, str]], pages: str) -> list[str]:
    missing = []
    for place, text in errors:
        fixed = [part.strip(' "\'()[],.;:') for part in text.split('\0')]
        fixed = [part for part in fixed if len(part) >= 10]  # none: the words come from elsewhere
        if fixed and not (max(fixed, key=len) in pages or (len(fixed[0]) > 13 and fixed[0] in pages)) and not any(
                re.search(kind, text) for kind in SELF_EXPLAINING.values()):
            missing.append(f'{place}: {text}'.replace('\0', '<>'))
    return missing


def test_every_error_has_a_row_or_explains_itself():
    errors = user_errors()
    assert len(errors) > 600
    assert without_row(errors, pages_text()) == []


def test_an_error_without_a_row_is_found():
    errors = [('a.py:1', '\0: the colour of the moon is \0'), ('a.py:2', '\0: \0'), ('a.py:3', 'size=\0 must be even')]
    assert without_row(errors, 'the colour of the sun is') == ['a.py:1: <>: the colour of the moon is <>']
    assert without_row(errors, '`<file>: the colour of the moon is <colour>`') == []
    assert texts(ast.parse("'a' + (f'b{c}' if d else e)", mode='eval').body) == ['ab\0', 'a\0']


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
