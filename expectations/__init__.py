"""The quality gate: Great Expectations suites that the lake and a run must meet before anything is published."""
