"""Pure: from what the user wrote to what the server gets.

- `filters`: filters, rewritten so that they match live documents only, and what can be read from
  them.
- `lookups`: stages that go from parents to the documents that expire with them.
- `operators`: operators of an update, as the stages of a pipeline that does the same.
- `pipelines`: pipelines, rewritten so that they see live documents only, and stamp what they write.
- `stamps`: what writes carry so that a document's life starts again: ``_ts``, and ``_exp`` with
  it.
"""
