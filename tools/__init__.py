"""What writes the generated parts of the docs."""
