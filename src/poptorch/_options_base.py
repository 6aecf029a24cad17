"""The base of every group of options: named values, chained setters, freezing, and no silent mistakes."""

from __future__ import annotations

import copy
import enum
from collections.abc import Iterable, Mapping
from typing import Any

from abele.errors import suggest

from ._options_effects import note_no_effect

FROZEN = "Can't modify frozen Options"


class OptionsDict:
    """Named values that read as attributes.

    A value changes through :meth:`set` (which the documented setters call); an unknown name is an
    ``AttributeError`` that suggests the known ones; once frozen, every change is refused until the object is
    copied.
    """

    def __init__(self, **default_values: Any) -> None:
        object.__setattr__(self, "_values", dict(default_values))
        object.__setattr__(self, "_is_frozen", False)

    def set(self, **values: Any) -> None:
        """Change options that exist."""
        for name, value in values.items():
            self.checkIsFrozen(name)
            if name not in self._values:
                raise self._unknown(name)
            note_no_effect(self._group(), name, value, self._values[name])
            self._values[name] = value

    def createOrSet(self, **values: Any) -> None:
        """Change options, adding those that do not exist."""
        for name, value in values.items():
            self.checkIsFrozen(name)
            self._values[name] = value

    def exists(self, option: str) -> bool:
        """Whether there is an option of that name."""
        return option in self._values

    def deleteIfExists(self, option: str) -> None:
        """Remove an option."""
        self.checkIsFrozen(option)
        self._values.pop(option, None)

    def update(self, other: Mapping[str, Any]) -> dict[str, Any]:
        """A copy of ``other`` with these options added; a name that both have is an error."""
        twice = set(other) & set(self._values)
        if twice:
            raise ValueError(f"Options defined twice: {', '.join(sorted(twice))}.")
        return {**other, **self._values}

    def toDict(self) -> dict[str, Any]:
        """The options that are set, with enumerations as their numbers where they have any."""
        return {name: plain(value) for name, value in self._values.items() if value is not None}

    def checkIsFrozen(self, option: str | None = None) -> None:
        """Raise ``AttributeError`` when the options can no longer change."""
        if self._is_frozen:
            what = f" (tried to set {option})" if option else ""
            raise AttributeError(f"{FROZEN}{what}: they are in use by a model or a data loader. Change a clone().")

    def _parts(self) -> Iterable[OptionsDict]:
        """The groups of options inside this one."""
        return ()

    def _freeze(self) -> None:
        self._set_frozen(True)

    def _unfreeze(self) -> None:
        self._set_frozen(False)

    def _set_frozen(self, frozen: bool) -> None:
        object.__setattr__(self, "_is_frozen", frozen)
        for part in self._parts():
            part._set_frozen(frozen)

    def _group(self) -> str:
        return type(self).__name__.strip("_").removesuffix("Options")

    def _unknown(self, name: str) -> AttributeError:
        known = {n for n in [*self._values, *dir(type(self))] if not n.startswith("_")}
        message = f"{type(self).__name__} has no option {name!r}. {suggest(name, known)}".rstrip()
        return AttributeError(message, name="", obj=None)  # named, Python would add a suggestion of its own

    def __call__(self, option: str) -> Any:
        return getattr(self, option)

    def __getattr__(self, option: str) -> Any:
        values = self.__dict__.get("_values", {})
        if option in values:
            return values[option]
        if option.startswith("_"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {option!r}")
        raise self._unknown(option)

    def __setattr__(self, option: str, value: Any) -> None:
        if option.startswith("_"):
            object.__setattr__(self, option, value)
        else:
            self.set(**{option: value})

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        """A copy that can be changed, whether or not the original is frozen."""
        new = type(self).__new__(type(self))
        memo[id(self)] = new
        for name, value in self.__dict__.items():
            object.__setattr__(new, name, copy.deepcopy(value, memo))
        new._set_frozen(False)
        return new

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        for name, value in state.items():
            object.__setattr__(self, name, value)

    def _shown(self) -> list[str]:
        return [f"{name}={value!r}" for name, value in self._values.items()]

    def __repr__(self) -> str:
        return f"{type(self).__name__.strip('_')}({', '.join(self._shown())})"


def plain(value: Any) -> Any:
    """An option's value without enumeration types, for logs and for the executable's record."""
    return value.value if isinstance(value, enum.Enum) else value
