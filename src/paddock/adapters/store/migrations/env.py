"""What Alembic runs: revisions are applied on the connection that is handed over."""

from alembic import context

from paddock.adapters.store import schema, task_schema

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=task_schema.task.metadata,
    version_table=schema.VERSION_TABLE,
    render_as_batch=True,
)
with context.begin_transaction():
    context.run_migrations()
