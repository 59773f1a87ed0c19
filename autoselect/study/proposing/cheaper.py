"""Whether any candidate costs less than all units in integers, as far as forecasts tell. Knows costs, no scores."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from autoselect.study.proposing import mutation
from autoselect.study.proposing.costs import CostModel
from autoselect.study.proposing.mask import Mask
from autoselect.study.proposing.problem import Problem


def cheaper_than_integers(problem: Problem, steps: Mapping[str, float]) -> Mask | None:
    """A candidate that has less of one of the run's costs than the one with all atoms in integers.

    An op without an integer kernel cuts that one, and where its neighbours leave integers beside it there may be fewer
    pieces. So each atom by itself is asked for, and each stretch of atoms that lies between those that are never in
    integers, in each state.

    Returns:
        One that the target takes; None if there is none.
    """
    integers, atoms = Mask(), range(len(problem.atoms))
    never = sum(1 << i for i in atoms if problem.key(integers.put(1 << i, 0)) == problem.key(integers))
    stretches = problem.islands(problem.everything & ~never)
    whole = [problem.in_state(stretch, place) for stretch in stretches for place in range(len(problem.states))]
    near = [mask for mask in (*mutation.single_flips(integers, problem), *whole) if problem.accepts(mask)]
    costs = np.column_stack(CostModel(problem, []).expected([integers, *near]))
    least = costs[0] - [steps.get(column, 0.0) for column in problem.costs]
    return next((mask for mask, own in zip(near, costs[1:], strict=True) if np.any(own < least)), None)
