"""How a class gets its policy.

- `declaration`: what a document class may declare, and how its policy gets on its collection.
- `enable`: `enable` and `disable`: policies for document classes of other packages.
- `mixin`: `TTLMixin`: the fields and methods of documents with a lifetime.
"""
