"""What an existing schema says about expiry: evidence, guesses, and the declarations to paste.

- `evidence`: a table as it is, with a sample of its values;
- `names`: what the names of columns and tables suggest;
- `proposals`: policies from this evidence, with reasons;
- `source`: a policy as Python source;
- `readers`: where the evidence comes from, a database or models. They only read.

The first four are pure: they know neither databases nor the command line. `ttl_odm.cli` prints the
proposals.
"""

from ttl_odm.inspection.evidence import Field, Kind, Table
from ttl_odm.inspection.proposals import Confidence, Proposal, Verdict, propose
from ttl_odm.inspection.source import as_source, declarations

__all__ = [
    "Confidence",
    "Field",
    "Kind",
    "Proposal",
    "Table",
    "Verdict",
    "as_source",
    "declarations",
    "propose",
]
