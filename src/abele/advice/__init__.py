"""Advice: changes to a program that make it fit or make it faster, each compiled and charged before it is given.

``advise`` takes a ``Program`` (its profile, its settings, how to compile it with others, how to say the command that
applies them) and gives ``Advice``. For what does not fit: what takes less tile memory, alone and, where that is not
enough, together. For what fits: what its profile says the time goes to decides which changes are worth a compile.
"""

from abele.advice.advise import BUDGET, advise
from abele.advice.compiled import of_compiled
from abele.advice.fit import least
from abele.advice.records import DEFAULTS, Advice, Program, profile_command

__all__ = ["BUDGET", "DEFAULTS", "Advice", "Program", "advise", "least", "of_compiled", "profile_command"]
