"""How a class gets its policy.

- `enable`: `enable` and `disable`: a policy on a class or Table that isn't ours, without changing
  its source.
- `mapper`: binding a declared ``__ttl__`` to its table, the moment the class is mapped.
- `mixin`: `TTLMixin`: the two contract columns, and methods for a row's lifetime.
"""
