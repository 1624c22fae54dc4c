"""The program: settings, command line, local services, and the simulator and replay that feed them."""
