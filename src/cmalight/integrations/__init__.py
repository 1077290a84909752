"""Other libraries: each module imports its library, and nothing imports the module before it is asked for."""
