"""How a class gets its policy.

- `classes`: what is asked of every document class as Beanie gives it a collection.
- `declaration`: what a document class may declare, and how its policy gets on its collection.
- `enable`: `enable` and `disable`: a policy on document classes that aren't ours, their source
  untouched.
- `mixin`: `TTLMixin`: what a Beanie document gets, and what one does with its lifetime.
"""
