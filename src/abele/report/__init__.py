"""Reports: draw what cost charged, and compute nothing that is not in it. On the console, and in the browser.

``open`` shows a report's file in a notebook; ``shown.py`` is what is shown, ``server.py`` and ``saved.py`` bring it
into a browser, ``store/`` is the file.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from abele.report.console import comparison, summary

if TYPE_CHECKING:
    from abele.report.shown import Shown

__all__ = ["comparison", "open", "summary"]


def open(path: str | Path, compare: str | Path | None = None) -> Shown:
    """A report's file (or the folder that it is in) for a notebook, which shows it as a cell's result.

    Args:
        compare: another report, the base: what is shown is how the first one differs from it.

    Raises:
        InvalidOption, BadReport: a file is missing or no report.
    """
    from abele.report.shown import Shown

    return Shown(Path(path), *([] if compare is None else [Path(compare)]))
