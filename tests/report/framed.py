"""Pages of a report as a test wants them: ``python -m tests.report.framed FILE`` is like a notebook's, and with a
number of bytes it is a saved page that has no more of them."""

import sys
from pathlib import Path

from abele import report
from abele.report.saved import saved_page
from abele.report.shown import Shown

if len(sys.argv) > 2:
    print(saved_page(Shown(Path(sys.argv[1])), largest=int(sys.argv[2])))
else:
    shown = report.open(sys.argv[1])._repr_mimebundle_()
    print(f"<!doctype html><title>A notebook</title>{shown['text/html']}")
