"""What must be published, and sums of replicas, without reading every row."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

_SOURCE = sa.table("source_file", sa.column("id"), sa.column("published"))
_DATASET = sa.table("dataset", sa.column("id"), sa.column("source_file_id"))
_REPLICA = sa.table(
    "replica",
    sa.column("dataset_id"),
    sa.column("state"),
    sa.column("layout"),
    sa.column("replica"),
    sa.column("stored_bytes"),
    sa.column("n_tiles"),
    sa.column("has_file"),
)


def upgrade() -> None:
    """Apply: tables of an older SDS are written again, by and by."""
    # Tables that others refer to are not made anew: SQLite would take their rows for deleted.
    op.add_column("source_file", sa.Column("published", sa.Text(), nullable=True))
    op.create_index(op.f("ix_source_file_published"), "source_file", ["published"])
    serving = (
        sa.select(_DATASET.c.source_file_id)
        .join(_REPLICA, _REPLICA.c.dataset_id == _DATASET.c.id)
        .where(_REPLICA.c.state.in_(["active", "verified", "damaged"]))
    )
    op.execute(_SOURCE.update().where(_SOURCE.c.id.in_(serving)).values(published="0"))

    with op.batch_alter_table("replica", recreate="always") as batch:
        batch.drop_index("ix_replica_state")
        for name, kind, before in (
            ("stored_bytes", sa.BigInteger(), "size_bytes"),
            ("n_tiles", sa.Integer(), "stored_bytes"),
            ("has_file", sa.Boolean(), "n_tiles"),
        ):
            batch.add_column(sa.Column(name, kind, nullable=True), insert_after=before)
    op.execute(
        _REPLICA.update().values(
            stored_bytes=sa.func.json_extract(_REPLICA.c.replica, "$.stored_bytes"),
            n_tiles=sa.func.coalesce(
                sa.func.json_array_length(_REPLICA.c.layout, "$.segments.tiles"), 0
            ),
            has_file=sa.true(),
        )
    )
    with op.batch_alter_table("replica") as batch:
        batch.alter_column("n_tiles", existing_type=sa.Integer(), nullable=False)
        batch.alter_column("has_file", existing_type=sa.Boolean(), nullable=False)
        batch.create_index(
            op.f("ix_replica_state"),
            ["state", "has_file", "size_bytes", "stored_bytes", "n_tiles"],
        )

    op.create_index(op.f("ix_pattern_n_reads"), "pattern", ["n_reads", "elapsed_s", "time_lost_s"])

    op.add_column("calibration", sa.Column("changed_ns", sa.BigInteger(), nullable=True))

    op.create_table(
        "stamp",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_stamp")),
    )


def downgrade() -> None:
    """Take back: an older SDS goes through all rows."""
    op.drop_table("stamp")
    op.drop_column("calibration", "changed_ns")
    op.drop_index(op.f("ix_pattern_n_reads"), "pattern")
    with op.batch_alter_table("replica") as batch:
        batch.drop_index(op.f("ix_replica_state"))
        for name in ("has_file", "n_tiles", "stored_bytes"):
            batch.drop_column(name)
        batch.create_index(op.f("ix_replica_state"), ["state"])
    op.drop_index(op.f("ix_source_file_published"), "source_file")
    op.drop_column("source_file", "published")
