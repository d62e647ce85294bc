"""Advice on sorting tables for stated queries, kept as that on layouts is."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply: none was kept so far."""
    op.create_table(
        "query_recommendation",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("dataset_id", sa.Integer(), nullable=False),
        sa.Column("created_ns", sa.BigInteger(), nullable=False),
        sa.Column("recommendation", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["dataset_id"], ["dataset.id"], name=op.f("fk_query_recommendation_dataset_id_dataset")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_query_recommendation")),
    )
    op.create_index(
        op.f("ix_query_recommendation_dataset_id"),
        "query_recommendation",
        ["dataset_id"],
        unique=False,
    )


def downgrade() -> None:
    """Take back: the advice can be asked for again."""
    op.drop_table("query_recommendation")
