"""What is printed on a terminal: a console that escapes, tables, alerts as lines, stages with their progress."""
