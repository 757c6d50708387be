"""Migrations: what ``makemigrations`` writes, `AddTTL`, and the way back come to one schema."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from django.core.management import call_command
from django.db import IntegrityError, connections, migrations, models, transaction
from django.db.migrations.autodetector import MigrationAutodetector
from django.db.migrations.state import ModelState, ProjectState
from django.db.migrations.writer import MigrationWriter

from tests.django_app.data import raw
from tests.django_app.shop.models import Session
from ttl_odm.django import AddTTL, TTLField
from ttl_odm.django.time import clock
from ttl_odm.errors import TTLConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.backends import Backend

PLAIN = migrations.CreateModel(
    "Box", [("id", models.BigAutoField(primary_key=True)), ("name", models.CharField(max_length=9))]
)


@pytest.fixture(autouse=True)
def _clean(backend: Backend) -> Iterator[None]:
    yield
    raw("DROP TABLE IF EXISTS shop_box")


def state_of(*operations: Any) -> ProjectState:
    """The state that operations of the app lead to."""
    state = ProjectState()
    for operation in operations:
        operation.state_forwards("shop", state)
    return state


def run(operations: Sequence[Any], *, atomic: bool, backwards: bool = False) -> None:
    """Run operations as a migration does."""
    connection = connections["default"]
    steps, state = [], ProjectState()
    for operation in operations:
        before = state.clone()
        operation.state_forwards("shop", state)
        steps.append((operation, before, state.clone()))
    with connection.schema_editor(atomic=atomic) as editor:
        for operation, before, after in steps:
            operation.database_forwards("shop", editor, before, after)
    if backwards:
        operation, before, after = steps[-1]
        with connection.schema_editor(atomic=atomic) as editor:
            operation.database_backwards("shop", editor, after, before)


def detected() -> list[Any]:
    """What ``makemigrations`` writes for a model that begins to inherit from TTLModel."""
    before = state_of(PLAIN)
    after = before.clone()
    ttl = ModelState.from_model(Session)
    box = after.models["shop", "box"]
    fields = {**box.fields, **{name: ttl.fields[name] for name in ("last_modified", "ttl")}}
    indexes = [index.clone() for index in ttl.options["indexes"]]
    for index in indexes:
        index.name = index.name.replace("shop_session", "shop_box")
    after.remove_model("shop", "box")
    after.add_model(ModelState("shop", "Box", fields, {**box.options, "indexes": indexes}))
    (migration,) = MigrationAutodetector(before, after)._detect_changes()["shop"]
    source = MigrationWriter(migration).as_string()
    assert "ttl_odm.django.LastModifiedField(db_column='_ts')" in source
    return list(migration.operations)


def schema() -> Any:
    """Columns, indexes and checks of the table, as the database knows them."""
    connection = connections["default"]
    with connection.cursor() as cursor:
        described = connection.introspection.get_table_description(cursor, "shop_box")
        constraints = connection.introspection.get_constraints(cursor, "shop_box")
    columns = {each.name: (each.type_code, each.null_ok, str(each.default)) for each in described}
    indexes = {
        name: (each["columns"], each["unique"])
        for name, each in constraints.items()
        if each["index"] and not each["primary_key"]
    }
    checks = sorted(str(each["columns"]) for each in constraints.values() if each["check"])
    return columns, indexes, checks


def test_all_ways_lead_to_one_schema(backend: Backend) -> None:
    written = detected()
    run([PLAIN, *written], atomic=True)
    found = schema()
    assert set(found[1]) == {"ix_shop_box_ttl_inherited", "ix_shop_box_ttl_own"}
    assert len(found[2]) == 1
    raw("DROP TABLE shop_box")
    run([PLAIN, AddTTL("box")], atomic=False)
    added = schema()
    assert added == found
    assert state_of(PLAIN, AddTTL("box")) == state_of(PLAIN, *written)
    if backend.database != "sqlite":
        assert _indexes_are_used()


def _indexes_are_used() -> bool:
    """The statements of the sweeper spell what the indexes are made of."""
    connection = connections["default"]
    if connection.vendor == "mysql":
        return bool(raw("SELECT _ttl_inh, _ttl_own FROM shop_box WHERE 1 = 0") == [])
    end = clock.family_of(connection).own_end.format(stamp='"_ts"', ttl='"ttl"')
    with transaction.atomic():
        raw("SET LOCAL enable_seqscan = off")
        plan = raw(f"EXPLAIN SELECT * FROM shop_box WHERE ttl > 0 AND {end} < now()")  # noqa: S608
    return "ix_shop_box_ttl_own" in str(plan)


def test_rows_that_are_there_begin_their_life_at_the_migration(backend: Backend) -> None:
    for ttl in ([AddTTL("box")], detected()):
        run([PLAIN], atomic=True)
        raw("INSERT INTO shop_box (name) VALUES ('a')")
        operations = [PLAIN, *ttl]
        state = ProjectState()
        with connections["default"].schema_editor(atomic=False) as editor:
            for operation in operations:
                before = state.clone()
                operation.state_forwards("shop", state)
                if operation is not PLAIN:
                    operation.database_forwards("shop", editor, before, state)
        row = state.apps.get_model("shop", "Box").objects.get()
        ago = clock.database_now(connections["default"]) - row.last_modified
        assert ago.total_seconds() < 60
        raw("INSERT INTO shop_box (name) VALUES ('raw')")
        assert raw("SELECT COUNT(_ts) FROM shop_box") == [(2,)]
        raw("DROP TABLE shop_box")


def test_the_way_back_leaves_nothing(backend: Backend) -> None:
    run([PLAIN], atomic=True)
    before = schema()
    raw("DROP TABLE shop_box")
    run([PLAIN, AddTTL("box")], atomic=False, backwards=True)
    assert schema() == before
    raw("DROP TABLE shop_box")
    run([PLAIN, AddTTL("box", sweep="scan")], atomic=False, backwards=True)
    assert schema() == before


def test_without_indexes_there_are_none(backend: Backend) -> None:
    run([PLAIN, AddTTL("box", sweep="scan")], atomic=False)
    assert schema()[1] == {}


@pytest.mark.databases("sqlite")
def test_migrations_name_public_paths_only(backend: Backend) -> None:
    """What users' migrations name has to be there for as long as these are."""
    migration = migrations.Migration("0002_ttl", "shop")
    migration.operations = [*detected(), AddTTL("box")]  # the latter as in a squashed migration
    source = MigrationWriter(migration, include_header=False).as_string()
    assert set(re.findall(r"ttl_odm[\w.]*", source)) == {
        "ttl_odm.django",
        "ttl_odm.django.AddTTL",
        "ttl_odm.django.LastModifiedField",
        "ttl_odm.django.TTLField",
        "ttl_odm.django.TTLIndex",
    }
    namespace: dict[str, Any] = {}
    exec(source, namespace)  # noqa: S102 (as Django does it)
    state = state_of(PLAIN, *namespace["Migration"].operations[:-1])
    assert state == state_of(PLAIN, *detected())
    assert not MigrationAutodetector(state, state_of(PLAIN, AddTTL("box")))._detect_changes()


def test_makemigrations_replaces_the_check_of_an_earlier_release(
    backend: Backend, django_queries: Any
) -> None:
    earlier = detected()
    for operation in earlier:
        if isinstance(operation, migrations.AddField) and operation.name == "ttl":
            operation.field = TTLField(null=True, blank=True)
    before, after = state_of(PLAIN, *earlier), state_of(PLAIN, *detected())
    (migration,) = MigrationAutodetector(before, after)._detect_changes()["shop"]
    (operation,) = migration.operations
    assert isinstance(operation, migrations.AlterField)
    run([PLAIN, *earlier], atomic=True)
    made = schema()
    with django_queries() as queries, connections["default"].schema_editor() as editor:
        operation.database_forwards("shop", editor, before, after)
    assert schema()[:2] == made[:2]
    if backend.database == "sqlite":
        with pytest.raises(IntegrityError, match="CHECK"):
            raw("INSERT INTO shop_box (name, ttl) VALUES ('a', 'x')")
    else:
        assert not any(query["sql"].startswith("ALTER") for query in queries)


@pytest.mark.databases("sqlite")
def test_two_lines_replace_the_check_of_an_earlier_add_ttl(backend: Backend) -> None:
    earlier = detected()
    for operation in earlier:
        if isinstance(operation, migrations.AddField) and operation.name == "ttl":
            operation.field = TTLField(null=True, blank=True)
    run([PLAIN, *earlier], atomic=True)
    raw("INSERT INTO shop_box (name, ttl) VALUES ('a', 20.5)")
    raw("DELETE FROM shop_box")
    state = state_of(PLAIN, AddTTL("box"))  # what the migrations say
    for says in ({}, {"checks_type": True}):
        before, field = state.clone(), TTLField(null=True, blank=True, **says)
        operation = migrations.AlterField("box", "ttl", field)
        operation.state_forwards("shop", state)
        with connections["default"].schema_editor() as editor:
            operation.database_forwards("shop", editor, before, state)
    assert not MigrationAutodetector(state, state_of(PLAIN, AddTTL("box")))._detect_changes()
    with pytest.raises(IntegrityError, match="CHECK"):
        raw("INSERT INTO shop_box (name, ttl) VALUES ('a', 20.5)")


@pytest.mark.databases("sqlite")
def test_makemigrations_finds_nothing_new_in_this_app(backend: Backend) -> None:
    call_command("makemigrations", "ttl_odm", check=True, dry_run=True, verbosity=0)


def test_a_foreign_key_that_will_keep_expired_rows_is_warned_of(backend: Backend) -> None:
    lid = migrations.CreateModel(
        "Lid",
        [
            ("id", models.BigAutoField(primary_key=True)),
            ("box", models.ForeignKey("shop.box", models.PROTECT)),
        ],
    )
    try:
        with pytest.warns(UserWarning, match=r"shop.Lid.box .* __ttl__ = Follows\('box'\)"):
            run([PLAIN, lid, AddTTL("box")], atomic=False)
    finally:
        raw("DROP TABLE IF EXISTS shop_lid")


@pytest.mark.databases("postgres")
def test_inside_a_transaction_it_says_what_to_do(backend: Backend) -> None:
    with pytest.raises(TTLConfigurationError, match="atomic = False"):
        run([PLAIN, AddTTL("box")], atomic=True)


@pytest.mark.databases("postgres")
def test_outside_of_transactions_indexes_are_built_concurrently(
    backend: Backend, django_queries: Any
) -> None:
    with django_queries() as queries:
        run([PLAIN, *detected()], atomic=False)
    made = [each["sql"] for each in queries if each["sql"].startswith("CREATE INDEX")]
    assert len(made) == 2
    assert all("CONCURRENTLY" in sql for sql in made)


@pytest.mark.databases("mariadb", "mysql")
def test_nothing_is_added_by_copying_the_table_or_keeping_writers_out(
    backend: Backend, django_queries: Any
) -> None:
    """Each statement says what it may do, or is refused."""
    run([PLAIN], atomic=True)
    raw("INSERT INTO shop_box (name) VALUES ('a')")
    with django_queries() as queries:
        add_to_box(AddTTL("box"))
    altered = [each["sql"] for each in queries if each["sql"].startswith("ALTER TABLE")]
    assert len(altered) == 7
    assert all("ALGORITHM=INSTANT" in sql or "LOCK=NONE" in sql for sql in altered)
    assert set(schema()[1]) == {"ix_shop_box_ttl_inherited", "ix_shop_box_ttl_own"}


@pytest.mark.parametrize("copies", [False, True])
def test_a_table_is_copied_for_its_check_where_that_is_asked_for(
    backend: Backend, *, copies: bool
) -> None:
    run([PLAIN], atomic=True)
    raw("INSERT INTO shop_box (name) VALUES ('a')")
    operation = AddTTL("box", copy_table=copies)
    add_to_box(operation)
    assert operation.deconstruct()[2].get("copy_table", False) is copies
    if backend.database == "mysql" and not copies:
        raw("UPDATE shop_box SET ttl = 0")
    else:
        with pytest.raises(IntegrityError), transaction.atomic():
            raw("UPDATE shop_box SET ttl = 0")


def add_to_box(operation: AddTTL) -> None:
    """Run it on the table as it is."""
    before = state_of(PLAIN)
    after = before.clone()
    operation.state_forwards("shop", after)
    with connections["default"].schema_editor(atomic=False) as editor:
        operation.database_forwards("shop", editor, before, after)


def test_historical_models_see_every_row(backend: Backend) -> None:
    from tests.django_app.data import kill

    Session.objects.create(pk=1, key="a")
    kill(Session, [1])
    state = ProjectState.from_apps(Session._meta.apps)
    old = state.apps.get_model("shop", "Session")
    assert old._base_manager.count() == 1
    row = old._base_manager.get()
    row.number = 5
    row.save()
    assert not Session.objects.exists()  # it wrote _ts as it had read it
    assert raw("SELECT number FROM shop_session") == [(5,)]
