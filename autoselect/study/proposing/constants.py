"""The numbers that the default proposer was tuned by. Knows no model and no search.

All were chosen by hand on ``experiments/search_benchmark``; ``experiments/surrogate_constants`` tries others.
They are read where they are used, as ``constants.NAME``, so that they can be changed in one place.
"""

from __future__ import annotations

# The surrogate of the divergence (surrogate).
PRIOR_SD = 1.2
"""Deviation of the log of a term around its prior: probes on few samples are off by a factor of three now and then."""
OTHER_SHARE = 0.1
"""A unit's error power in another state is expected to be this share of that in integers, where nobody tried it."""
REPAIRED_SD = 0.7
"""Deviation of what another set of repairs does to the log of all terms of a state."""
IN_SEQUENCE = -0.2
"""What correcting biases in sequence is expected to do to them."""
IN_SEQUENCE_SD = 0.3
"""How unsure that is, as a deviation."""
REPAIRED_SPREAD = 0.2
"""How much candidates differ in what their repairs do, as a deviation."""
TWINS = 0.9
"""Correlation of what the sum leaves over of candidates that differ in their repairs alone."""
NOISE_SD = 0.08
"""Deviation of log divergences that no term of the Gaussian process explains."""
UNIT_SD = 0.10
"""Deviation that each unit's term of the Gaussian process gives."""
TYPE_SD = 0.10
"""Deviation that each op type's term gives."""
PAIR_SD = 0.10
"""Deviation that pairs of neighbours on different sides give."""
ALIKE_SD = 0.35
"""Deviation of the term that candidates share that are alike."""
SCALES = (0.5, 1.0, 2.0)
"""Factors of the four deviations above; the likeliest is taken."""
LENGTHS = (0.1, 0.3)
"""Share of the units that differ at which candidates are no longer alike; the likeliest is taken."""
CAPPED = (0.5, 0.75, 0.9, 1.0)
"""Divergences may end a little above these quantiles of those seen, or nowhere."""
LEAST_CAP = 0.5
"""Outputs that are wrong altogether have an error of about their own power; less than this is no end."""
CAP_ROOM = 1.03
"""How far above the quantile the end lies, as a factor."""
LEAST_FREE = 0.2
"""Beside the cap divergences vary less than elsewhere, by at most this factor."""
ABOVE_CAP = 30.0
"""A probe at the cap may stand for a term of up to so many times the cap."""

# The link from divergence to loss (hypervolume_gain).
NEAR = 0.15
"""Candidates whose log divergences are so far apart still say something of each other's losses."""
BELOW = 3.0
"""A divergence smaller by this much on the log scale than any seen is taken to lose nothing."""

# What like candidates lose beyond that (likeness).
ALIKE_SHARES = (0.5, 0.9)
"""Shares of the link's residual variance that alike candidates may have in common; the likelier one is taken."""
CLEARLY = 4.0
"""Log likelihood by which alikeness must explain residuals better than chance does."""
FURTHEST_LEFT = 3.0
"""Spreads; one loss beyond that counts as that far."""

# Which candidates fail (failures).
FAILED = 12
"""The newest failed candidates that are learned from, at most."""
FACTS = 1000
"""The most telling of what failed candidates have in common, at most: all pairs of these may be the cause."""

# The proposer (surrogate_proposer).
CHILDREN = 160
"""New proposals an ask; they stay, so that later asks choose among all of them."""
RUNGS = 64
"""Prefixes of a ranking, evenly spread where it is longer."""
CLIMBED = 2
"""Steps of a climb from the best proposal, at most."""
FLIPPED = 32
"""Neighbours that are weighed at each step of a climb, drawn at random where there are more."""
LARGE = 256
"""From this count of units on, all counts above are halved: forecasts take longer on larger graphs."""
POOL = 1200
"""Proposals that are weighed at an ask, at most; the better half stays when there are more."""
PARENTS = 40
"""Proposals of the last ask that are bred from."""
PART_NOISE = 0.1
"""Deviation of a log divergence that half of the samples gave; none where all were run."""
ENUMERATED = 12
"""Up to this count of units all sets of units are proposals."""
OPENING = (0.25, 0.5, 0.75)
"""Shares of the units, most sensitive first, that the first candidates leave out; and of what members of the front
leave out, noisiest first, that are tried in the last state."""
END_SHARE = 0.15
"""Share of the budget, its end, in which members of the front are tried with biases corrected in sequence."""
LEARNED = 300
"""Candidates that the surrogate learns from, at most: the time that this takes grows with their number cubed."""
UNDER_WAY = 32
"""An ask chooses one more candidate, for later asks, for each so many under way: else some of many workers wait."""

RECOMMENDING = 4
"""One in so many asks is for what lowers the penalty of the recommended candidate, not for what widens the front."""
LEAST_LOWERED = 1e-3
"""By so much it must be expected to lower that penalty to be worth an ask, in shares of the exact candidate's."""

# Moves from one proposal to another (mutation).
CROSSED_SHARE = 0.25
"""Share of the children that are crossed from two parents."""
LAST_MOVE = 0.6
"""Probability that no further move follows one; two are made at least."""
REPAIRED_SHARE = 0.15
"""Share of the children, where there are several sets of repairs, that have one at random and not their parent's."""
RESTATED_SHARE = 0.5
"""Share of the children, where there are several states, in which something changes from one to another."""
ISLAND_SHARE = 0.5
"""Share of these in which a whole island changes rather than one unit."""

# Costs that are measured (costs).
RIDGE = 1.0
"""Weight of the prior that a unit costs the same on either side, in measured candidates."""
LEAST_COST = 0.5
"""No candidate is believed to cost less than this share of the least cost that was measured."""
