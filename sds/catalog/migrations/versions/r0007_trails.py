"""Trails: where the newest reads of each dataset lay, in order of time."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply: of reads counted so far no trail is known."""
    op.create_table(
        "trail",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("dataset_id", sa.Integer(), nullable=False),
        sa.Column("trail", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["dataset_id"],
            ["dataset.id"],
            name=op.f("fk_trail_dataset_id_dataset"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_trail")),
        sa.UniqueConstraint("dataset_id", name=op.f("uq_trail_dataset_id")),
    )


def downgrade() -> None:
    """Take back: patterns remain."""
    op.drop_table("trail")
