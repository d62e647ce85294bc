"""Replicas of segments: a layout, and a replica that was built, say which tiles they hold."""

import json
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

_REPLICA = sa.table(
    "replica",
    sa.column("id", sa.Integer),
    sa.column("layout", sa.Text),
    sa.column("replica", sa.Text),
)
_JOB = sa.table("job", sa.column("id", sa.Integer), sa.column("request", sa.Text))


def upgrade() -> None:
    """Apply: no replica so far holds segments."""
    connection = op.get_bind()
    for row in connection.execute(sa.select(_REPLICA)).all():
        built = None if row.replica is None else json.loads(row.replica) | {"segments": None}
        _set(row.id, json.loads(row.layout) | {"segments": None}, built)


def downgrade() -> None:
    """Take back: replicas of segments are forgotten, for reads would find boxes in them."""
    connection = op.get_bind()
    for row in connection.execute(sa.select(_REPLICA)).all():
        layout = json.loads(row.layout)
        if layout.pop("segments", None) is not None:
            connection.execute(_REPLICA.delete().where(_REPLICA.c.id == row.id))
            continue
        built = None if row.replica is None else json.loads(row.replica)
        if built is not None:
            built.pop("segments", None)
        _set(row.id, layout, built)
    for row in connection.execute(sa.select(_JOB)).all():
        request = json.loads(row.request)
        of_row = _JOB.c.id == row.id
        if request.pop("segments", None) is not None:
            connection.execute(_JOB.delete().where(of_row))
            continue
        connection.execute(_JOB.update().where(of_row).values(request=json.dumps(request)))


def _set(replica_id: int, layout: dict[str, Any], built: dict[str, Any] | None) -> None:
    op.get_bind().execute(
        _REPLICA.update()
        .where(_REPLICA.c.id == replica_id)
        .values(layout=json.dumps(layout), replica=None if built is None else json.dumps(built))
    )
