"""What a label can say, apart from labels.py, because the command line's help needs it at once."""

from enum import StrEnum


class Label(StrEnum):
    """What an alert was. UNSURE: nobody can say; it takes back an earlier label."""

    FRAUD = "fraud"
    LEGITIMATE = "legitimate"
    UNSURE = "unsure"
