"""Reads that people state."""

import sqlalchemy as sa
from alembic import op

revision = "0006_stated_reads"
down_revision = "0005_pinned"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply."""
    op.create_table(
        "stated_reads",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("dataset_id", sa.Integer(), nullable=False),
        sa.Column("selection", sa.Text(), nullable=False),
        sa.Column("n_reads_per_day", sa.BigInteger(), nullable=False),
        sa.Column("stated_ns", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["dataset_id"],
            ["dataset.id"],
            name=op.f("fk_stated_reads_dataset_id_dataset"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_stated_reads")),
        sa.UniqueConstraint("dataset_id", "selection", name=op.f("uq_stated_reads_dataset_id")),
    )


def downgrade() -> None:
    """Take back."""
    op.drop_table("stated_reads")
