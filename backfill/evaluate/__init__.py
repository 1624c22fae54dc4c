"""The stages that find the touched groups of a day and evaluate them."""
