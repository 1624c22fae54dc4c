"""What a run reads: events, versions of rules, the groups and spans that it judges, and what was there before."""
