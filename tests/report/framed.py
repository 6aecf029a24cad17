"""A page like a notebook's, with what a report shows there: ``python -m tests.report.framed FILE``."""

import sys

from abele import report

print(f"<!doctype html><title>A notebook</title>{report.open(sys.argv[1])._repr_mimebundle_()['text/html']}")
