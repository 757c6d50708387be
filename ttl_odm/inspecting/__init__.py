"""What an existing schema says about expiry: evidence, guesses, and the declarations to paste.

- `evidence`: a table as it was found, with a sample of its values;
- `names`: what the names of columns and tables tell;
- `proposing`: from the one to a policy, with the reasons for it;
- `writing`: a policy as Python source;
- `reading_sql`, `reading_mongodb`: where the evidence comes from. They only read.

The first four are pure: they know no database and no command line, and `ttl_odm.cli` shows what
they say.
"""

from ttl_odm.inspecting.evidence import Field, Kind, Table
from ttl_odm.inspecting.proposing import Confidence, Proposal, Verdict, propose
from ttl_odm.inspecting.writing import as_source, declarations

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
