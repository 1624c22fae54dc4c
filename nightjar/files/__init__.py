"""Events in files: reading them as a stream declares them, and evaluating rules over them."""
