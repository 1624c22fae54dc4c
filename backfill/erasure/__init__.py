"""Erasing a person (S15): whose data it is, where it is, how it is removed from the lake, and what is left elsewhere.

Two parts are elsewhere, by the order of imports: `inputs/forgotten.py`, by which a run recognises alerts that depend on
erased events, and `nightjar/operations/forgetting.py`, which holds the lock on the lake and asks Kafka about its topics
with the program's clients.
"""
