"""Re-evaluation of past days, reconciliation with what the stream said, and corrections."""
