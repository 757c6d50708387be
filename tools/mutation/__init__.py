"""Mutation testing of the adapters: `python3 tools/dev.py mutate --adapters`.

mutmut starts a process for each mutant, which is too slow for tests that import SQLAlchemy, Django
and Beanie. Here pytest collects the tests once, records which lines each of them runs, and forks
for each mutant: the child replaces the code of one function and runs the tests that execute the
changed line, until one fails. Processes that a test starts run the unchanged library.

| module | what it has |
|---|---|
| mutants | which changes there are: mutmut's operators, and deleted statements |
| known | changes made by hand, each of which must be caught |
| equivalent | changes that no test can notice, with the reasons |
| recording | which test runs which lines |
| server | the pytest plugin: forks, patches, runs |
| report | the verdicts, and the table |
| `__main__` | the command line |
"""
