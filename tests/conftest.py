"""Property tests draw the same examples on every machine, so a change is judged by what it changed.

`pytest --hypothesis-profile=search` draws fresh ones: run it to look for faults that nobody has met.
"""

from hypothesis import settings

settings.register_profile("repeatable", derandomize=True, database=None, deadline=None)
settings.register_profile("search", database=None, deadline=None)
settings.load_profile("repeatable")
