"""Speed of the engines on fixed workloads, beside a plain loop and the arithmetic limit."""
