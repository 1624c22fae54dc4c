"""What keeps past days in order: pending days, repair of a damaged table, removal of staged folders."""
