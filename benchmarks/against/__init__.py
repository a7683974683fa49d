"""The same workloads in other simulators, each in an environment of its own."""
