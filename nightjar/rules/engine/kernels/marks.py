"""The bits of predicates, in words per row."""

from __future__ import annotations

from nightjar.rules.engine.compiled import kernel


@kernel
def set_bits(words, first, known, needed, begin, places):
    """For every mark places[j] = (word, bit) set the bit of row first + i where known[n, i] is 1 for each n of
    needed[begin[j]:begin[j + 1]], and clear it where not."""
    for j in range(len(places)):
        word, bit = places[j, 0], places[j, 1]
        for i in range(known.shape[1]):
            marked = 1
            for at in range(begin[j], begin[j + 1]):
                marked &= known[needed[at], i]
            words[first + i, word] = (words[first + i, word] & ~(1 << bit)) | (marked << bit)
