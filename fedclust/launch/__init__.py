"""From what is typed, or called in Python, to jobs: checks, composition, launchers."""
