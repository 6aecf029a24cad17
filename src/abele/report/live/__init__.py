"""A run that goes on, followed through the file that it writes (``abele.events``), for readers of its own computer.

``tail`` reads the file as it grows; ``run`` keeps what it says, once for all readers, and gives it to each as
server-sent events; ``metrics`` are its totals for Prometheus, and ``advice`` is what its figures suggest. All this is
done in another process than the run's, which therefore knows nothing of readers.
"""

from abele.report.live.run import FollowedRun
from abele.report.live.shown import ShownRun

__all__ = ["FollowedRun", "ShownRun"]
