"""Pure: from what the user wrote to what the server gets.

- `filters`: filters and pipelines, rewritten so that they see live documents only.
- `merge`: ``$out`` and ``$merge`` into a collection whose documents expire: writes, by a pipeline.
- `projections`: how MongoDB reads a projection, in ``find`` and in ``$project``.
- `stamps`: what writes carry so that a document's life starts again: ``_ts``, and ``_exp`` with
  it.
"""
