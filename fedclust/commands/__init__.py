"""The commands of fedclust, a module each."""

COMMANDS = {
    "run": "run a job or a sweep",
    "tune": "choose hyper-parameters by validation examples",
    "report": "tables and figures again, from the files alone",
    "list": "what there is to choose",
    "data": "download data sets",
    "example": "write an example to start from",
    "doctor": "what a bug report needs, and what is missing for what",
    "completion": "complete fedclust in bash, zsh or fish",
}
"""Every command by what it does; the module of its name has its `command`."""
