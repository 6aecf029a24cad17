"""Reports: draw a profile, and compute nothing that is not in its JSON. On the console, and as one HTML file."""

from abele.report.console import comparison, summary
from abele.report.html import html_report

__all__ = ["comparison", "html_report", "summary"]
