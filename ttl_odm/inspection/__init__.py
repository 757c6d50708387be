"""What an existing schema says about expiry: evidence, guesses, and the declarations to paste.

- `evidence`: a table as it is, with a sample of its values;
- `names`: what the names of columns and tables say;
- `proposals`: from the one to a policy, with the reasons for it;
- `source`: a policy as Python source;
- `readers`: where the evidence comes from, a database or models. They only read.

The first four are pure: they know no database and no command line, and `ttl_odm.cli` shows what
they say.
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
