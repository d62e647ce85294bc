"""Replicas of every storage and region: what tells two apart becomes one value."""

import json

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

_REPLICA = sa.table(
    "replica",
    sa.column("id", sa.Integer),
    sa.column("dataset_id", sa.Integer),
    sa.column("axis_order", sa.Text),
    sa.column("layout", sa.Text),
    sa.column("replica", sa.Text),
)
_DATASET = sa.table("dataset", sa.column("id", sa.Integer), sa.column("extent", sa.Text))
# Fields that a replica gained.
_GAINED = (
    "region",
    "chunk_shape",
    "filters",
    "stored_bytes",
    "decode_s_per_byte",
    "source_chunk_shape",
    "source_stored_bytes",
    "source_decode_s_per_byte",
)


def upgrade() -> None:
    """Apply: every replica so far is contiguous and whole."""
    with op.batch_alter_table("replica", recreate="always") as batch:
        batch.add_column(sa.Column("layout", sa.Text(), nullable=True), insert_after="dataset_id")
    connection = op.get_bind()
    rows = connection.execute(
        sa.select(_REPLICA.c.id, _REPLICA.c.axis_order, _REPLICA.c.replica, _DATASET.c.extent).join(
            _DATASET, _DATASET.c.id == _REPLICA.c.dataset_id
        )
    ).all()
    for row in rows:
        # What was built says which extent its source had; the dataset may have another by now.
        built = None if row.replica is None else json.loads(row.replica)
        extent = json.loads(row.extent) if built is None else built["extent"]
        region = {"start": [0] * len(extent), "extent": extent}
        layout = {
            "order": json.loads(row.axis_order),
            "chunk_shape": None,
            "filters": [],
            "region": region,
        }
        if built is not None:
            built |= {
                "region": region,
                "chunk_shape": None,
                "filters": [],
                "stored_bytes": built["size_bytes"],
                "decode_s_per_byte": 0.0,
                "source_chunk_shape": None,
                "source_stored_bytes": 0,
                "source_decode_s_per_byte": 0.0,
            }
        connection.execute(
            _REPLICA.update()
            .where(_REPLICA.c.id == row.id)
            .values(layout=json.dumps(layout), replica=None if built is None else json.dumps(built))
        )
    with op.batch_alter_table("replica") as batch:
        batch.drop_column("axis_order")
        batch.alter_column("layout", existing_type=sa.Text(), nullable=False)


def downgrade() -> None:
    """Take back: chunked and partial replicas are forgotten, for nothing could tell them apart."""
    with op.batch_alter_table("replica", recreate="always") as batch:
        batch.add_column(
            sa.Column("axis_order", sa.Text(), nullable=True), insert_after="dataset_id"
        )
    connection = op.get_bind()
    rows = connection.execute(
        sa.select(_REPLICA.c.id, _REPLICA.c.layout, _REPLICA.c.replica, _DATASET.c.extent).join(
            _DATASET, _DATASET.c.id == _REPLICA.c.dataset_id
        )
    ).all()
    for row in rows:
        layout = json.loads(row.layout)
        built = None if row.replica is None else json.loads(row.replica)
        extent = json.loads(row.extent) if built is None else built["extent"]
        if layout["chunk_shape"] is not None or layout["region"]["extent"] != extent:
            connection.execute(_REPLICA.delete().where(_REPLICA.c.id == row.id))
            continue
        if built is not None:
            for name in _GAINED:
                built.pop(name, None)
        connection.execute(
            _REPLICA.update()
            .where(_REPLICA.c.id == row.id)
            .values(
                axis_order=json.dumps(layout["order"]),
                replica=None if built is None else json.dumps(built),
            )
        )
    with op.batch_alter_table("replica") as batch:
        batch.drop_column("layout")
        batch.alter_column("axis_order", existing_type=sa.Text(), nullable=False)
