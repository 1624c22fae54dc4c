"""The nightjar program: settings, command line, local services, event generator and replay."""
