"""Other libraries: each module imports its library, and is itself imported only when it is used."""
