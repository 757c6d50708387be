"""Pure functions: from what the user wrote to what the server gets.

- `filters`: filters rewritten to match live documents only, and what can be read from filters.
- `lookups`: stages that go from parents to the documents that expire with them.
- `operators`: an update's operators as the stages of an equivalent pipeline.
- `pipelines`: pipelines rewritten to see live documents only, and to stamp what they write.
- `stamps`: what writes carry to restart a document's lifetime: ``_ts``, and ``_exp`` with it.
"""
