"""The test command: which runs of pytest and which checks there are, and how they share a machine.

| module | what is in it |
|---|---|
| `surroundings` | the environment variables that tests see, whoever runs them |
| `history` | what git knows: the number of the turn, and what has changed |
| `lots` | what is run: checks, and runs of pytest in an environment over some folders |
| `records` | what a lot has told of its tests so far |
| `slots` | how lots are run: two at a time, each slot with one set of servers |
| `report` | what people see meanwhile, and at the end |
| `command` | `dev.py test`, from its options to its exit status |
"""
