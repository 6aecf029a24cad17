"""The closed list of errors that Abele raises on purpose.

Every class says when it is raised, shows input that raises it, and gives the remedy. A message is one
paragraph: what is wrong, where in the user's code, what to do. ``str(error)`` is that paragraph.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class AbeleError(Exception):
    """Base of every error that Abele raises on purpose.

    Args:
        what: the thing that is wrong, by name.
        where: the user's source line (``file.py:12 in encoder.layer.0``), or empty when there is none.
        remedy: what to do about it, or empty when ``what`` already says so.
    """

    exit_status = 2

    def __init__(self, what: str, *, where: str = "", remedy: str = "") -> None:
        self.what, self.where, self.remedy = what, where, remedy
        place = f" At {where}." if where else ""
        todo = f" {remedy}" if remedy else ""
        end = "" if what.endswith(("?", "!")) else "."
        super().__init__(f"{what.rstrip('.')}{end}{place}{todo}")


class Unsupported(AbeleError):
    """The program uses something that Abele does not do.

    Raised, for example, by ``torch.linalg.eig(x)`` in a captured model. Remedy: the message names the
    operation, the line and, where there is one, an equivalent that works.
    """


class DataDependent(AbeleError):
    """Python asked for the value of a tensor while the model was being captured.

    Raised by ``if x.sum() > 0:`` or ``x + y * y.item()``. The value is not known when a program is compiled,
    so the branch would be frozen. Remedy: ``torch.where``, ``poptorch.cond``, or arithmetic on the tensor.
    """


class InvalidOperand(AbeleError):
    """An operation was given operands or attributes that its type rule refuses.

    Raised by a matrix product of ``[2, 3]`` with ``[4, 5]``. Remedy: the message names the operand and the rule.
    """


class InvalidOption(AbeleError):
    """An option, a system, a model or a file name that is not known, or a value outside its range.

    Raised by ``abele profile resnet51``. Remedy: the message lists or suggests the names that exist.
    """


class BadCache(AbeleError):
    """A cache entry could not be read back; it is moved aside and the program is compiled again.

    Raised when a file under the cache directory was cut short or edited: after ``truncate -s 10 ENTRY``, for
    example. Remedy: none is needed, since the entry is made anew; a disk that damages files should be looked at.
    """


class BadReport(AbeleError):
    """A file is no report of Abele, or not one that this Abele reads: empty, cut short, of another kind, or newer.

    Raised by ``abele view photo.png``, or of a report after ``truncate -s 5000 profile.pop``. Remedy: make the report
    again, or read it with the Abele that the message names.
    """


class FloatingPointFault(AbeleError):
    """An operation made a NaN or an infinity out of finite numbers, and the run was asked to stop at that.

    Raised by ``x.log()`` of a negative ``x`` after ``options.Precision.enableFloatingPointExceptions(True)``. Remedy:
    the message names the operation and the line; keep its operands in its domain, or half below 65,504.
    """


class LostProcess(AbeleError):
    """Another process of a run over several processes has died, hangs, has left, or does something else.

    Raised when one of the processes of ``poprun --num-instances 2 python train.py`` is killed: the message names its
    rank. Remedy: look at what that process said last, then start all of them again.
    """


class UserProgramError(AbeleError):
    """The user's own program, model file or description of a machine raised while Abele ran it.

    Raised by ``abele profile mine.py:net`` when ``mine.py`` holds ``1 / 0``; the original error is chained. Remedy:
    mend the line that the message names.
    """


class Bug(AbeleError):
    """A rule of the graph or the schedule was broken: a fault of Abele, with the rule and the place named.

    Raised, for example, by ``abele.ir.check`` of a graph that uses a value before it is made, which no captured
    model gives, or by a plan that leaves an element of its result unwritten. Remedy: report it with the program.
    """


def suggest(name: str, known: Iterable[str]) -> str:
    """A sentence that helps after a mistyped ``name``: the closest of ``known``, or the whole list if short."""
    names = sorted(set(known) - {""})
    if not names:
        return ""
    close = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    if close:
        alike = [difflib.SequenceMatcher(None, name, c).ratio() for c in close]
        close = [c for c, a in zip(close, alike, strict=True) if a > max(alike) - 0.2]  # none beside a much closer one
        return f"Did you mean {' or '.join(repr(c) for c in close)}?"
    return f"Known: {', '.join(names)}." if len(names) <= 40 else ""
