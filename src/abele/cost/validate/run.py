"""Running cases: each to its family's runner; a case that fails says why and the others go on."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from abele.compile.cache import Cache
from abele.cost.validate import models, programs, stencils, vertices
from abele.cost.validate.cases import Case
from abele.cost.validate.outcome import RUNNERS, Context, NoRunner
from abele.cost.validate.summary import Row
from abele.errors import AbeleError

RUNNER_MODULES = (vertices, programs, stencils, models)
"""The modules whose runners are registered."""


def run_case(case: Case, context: Context) -> Row:
    """Predict one case. Never raises but for an interrupt: what goes wrong is the row's reason."""
    start = time.process_time()
    try:
        if case.family not in RUNNERS:
            raise NoRunner(f"there is no runner for the family {case.family!r}; there are {', '.join(RUNNERS)}")
        if not case.value:
            raise NoRunner("the published value is 0, of which there are no percents")
        outcome = RUNNERS[case.family](case, context)
        predicted = outcome.value(case.unit)
    except NoRunner as why:
        return Row(case, "no runner", reason=str(why))
    except AbeleError as error:
        return Row(case, "failed", reason=f"{type(error).__name__}: {error}", seconds=time.process_time() - start)
    except Exception as error:  # a user's chip or model may raise anything; one row must not end the others
        return Row(case, "failed", reason=f"{type(error).__name__}: {error}", seconds=time.process_time() - start)
    return Row(case, "predicted", predicted, outcome, seconds=time.process_time() - start)


def validate(
    cases: Sequence[Case], *, cache: Cache | None = None, tell: Callable[[str, str], None] | None = None
) -> list[Row]:
    """Predict all cases, in their order.

    Args:
        cache: where compiled programs are kept; ``None`` compiles afresh.
        tell: called with a case's id and the step under way.
    """
    context = Context(cache, tell or (lambda case, step: None))
    rows = []
    for i, case in enumerate(cases):
        context.tell(f"{i + 1}/{len(cases)} {case.id}", case.model)
        rows.append(run_case(case, context))
    return rows
