"""A guess of what untried points cost, from those that were tried: it only decides what is tried next.

The logarithms of the objective and of the fullest tile's bytes are fitted by ridge regression on the settings: numbers
by their logarithm and its square, names by an indicator, and the products of each with micro-batch and stages. The
objective is fitted against ``Space.prior``, so that the regression learns how far from that the machine is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from abele.tune.space import Point, Space
from abele.tune.trial import Trial

RIDGE = 0.03
"""Weight that keeps coefficients small where few points were tried."""

NUMBERS = ("batch", "stages", "replicas", "accumulate", "memory_proportion")
CROSSED = ("batch", "stages")


class Surrogate:
    """Fitted to ``trials``; asks nothing of them but that one could be compiled."""

    def __init__(self, space: Space, trials: Sequence[Trial]) -> None:
        self.space = space
        self._names = {name: values for name, values in space.values.items() if len(values) > 1 and name not in NUMBERS}
        x = self.features([t.point for t in trials])
        self._mean, scale = x.mean(axis=0), x.std(axis=0)
        self._scale = np.where(scale > 1e-9, scale, 1.0)
        goal = space.wanted.goal
        y = np.array(
            [(math.log(max(t.objective(goal), 1e-30) / space.prior(t.point)), math.log(max(t.max, 1))) for t in trials]
        )
        z = (x - self._mean) / self._scale
        self._offset = y.mean(axis=0)
        penalty = RIDGE * len(trials) * np.eye(z.shape[1])
        self._weights = np.linalg.solve(z.T @ z + penalty, z.T @ (y - self._offset))

    def features(self, points: Sequence[Point]) -> np.ndarray:
        """``float64[points, features]``."""
        numbers = {n: np.log2([float(getattr(p, n)) for p in points]) for n in NUMBERS}
        columns = [*numbers.values(), *(c**2 for c in numbers.values()), numbers["batch"] * numbers["stages"]]
        for name, values in self._names.items():
            for value in values[1:]:
                chosen = np.array([float(getattr(p, name) == value) for p in points])
                columns += [chosen, *(chosen * numbers[other] for other in CROSSED)]
        return np.stack(columns, axis=1)

    def guess(self, points: Sequence[Point]) -> tuple[np.ndarray, np.ndarray]:
        """Logarithms of the objective and of the fullest tile's bytes, each ``float64[points]``."""
        z = (self.features(points) - self._mean) / self._scale
        found = z @ self._weights + self._offset
        prior = np.log([self.space.prior(p) for p in points])
        return found[:, 0] + prior, found[:, 1]
