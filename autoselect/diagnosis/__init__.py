"""Why a node is suspected: errors, sensitivities, weights, activations, and what to do about them.

It advises and never acts.
"""
