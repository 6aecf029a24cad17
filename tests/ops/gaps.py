"""Known gaps of the operations, each with its reason. A test that meets one is expected to fail; when it passes, the
record is stale and must go."""

from __future__ import annotations

REFERENCE: dict[str, str] = {}
"""Operation or case id -> why the reference does not agree with torch."""

GRADIENT: dict[str, str] = {
    "zeta": "torch has the derivative by the second operand alone, as we do, and raises for the first",
}
"""Operation or case id -> why its gradient does not agree with torch."""

PLAN: dict[str, str] = {}
"""Operation or case id -> why its plan does not give the reference's numbers."""
