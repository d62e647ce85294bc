"""The tables of the first release."""

import sqlalchemy as sa
from alembic import op

revision = "0001_initial"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply."""
    op.create_table(
        "calibration",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("mount_point", sa.Text(), nullable=False),
        sa.Column("device", sa.BigInteger(), nullable=False),
        sa.Column("created_ns", sa.BigInteger(), nullable=False),
        sa.Column("calibration", sa.Text(), nullable=False),
        sa.Column("changed_ns", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_calibration")),
    )
    op.create_index(
        "ix_calibration_mount_point_created_ns", "calibration", ["mount_point", "created_ns"]
    )
    op.create_table(
        "event",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("time_ns", sa.BigInteger(), nullable=False),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("subject_id", sa.BigInteger(), nullable=True),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("numbers", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_event")),
    )
    op.create_index(op.f("ix_event_time_ns"), "event", ["time_ns"])
    op.create_table(
        "job",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("request", sa.Text(), nullable=False),
        sa.Column("progress", sa.Float(), nullable=False),
        sa.Column("attempts", sa.BigInteger(), nullable=False),
        sa.Column("error", sa.Text(), nullable=False),
        sa.Column("result", sa.Text(), nullable=True),
        sa.Column("cancel_requested", sa.Boolean(), nullable=False),
        sa.Column("created_ns", sa.BigInteger(), nullable=False),
        sa.Column("started_ns", sa.BigInteger(), nullable=True),
        sa.Column("finished_ns", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_job")),
    )
    op.create_index(op.f("ix_job_state"), "job", ["state"])
    op.create_table(
        "source_file",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("identity", sa.Text(), nullable=False),
        sa.Column("seen_ns", sa.BigInteger(), nullable=False),
        sa.Column("published", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_source_file")),
        sa.UniqueConstraint("path", name=op.f("uq_source_file_path")),
    )
    op.create_index(op.f("ix_source_file_published"), "source_file", ["published"])
    op.create_table(
        "spool_file",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("inode", sa.Text(), nullable=False),
        sa.Column("offset_bytes", sa.BigInteger(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("complete", sa.Boolean(), nullable=False),
        sa.Column("n_reads", sa.BigInteger(), nullable=False),
        sa.Column("dropped_reads", sa.BigInteger(), nullable=False),
        sa.Column("changed_ns", sa.BigInteger(), nullable=False),
        sa.Column("problem", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_spool_file")),
        sa.UniqueConstraint("name", "inode", name=op.f("uq_spool_file_name")),
    )
    op.create_table(
        "stamp",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_stamp")),
    )
    op.create_table(
        "dataset",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("source_file_id", sa.Integer(), nullable=False),
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("extent", sa.Text(), nullable=False),
        sa.Column("element_size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("storage", sa.Text(), nullable=False),
        sa.Column("data_offset_bytes", sa.BigInteger(), nullable=True),
        sa.Column("chunk_shape", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(
            ["source_file_id"],
            ["source_file.id"],
            name=op.f("fk_dataset_source_file_id_source_file"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_dataset")),
        sa.UniqueConstraint("source_file_id", "path", name=op.f("uq_dataset_source_file_id")),
    )
    op.create_index(op.f("ix_dataset_source_file_id"), "dataset", ["source_file_id"])
    op.create_table(
        "pattern",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("dataset_id", sa.Integer(), nullable=False),
        sa.Column("shape", sa.Text(), nullable=False),
        sa.Column("n_reads", sa.BigInteger(), nullable=False),
        sa.Column("bytes_read", sa.BigInteger(), nullable=False),
        sa.Column("elapsed_s", sa.Float(), nullable=False),
        sa.Column("time_lost_s", sa.Float(), nullable=False),
        sa.Column("first_ns", sa.BigInteger(), nullable=False),
        sa.Column("last_ns", sa.BigInteger(), nullable=False),
        sa.Column("pattern", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["dataset_id"], ["dataset.id"], name=op.f("fk_pattern_dataset_id_dataset")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_pattern")),
        sa.UniqueConstraint("dataset_id", "shape", name=op.f("uq_pattern_dataset_id")),
    )
    op.create_index(op.f("ix_pattern_dataset_id"), "pattern", ["dataset_id"])
    op.create_index("ix_pattern_n_reads", "pattern", ["n_reads", "elapsed_s", "time_lost_s"])
    op.create_table(
        "recommendation",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("dataset_id", sa.Integer(), nullable=False),
        sa.Column("created_ns", sa.BigInteger(), nullable=False),
        sa.Column("recommendation", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["dataset_id"], ["dataset.id"], name=op.f("fk_recommendation_dataset_id_dataset")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_recommendation")),
    )
    op.create_index(op.f("ix_recommendation_dataset_id"), "recommendation", ["dataset_id"])
    op.create_table(
        "replica",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("dataset_id", sa.Integer(), nullable=False),
        sa.Column("layout", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("source_identity", sa.Text(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("stored_bytes", sa.BigInteger(), nullable=True),
        sa.Column("n_tiles", sa.BigInteger(), nullable=False),
        sa.Column("has_file", sa.Boolean(), nullable=False),
        sa.Column("created_ns", sa.BigInteger(), nullable=False),
        sa.Column("changed_ns", sa.BigInteger(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("build_s", sa.Float(), nullable=True),
        sa.Column("verified_ns", sa.BigInteger(), nullable=True),
        sa.Column("replica", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(
            ["dataset_id"], ["dataset.id"], name=op.f("fk_replica_dataset_id_dataset")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_replica")),
    )
    op.create_index(op.f("ix_replica_dataset_id"), "replica", ["dataset_id"])
    op.create_index(op.f("ix_replica_path"), "replica", ["path"])
    op.create_index(
        "ix_replica_state",
        "replica",
        ["state", "has_file", "size_bytes", "stored_bytes", "n_tiles"],
    )
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
    """Drop every table."""
    op.drop_table("trail")
    op.drop_table("replica")
    op.drop_table("recommendation")
    op.drop_table("pattern")
    op.drop_table("dataset")
    op.drop_table("stamp")
    op.drop_table("spool_file")
    op.drop_table("source_file")
    op.drop_table("job")
    op.drop_table("event")
    op.drop_table("calibration")
