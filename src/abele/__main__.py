"""``python -m abele``."""

from abele.cli import main

main()
