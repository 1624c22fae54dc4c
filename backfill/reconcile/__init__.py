"""The stage that compares the stream's latest revisions with the truth and finds causes."""
