"""Where evidence comes from, and only that: what is read is never written.

- `sql`: a SQL database, in transactions that it holds to reading;
- `sql_units`, `mongodb_units`: values that a policy reads in another unit than seconds;
- `mongodb`: a MongoDB database, by what the role ``read`` may do;
- `models`: SQLAlchemy's models as they are declared, without a database;
- `django`: Django's models, and their labels.
"""
