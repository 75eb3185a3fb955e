"""Mutants of solutions that do the same as the solution, and why.

`EQUIVALENT[check][mutant]` is the reason; `make bank` holds that each listed
mutant exists and is accepted, and that no other is.
"""

EQUIVALENT: dict[str, dict[str, str]] = {}
