"""The schema that the paths read: declared anew for each world, with whatever filters there.

`make_models` takes the mixin that gives a class its lifetime and a declarative base, so that the
same schema is available with ttl_odm, with nothing at all, and with other packages. No path and no
model may depend on which of them it is.

Foreign keys are declared but not created: a row that has expired, and is gone from the world
without expired rows, may have live rows that refer to it. Those of `tests.leaks.models_references`
are.
"""

from __future__ import annotations

from typing import Annotated, Any

from sqlalchemy import (
    Column,
    ForeignKey,
    ForeignKeyConstraint,
    Integer,
    String,
    Table,
    func,
    select,
)
from sqlalchemy.ext.associationproxy import association_proxy
from sqlalchemy.ext.declarative import ConcreteBase
from sqlalchemy.ext.hybrid import hybrid_property
from sqlalchemy.orm import (
    Mapped,
    aliased,
    column_property,
    join,
    mapped_column,
    query_expression,
    relationship,
)

from tests.leaks.models_generated import office
from tests.leaks.models_keys import theatre
from tests.leaks.models_references import ENFORCED, declare_firms, declare_folders
from tests.leaks.models_unusual import hotel, share_tables

DAY = 86400
"""The default ttl of every class that has one, but for some single-table subclasses."""

Key = Annotated[int, mapped_column(primary_key=True, autoincrement=False)]
Text = Annotated[str, mapped_column(String(40))]


class Models:
    """The classes of one schema, as attributes."""

    def __init__(self, mixin: type, base: Any) -> None:
        self.Base = base
        for declare in (
            _shop,
            _ties,
            _catalogue,
            _documents,
            _events,
            _assets,
            hotel,
            theatre,
            office,
        ):
            vars(self).update(declare(mixin, base))
        vars(self).update(declare_firms(mixin, base))
        vars(self).update(declare_folders(mixin, base))
        _expressions(self)
        _over_a_join(self)
        share_tables(self)
        base.registry.configure()
        _leave_foreign_keys_out(base.metadata)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)


def make_models(mixin: type, base: Any) -> Models:
    """Declare the schema.

    Args:
        mixin: what a class that has a ttl inherits besides the base; it takes the default ttl as
            the class argument ``ttl``.
        base: a declarative base with a registry of its own.
    """
    return Models(mixin, base)


def _shop(mixin: type, base: Any) -> dict[str, Any]:
    class Region(base):
        __tablename__ = "regions"

        id: Mapped[Key]
        name: Mapped[Text]
        customers = relationship("Customer", back_populates="region", order_by="Customer.id")
        tag_labels = association_proxy("customers", "tag_labels")

    class Customer(mixin, base, ttl=DAY):
        __tablename__ = "customers"

        id: Mapped[Key]
        name: Mapped[Text]
        region_id: Mapped[int | None] = mapped_column(ForeignKey("regions.id"))
        referrer_id: Mapped[int | None] = mapped_column(ForeignKey("customers.id"))

        region = relationship("Region", back_populates="customers")
        referrer = relationship("Customer", remote_side="Customer.id", back_populates="referred")
        referred = relationship("Customer", back_populates="referrer", order_by="Customer.id")
        orders = relationship("Order", back_populates="customer", order_by="Order.id")
        orders_dynamic = relationship("Order", lazy="dynamic", viewonly=True)
        orders_write_only = relationship("Order", lazy="write_only", viewonly=True)
        big_orders = relationship(
            "Order",
            primaryjoin="and_(Order.customer_id == Customer.id, Order.total >= 20)",
            viewonly=True,
        )
        profile = relationship("Profile", back_populates="customer", uselist=False)
        tags = relationship("Tag", secondary="customer_tags", back_populates="customers")
        tags_dynamic = relationship("Tag", secondary="customer_tags", lazy="dynamic", viewonly=True)
        memberships = relationship("Membership", back_populates="customer")
        clubs = relationship("Club", secondary="memberships", viewonly=True)
        documents = relationship("Document", back_populates="customer", order_by="Document.id")

        extra = query_expression()
        tag_labels = association_proxy("tags", "label")
        totals = association_proxy("orders", "total")
        bio = association_proxy("profile", "bio")
        club_names = association_proxy("memberships", "club_name")

        @hybrid_property
        def spent(self) -> int:
            return sum(order.total for order in self.orders)

        @spent.inplace.expression
        @classmethod
        def _spent_in_sql(cls) -> Any:
            order = cls.orders.property.mapper.class_
            return (
                select(func.coalesce(func.sum(order.total), 0))
                .where(order.customer_id == cls.id)
                .scalar_subquery()
            )

    class Profile(mixin, base, ttl=DAY):
        __tablename__ = "profiles"

        id: Mapped[Key]
        bio: Mapped[Text]
        customer_id: Mapped[int | None] = mapped_column(ForeignKey("customers.id"))
        customer = relationship("Customer", back_populates="profile")

    class Order(mixin, base, ttl=DAY):
        __tablename__ = "orders"

        id: Mapped[Key]
        number: Mapped[Text]
        total: Mapped[int]
        customer_id: Mapped[int | None] = mapped_column(ForeignKey("customers.id"))
        customer = relationship("Customer", back_populates="orders")
        items = relationship("Item", back_populates="order", order_by="Item.id")

    class Item(mixin, base, ttl=DAY):
        __tablename__ = "items"

        id: Mapped[Key]
        sku: Mapped[Text]
        quantity: Mapped[int]
        order_id: Mapped[int | None] = mapped_column(ForeignKey("orders.id"))
        order = relationship("Order", back_populates="items")
        # Plain SQLAlchemy would hide a row whose partner is gone; the right answer has it.
        eager_order = relationship(
            "Order",
            lazy="joined",
            innerjoin=getattr(mixin, "joins_inner", False),
            viewonly=True,
        )

    return {
        "Region": Region,
        "Customer": Customer,
        "Profile": Profile,
        "Order": Order,
        "Item": Item,
    }


def _ties(mixin: type, base: Any) -> dict[str, Any]:
    """Many-to-many, with the ttl on both sides, on one side, and on the table in between."""
    customer_tags = Table(
        "customer_tags",
        base.metadata,
        Column("customer_id", ForeignKey("customers.id"), primary_key=True, autoincrement=False),
        Column("tag_id", ForeignKey("tags.id"), primary_key=True, autoincrement=False),
    )
    archive = Table(
        "archive",
        base.metadata,
        Column("id", Integer, primary_key=True, autoincrement=False),
        Column("name", String(40)),
    )

    class Tag(mixin, base, ttl=DAY):
        __tablename__ = "tags"

        id: Mapped[Key]
        label: Mapped[Text]
        customers = relationship("Customer", secondary=customer_tags, back_populates="tags")

    class Membership(mixin, base, ttl=DAY):
        __tablename__ = "memberships"

        id: Mapped[Key]
        customer_id: Mapped[int] = mapped_column(ForeignKey("customers.id"))
        club_id: Mapped[int] = mapped_column(ForeignKey("clubs.id"))
        customer = relationship("Customer", back_populates="memberships")
        club = relationship("Club")
        club_name = association_proxy("club", "name")

    class Club(base):
        __tablename__ = "clubs"

        id: Mapped[Key]
        name: Mapped[Text]
        customers = relationship("Customer", secondary="memberships", viewonly=True)
        by_join = relationship("Membership", lazy="joined", viewonly=True)
        by_select_in = relationship("Membership", lazy="selectin", viewonly=True)
        by_subquery = relationship("Membership", lazy="subquery", viewonly=True)
        at_once = relationship("Membership", lazy="immediate", viewonly=True)
        never = relationship("Membership", lazy="raise", viewonly=True)

    return {
        "Tag": Tag,
        "Membership": Membership,
        "Club": Club,
        "customer_tags": customer_tags,
        "archive": archive,
    }


def _catalogue(mixin: type, base: Any) -> dict[str, Any]:
    class Category(mixin, base, ttl=DAY):
        __tablename__ = "categories"

        id: Mapped[Key]
        name: Mapped[Text]
        parent_id: Mapped[int | None] = mapped_column(ForeignKey("categories.id"))
        parent = relationship("Category", remote_side="Category.id", back_populates="children")
        children = relationship("Category", back_populates="parent", order_by="Category.id")
        eager_children = relationship(
            "Category", lazy="joined", join_depth=2, viewonly=True, order_by="Category.id"
        )

    return {"Category": Category}


def _documents(mixin: type, base: Any) -> dict[str, Any]:
    """Joined inheritance: the lifetime is in the base's table."""

    class Document(mixin, base, ttl=DAY):
        __tablename__ = "documents"

        id: Mapped[Key]
        kind: Mapped[Text]
        title: Mapped[Text]
        customer_id: Mapped[int | None] = mapped_column(ForeignKey("customers.id"))
        customer = relationship("Customer", back_populates="documents")
        __mapper_args__ = {"polymorphic_on": "kind", "polymorphic_identity": "document"}

    class Invoice(Document):
        __tablename__ = "invoices"

        id: Mapped[int] = mapped_column(
            ForeignKey("documents.id"), primary_key=True, autoincrement=False
        )
        amount: Mapped[int]
        lines = relationship("Line", back_populates="invoice", order_by="Line.id")
        __mapper_args__ = {"polymorphic_identity": "invoice", "polymorphic_load": "selectin"}

    class CreditNote(Invoice):
        __tablename__ = "credit_notes"

        # Named otherwise than the columns it hangs on, as tables of old often are.
        note_id: Mapped[int] = mapped_column(
            ForeignKey("invoices.id"), primary_key=True, autoincrement=False
        )
        reason: Mapped[Text]
        __mapper_args__ = {"polymorphic_identity": "credit_note"}

    class Estimate(Invoice):
        """Single-table under a joined class."""

        __mapper_args__ = {"polymorphic_identity": "estimate"}

    class Letter(Document):
        __tablename__ = "letters"

        id: Mapped[int] = mapped_column(
            ForeignKey("documents.id"), primary_key=True, autoincrement=False
        )
        body: Mapped[Text]
        __mapper_args__ = {"polymorphic_identity": "letter", "polymorphic_load": "inline"}

    class Line(base):
        __tablename__ = "lines"

        id: Mapped[Key]
        text: Mapped[Text]
        invoice_id: Mapped[int] = mapped_column(ForeignKey("invoices.id"))
        invoice = relationship("Invoice", back_populates="lines")

    return {
        "Document": Document,
        "Invoice": Invoice,
        "CreditNote": CreditNote,
        "Estimate": Estimate,
        "Letter": Letter,
        "Line": Line,
    }


def _events(mixin: type, base: Any) -> dict[str, Any]:
    """Single-table inheritance: some subclasses have a default ttl of their own."""

    class Event(mixin, base, ttl=DAY):
        __tablename__ = "events"

        id: Mapped[Key]
        kind: Mapped[Text]
        name: Mapped[Text]
        __mapper_args__ = {"polymorphic_on": "kind", "polymorphic_identity": "event"}

    class Login(Event):
        __mapper_args__ = {"polymorphic_identity": "login"}

    class Audit(Event, ttl=-1):
        __mapper_args__ = {"polymorphic_identity": "audit"}

    class Debug(Event, ttl=DAY // 2):
        __mapper_args__ = {"polymorphic_identity": "debug"}

    class Trace(Debug):
        """Inherits the default of `Debug`, not that of `Event`."""

        __mapper_args__ = {"polymorphic_identity": "trace"}

    class SlowTrace(Trace, ttl=10 * DAY):
        __mapper_args__ = {"polymorphic_identity": "slow_trace"}

    return {
        "Event": Event,
        "Login": Login,
        "Audit": Audit,
        "Debug": Debug,
        "Trace": Trace,
        "SlowTrace": SlowTrace,
    }


def _assets(mixin: type, base: Any) -> dict[str, Any]:
    """Concrete inheritance: each class has a table of its own, and a lifetime in it."""

    class Asset(ConcreteBase, mixin, base, ttl=DAY):
        __tablename__ = "assets"

        id: Mapped[Key]
        name: Mapped[Text]
        __mapper_args__ = {"polymorphic_identity": "asset", "concrete": True}

    class Car(Asset):
        __tablename__ = "cars"

        id: Mapped[Key]
        name: Mapped[Text]
        seats: Mapped[int]
        __mapper_args__ = {"polymorphic_identity": "car", "concrete": True}

    class Truck(Asset):
        __tablename__ = "trucks"

        id: Mapped[Key]
        name: Mapped[Text]
        tons: Mapped[int]
        __mapper_args__ = {"polymorphic_identity": "truck", "concrete": True}

    return {"Asset": Asset, "Car": Car, "Truck": Truck}


def _expressions(models: Models) -> None:
    """Attributes that are subqueries over other classes' tables."""
    region, customer, order = models.Region, models.Customer, models.Order
    region.customer_count = column_property(
        select(func.count(customer.id))
        .where(customer.region_id == region.id)
        .correlate_except(customer)
        .scalar_subquery()
    )
    customer.order_count = column_property(
        select(func.count(order.id))
        .where(order.customer_id == customer.id)
        .correlate_except(order)
        .scalar_subquery(),
        deferred=True,
    )
    place = func.row_number().over(partition_by=order.customer_id, order_by=order.total.desc())
    ranked = select(order, place.label("place")).subquery()
    ranked_order = aliased(order, ranked)
    customer.best_orders = relationship(
        ranked_order,
        primaryjoin=(ranked_order.customer_id == customer.id) & (ranked.c.place == 1),
        viewonly=True,
    )


def _over_a_join(models: Models) -> None:
    """A relationship whose secondary is not a table, but a join."""
    region, customer, order, item = models.Region, models.Customer, models.Order, models.Item
    region.items = relationship(
        item,
        secondary=join(customer, order, customer.id == order.customer_id),
        primaryjoin=region.id == customer.region_id,
        secondaryjoin=item.order_id == order.id,
        viewonly=True,
    )


def _leave_foreign_keys_out(metadata: Any) -> None:
    for table in metadata.tables.values():
        for constraint in () if ENFORCED in table.info else table.constraints:
            if isinstance(constraint, ForeignKeyConstraint):
                constraint.ddl_if(callable_=_nowhere)


def _nowhere(*_: Any, **__: Any) -> bool:
    return False
