"""Why a node is suspected: errors, sensitivities, weights, activations, and what to do about them.

It refuses to act: it advises.
"""
