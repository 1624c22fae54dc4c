"""Re-evaluation of past days, reconciliation with the stream's alerts, and corrections."""
