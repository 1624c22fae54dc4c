"""The stages that write results to the lake's tables and publish corrections."""
