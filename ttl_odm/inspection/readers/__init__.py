"""Where evidence comes from, and only that: what is read is never written.

- `sql`: a SQL database, in transactions that it holds to reading; and declared SQLAlchemy models;
- `mongodb`: a MongoDB database, by what the role ``read`` may do.
"""
