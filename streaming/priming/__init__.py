"""Priming (S5.7): versions of rules whose windows reach back before the state that would serve them."""
