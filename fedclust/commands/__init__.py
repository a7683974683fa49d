"""The commands of fedclust, a module each."""

COMMANDS = {
    "run": "run a job or a sweep",
    "plan": "say how long a job or a sweep will take, from its first rounds",
    "tune": "search hyper-parameters on validation examples",
    "advise": "find out what the clients of your own data should train",
    "predict": "predict new rows with trained models",
    "report": "make tables and figures again from the result files",
    "list": "list the choices",
    "schema": "write a JSON Schema of config files, for editors",
    "data": "download data sets",
    "example": "write an example to start from",
    "benchmark": "pack or verify a method's jobs of the benchmark",
    "doctor": "show versions for bug reports, and which features lack something",
    "completion": "complete fedclust in bash, zsh or fish",
}
"""Every command by what it does; the module of its name has its `command`."""
