"""Where evidence comes from: databases and models. Readers never write.

- `sql`: a SQL database, in read-only transactions;
- `mongodb`: a MongoDB database, with the rights of the role ``read``;
- `models`: SQLAlchemy's models, without a database;
- `django`: Django's models, and their labels.

`sql` and `mongodb` also find values in another unit than the one in which a policy reads them.
"""
