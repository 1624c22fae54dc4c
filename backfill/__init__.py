"""Re-evaluation of past days, reconciliation with what the stream announced, and corrections."""
