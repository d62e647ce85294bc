"""Modes of the evaluator by directory, file and dataset."""

import sqlalchemy as sa
from alembic import op

revision = "0004_policy"
down_revision = "0003_priority"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply."""
    op.create_table(
        "policy",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("dataset", sa.Text(), nullable=False),
        sa.Column("mode", sa.Text(), nullable=False),
        sa.Column("set_ns", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_policy")),
        sa.UniqueConstraint("path", "dataset", name=op.f("uq_policy_path")),
    )


def downgrade() -> None:
    """Take back."""
    op.drop_table("policy")
