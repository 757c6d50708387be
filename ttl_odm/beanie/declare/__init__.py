"""How a class gets its policy.

- `checks`: what a document class may declare, checked when it is made and when it gets its
  collection.
- `enable`: `enable` and `disable`: a policy on document classes that aren't ours, their source
  untouched.
- `mixin`: `TTLMixin`: what a Beanie document gets, and what one does with its lifetime.
"""
