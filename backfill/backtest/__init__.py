"""Draft and shadow rules over past days, compared with live rules and labels, and the report."""
