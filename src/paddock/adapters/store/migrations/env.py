"""What Alembic runs: revisions are applied on the connection that is handed over."""

from alembic import context

from paddock.adapters.store import access_schema, schema, task_schema

# Tables are known once their modules are.
_TABLES = (access_schema.token, task_schema.task)

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=_TABLES[0].metadata,
    version_table=schema.VERSION_TABLE,
    render_as_batch=True,
)
with context.begin_transaction():
    context.run_migrations()
