"""An application whose command sweeps."""

from flask import Flask
from sqlalchemy import create_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from ttl_odm.integrations.flask import TTL
from ttl_odm.sqlalchemy import TTLMixin


class Base(DeclarativeBase):
    pass


class Cart(TTLMixin, Base):
    __tablename__ = "carts"
    __ttl__ = 3600
    id: Mapped[int] = mapped_column(primary_key=True)


engine = create_engine("sqlite:///flask.sqlite3")
Base.metadata.create_all(engine)
app = Flask(__name__)
TTL(app, engine, Base)
finished = app.test_cli_runner().invoke(args=["ttl", "sweep"])
assert finished.exit_code == 0, finished.output
engine.dispose()
