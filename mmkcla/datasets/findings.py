"""Findings of a data check: what is wrong, how often, and where first."""
from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from ..errors import UserError
from ..utils.text import listed, note, plural

PLACES = 3  # places named in a message


@dataclass
class Finding:
    """One kind of fault or remark about a data set.

    Attributes:
        text: one line; says what is wrong and what to do.
        refuse: whether a run would give a wrong result or fail, so that it must not start.
        count: number of files, lines or classes concerned.
        places: their names; a message shows the first three.
    """

    text: str
    refuse: bool = False
    count: int = 1
    places: list[str] = field(default_factory=list)

    def line(self) -> str:
        """The finding on one line, with its first places."""
        return f'{self.text}: {listed(self.places, PLACES)}' if self.places else self.text


def turned_unseen(images: Sequence[str]) -> Finding:
    """The remark on images whose EXIF orientation does not show in their size, unlike their masks'."""
    return Finding(f'{plural(len(images), "image")} turned or mirrored by the EXIF orientation, with a mask of the '
                   'same size without one; if the pictures of mmkcla data verify show that the masks do not fit, save '
                   'the images upright', False, len(images), list(images))


def act_on(findings: Iterable[Finding], where: str) -> None:
    """Print the remarks as notes, then refuse the run for the first fault.

    Args:
        findings: the findings of one data set.
        where: its key in the config.

    Raises:
        UserError: one of them refuses the run; the message has the number of further faults.
    """
    findings = list(findings)
    for finding in findings:
        if not finding.refuse:
            note(f'{where}: {finding.line()}')
    faults = [finding for finding in findings if finding.refuse]
    if faults:
        more = f' (and {len(faults) - 1} more; see mmkcla data verify)' if len(faults) > 1 else ''
        raise UserError(f'{where}: {faults[0].line()}{more}')
