BEGIN TRANSACTION;
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL,
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('0010');
CREATE TABLE calibration (
	id INTEGER NOT NULL,
	mount_point TEXT NOT NULL,
	device BIGINT NOT NULL,
	created_ns BIGINT NOT NULL,
	calibration TEXT NOT NULL, changed_ns BIGINT,
	CONSTRAINT pk_calibration PRIMARY KEY (id)
);
CREATE TABLE dataset (
	id INTEGER NOT NULL,
	source_file_id INTEGER NOT NULL,
	path TEXT NOT NULL,
	extent TEXT NOT NULL,
	element_size_bytes BIGINT NOT NULL,
	storage TEXT NOT NULL,
	data_offset_bytes BIGINT,
	chunk_shape TEXT,
	CONSTRAINT pk_dataset PRIMARY KEY (id),
	CONSTRAINT fk_dataset_source_file_id_source_file FOREIGN KEY(source_file_id) REFERENCES source_file (id),
	CONSTRAINT uq_dataset_source_file_id UNIQUE (source_file_id, path)
);
INSERT INTO "dataset" VALUES(1,1,'/cube','[24,20,16]',4,'contiguous',2048,NULL);
CREATE TABLE event (
	id INTEGER NOT NULL,
	time_ns BIGINT NOT NULL,
	subject TEXT NOT NULL,
	subject_id INTEGER,
	kind TEXT NOT NULL,
	reason TEXT NOT NULL,
	numbers TEXT NOT NULL,
	CONSTRAINT pk_event PRIMARY KEY (id)
);
INSERT INTO "event" VALUES(1,1795646795993917909,'replica',1,'building','/data/home/replicas/db8e5b645f6a39863f3f5b6a9ea885bb/run-cube-24378715-2_0_1.h5 is being built','{}');
INSERT INTO "event" VALUES(2,1795646796206412097,'replica',1,'active','every byte verified; asked for by name','{"build_s":0.48221389800005454,"size_bytes":30720.0}');
INSERT INTO "event" VALUES(3,1795646803238981036,'calibration',1,'stored','/data measured','{}');
CREATE TABLE job (
	id INTEGER NOT NULL,
	state TEXT NOT NULL,
	request TEXT NOT NULL,
	progress DOUBLE NOT NULL,
	attempts INTEGER NOT NULL,
	error TEXT NOT NULL,
	result TEXT,
	cancel_requested BOOLEAN NOT NULL,
	created_ns BIGINT NOT NULL,
	started_ns BIGINT,
	finished_ns BIGINT,
	CONSTRAINT pk_job PRIMARY KEY (id)
);
INSERT INTO "job" VALUES(1,'queued','{"kind":"ingest"}',0.0,0,'',NULL,0,1795646803117687793,NULL,NULL);
CREATE TABLE learned_model (
	id INTEGER NOT NULL,
	calibration_id INTEGER NOT NULL,
	via TEXT NOT NULL,
	cache TEXT NOT NULL,
	version INTEGER NOT NULL,
	arrays BLOB NOT NULL,
	CONSTRAINT pk_learned_model PRIMARY KEY (id),
	CONSTRAINT fk_learned_model_calibration_id_calibration FOREIGN KEY(calibration_id) REFERENCES calibration (id) ON DELETE CASCADE,
	CONSTRAINT uq_learned_model_calibration_id UNIQUE (calibration_id, via, cache)
);
CREATE TABLE pattern (
	id INTEGER NOT NULL,
	dataset_id INTEGER NOT NULL,
	shape TEXT NOT NULL,
	n_reads BIGINT NOT NULL,
	bytes_read BIGINT NOT NULL,
	elapsed_s DOUBLE NOT NULL,
	time_lost_s DOUBLE NOT NULL,
	first_ns BIGINT NOT NULL,
	last_ns BIGINT NOT NULL,
	pattern TEXT NOT NULL,
	CONSTRAINT pk_pattern PRIMARY KEY (id),
	CONSTRAINT fk_pattern_dataset_id_dataset FOREIGN KEY(dataset_id) REFERENCES dataset (id),
	CONSTRAINT uq_pattern_dataset_id UNIQUE (dataset_id, shape)
);
INSERT INTO "pattern" VALUES(1,1,'traced; regular; plane; (24,20,16)*4; axes (0,1); spans (0,1); steps (1,1,1); bits (5,5,1); read by (5,5,1)',10,19200,0.005,0.00498072561340332,1700000000000000000,1700000000009000000,'{"kind":"plane","axes":[0,1],"spanned_axes":[0,1],"steps":[1,1,1],"extent":[24,20,16],"element_size_bytes":4,"typical":{"start":[0,0,5],"stride":[1,1,1],"count":[24,20,1],"block":[1,1,1]},"call":{"start":[0,0,5],"stride":[1,1,1],"count":[24,20,1],"block":[1,1,1]},"n_reads":10,"n_calls":10,"n_elements":480,"bytes_read":19200,"elapsed_s":0.005,"time_lost_s":0.00498072561340332,"first_ns":1700000000000000000,"last_ns":1700000000009000000,"processes":["host-4194305-1000"],"n_concurrent":1,"n_redirected":0,"n_collective":0,"irregular":false,"stated":false,"places":[{"box":{"start":[0,0,3],"extent":[24,20,2]},"n_calls":2},{"box":{"start":[0,0,8],"extent":[24,20,2]},"n_calls":2},{"box":{"start":[0,0,0],"extent":[24,20,1]},"n_calls":1},{"box":{"start":[0,0,1],"extent":[24,20,1]},"n_calls":1},{"box":{"start":[0,0,2],"extent":[24,20,1]},"n_calls":1},{"box":{"start":[0,0,5],"extent":[24,20,1]},"n_calls":1},{"box":{"start":[0,0,6],"extent":[24,20,1]},"n_calls":1},{"box":{"start":[0,0,7],"extent":[24,20,1]},"n_calls":1}]}');
CREATE TABLE query_recommendation (
	id INTEGER NOT NULL,
	dataset_id INTEGER NOT NULL,
	created_ns BIGINT NOT NULL,
	recommendation TEXT NOT NULL,
	CONSTRAINT pk_query_recommendation PRIMARY KEY (id),
	CONSTRAINT fk_query_recommendation_dataset_id_dataset FOREIGN KEY(dataset_id) REFERENCES dataset (id)
);
CREATE TABLE recommendation (
	id INTEGER NOT NULL,
	dataset_id INTEGER NOT NULL,
	created_ns BIGINT NOT NULL,
	recommendation TEXT NOT NULL,
	CONSTRAINT pk_recommendation PRIMARY KEY (id),
	CONSTRAINT fk_recommendation_dataset_id_dataset FOREIGN KEY(dataset_id) REFERENCES dataset (id)
);
INSERT INTO "recommendation" VALUES(1,1,1795646796300191991,'{"candidates":[{"order":null,"predicted_s_now":0.0026409600000000004,"predicted_s":0.0026409600000000004,"benefit_s":0.0,"benefit_s_per_day":0.0,"speedup":1.0,"confidence":1.0,"size_bytes":0,"build_cost_s":0.0,"break_even_reads":null,"advised":true,"reason":"leave it: no read would be faster","command":null,"patterns":[{"pattern":"plane fixing axis 2","n_reads":10,"seconds_now":0.0026409600000000004,"seconds_then":0.0026409600000000004,"served_by_replica":false}]},{"order":[0,2,1],"predicted_s_now":0.0026409600000000004,"predicted_s":0.0026409600000000004,"benefit_s":0.0,"benefit_s_per_day":0.0,"speedup":1.0,"confidence":0.5,"size_bytes":30720,"build_cost_s":0.20012288,"break_even_reads":null,"advised":false,"reason":"order 0,2,1: no read would be faster","command":"sds reorganize /data/run.h5:/cube --order 0,2,1","patterns":[{"pattern":"plane fixing axis 2","n_reads":10,"seconds_now":0.0026409600000000004,"seconds_then":0.0026409600000000004,"served_by_replica":false}]},{"order":[1,0,2],"predicted_s_now":0.0026409600000000004,"predicted_s":0.0026409600000000004,"benefit_s":0.0,"benefit_s_per_day":0.0,"speedup":1.0,"confidence":0.5,"size_bytes":30720,"build_cost_s":0.20012288,"break_even_reads":null,"advised":false,"reason":"order 1,0,2: no read would be faster","command":"sds reorganize /data/run.h5:/cube --order 1,0,2","patterns":[{"pattern":"plane fixing axis 2","n_reads":10,"seconds_now":0.0026409600000000004,"seconds_then":0.0026409600000000004,"served_by_replica":false}]},{"order":[1,2,0],"predicted_s_now":0.0026409600000000004,"predicted_s":0.0026409600000000004,"benefit_s":0.0,"benefit_s_per_day":0.0,"speedup":1.0,"confidence":0.5,"size_bytes":30720,"build_cost_s":0.20012288,"break_even_reads":null,"advised":false,"reason":"order 1,2,0: no read would be faster","command":"sds reorganize /data/run.h5:/cube --order 1,2,0","patterns":[{"pattern":"plane fixing axis 2","n_reads":10,"seconds_now":0.0026409600000000004,"seconds_then":0.0026409600000000004,"served_by_replica":false}]},{"order":[2,1,0],"predicted_s_now":0.0026409600000000004,"predicted_s":0.0026409600000000004,"benefit_s":0.0,"benefit_s_per_day":0.0,"speedup":1.0,"confidence":0.5,"size_bytes":30720,"build_cost_s":0.20012288,"break_even_reads":null,"advised":false,"reason":"order 2,1,0: no read would be faster","command":"sds reorganize /data/run.h5:/cube --order 2,1,0","patterns":[{"pattern":"plane fixing axis 2","n_reads":10,"seconds_now":0.0026409600000000004,"seconds_then":0.0026409600000000004,"served_by_replica":false}]}],"calibrated":false,"model_original":"builtin","model_replica":"builtin","reason":"leave it: no read would be faster (uncalibrated)","n_reads":10,"interval_original":8.613063701832484,"interval_replica":8.613063701832484}');
CREATE TABLE "replica" (
	id INTEGER NOT NULL,
	dataset_id INTEGER NOT NULL,
	layout TEXT NOT NULL,
	state TEXT NOT NULL,
	path TEXT NOT NULL,
	source_identity TEXT NOT NULL,
	size_bytes BIGINT NOT NULL,
	stored_bytes BIGINT,
	n_tiles INTEGER NOT NULL,
	has_file BOOLEAN NOT NULL,
	created_ns BIGINT NOT NULL,
	changed_ns BIGINT NOT NULL,
	reason TEXT NOT NULL,
	build_s DOUBLE,
	verified_ns BIGINT,
	replica TEXT,
	CONSTRAINT pk_replica PRIMARY KEY (id),
	CONSTRAINT fk_replica_dataset_id_dataset FOREIGN KEY(dataset_id) REFERENCES dataset (id)
);
INSERT INTO "replica" VALUES(1,1,'{"order":[2,0,1],"chunk_shape":null,"filters":[],"region":{"start":[0,0,0],"extent":[24,20,16]},"sort":null,"segments":null}','active','/data/home/replicas/db8e5b645f6a39863f3f5b6a9ea885bb/run-cube-24378715-2_0_1.h5','{"inode":10061228,"size_bytes":36864,"mtime_ns":1795646781475884385,"ctime_ns":1795646791478839808,"instance":3232474817736878918}',30720,30720,0,1,1795646795966309179,1795646796206372738,'every byte verified; asked for by name',4.82213898000054541626e-01,1795646796206372738,'{"path":"/data/home/replicas/db8e5b645f6a39863f3f5b6a9ea885bb/run-cube-24378715-2_0_1.h5","dataset_path":"/cube","source_path":"/data/run.h5","source_identity":{"inode":10061228,"size_bytes":36864,"mtime_ns":1795646781475884385,"ctime_ns":1795646791478839808,"instance":3232474817736878918},"order":[2,0,1],"extent":[24,20,16],"region":{"start":[0,0,0],"extent":[24,20,16]},"chunk_shape":null,"filters":[],"element_size_bytes":4,"type_crc32c":2772815331,"data_offset_bytes":4096,"size_bytes":30720,"stored_bytes":30720,"decode_s_per_byte":0.0,"source_chunk_shape":null,"source_stored_bytes":30720,"source_decode_s_per_byte":0.0,"identity":{"inode":10061295,"size_bytes":41016,"mtime_ns":1795646796160453122,"ctime_ns":1795646796171884283,"instance":0},"metadata_crc32c":2111973754,"block_size_bytes":1048576,"created":"2026-11-25T22:46:36+00:00","sds_version":"0.1.0","build_s":0.0406475990000672,"left_out":[],"sort":null,"segments":null}');
CREATE TABLE source_file (
	id INTEGER NOT NULL,
	path TEXT NOT NULL,
	identity TEXT NOT NULL,
	seen_ns BIGINT NOT NULL, published TEXT,
	CONSTRAINT pk_source_file PRIMARY KEY (id),
	CONSTRAINT uq_source_file_path UNIQUE (path)
);
INSERT INTO "source_file" VALUES(1,'/data/run.h5','{"inode":10061228,"size_bytes":36864,"mtime_ns":1795646781475884385,"ctime_ns":1795646791478839808,"instance":0}',1795646795316463149,'0');
CREATE TABLE "spool_file" (
	id INTEGER NOT NULL,
	name TEXT NOT NULL,
	inode TEXT NOT NULL,
	offset_bytes BIGINT NOT NULL,
	size_bytes BIGINT NOT NULL,
	complete BOOLEAN NOT NULL,
	n_reads BIGINT NOT NULL,
	dropped_reads BIGINT NOT NULL,
	changed_ns BIGINT NOT NULL,
	problem TEXT NOT NULL,
	CONSTRAINT pk_spool_file PRIMARY KEY (id),
	CONSTRAINT uq_spool_file_name UNIQUE (name, inode)
);
INSERT INTO "spool_file" VALUES(1,'host-4194305-1000.sdst-spool','10061275',200,200,1,10,0,1795646795236610402,'');
CREATE TABLE stamp (
	name TEXT NOT NULL,
	value TEXT NOT NULL,
	CONSTRAINT pk_stamp PRIMARY KEY (name)
);
INSERT INTO "stamp" VALUES('published','10061253:1795646796253074206 10061259:1795646791519884384');
CREATE TABLE trail (
	id INTEGER NOT NULL,
	dataset_id INTEGER NOT NULL,
	trail BLOB NOT NULL,
	CONSTRAINT pk_trail PRIMARY KEY (id),
	CONSTRAINT fk_trail_dataset_id_dataset FOREIGN KEY(dataset_id) REFERENCES dataset (id) ON DELETE CASCADE,
	CONSTRAINT uq_trail_dataset_id UNIQUE (dataset_id)
);
INSERT INTO "trail" VALUES(1,1,X'789CAB564AAD2849CD2B51B252883632D1513032D05130348BD551502A28CA4F4E2D2E4E2D06492995E5EA9A185A9A181B98EA1A1A181828C5D67231501D6899FD9B335DDCC1891FCCA39466A4BE03870460A4324D6D770D56F324A86C9E0895CD1BECE137D8CD0300DF7417DB');
CREATE INDEX ix_calibration_mount_point_created_ns ON calibration (mount_point, created_ns);
CREATE INDEX ix_event_time_ns ON event (time_ns);
CREATE INDEX ix_job_state ON job (state);
CREATE INDEX ix_dataset_source_file_id ON dataset (source_file_id);
CREATE INDEX ix_pattern_dataset_id ON pattern (dataset_id);
CREATE INDEX ix_recommendation_dataset_id ON recommendation (dataset_id);
CREATE INDEX ix_query_recommendation_dataset_id ON query_recommendation (dataset_id);
CREATE INDEX ix_source_file_published ON source_file (published);
CREATE INDEX ix_pattern_n_reads ON pattern (n_reads, elapsed_s, time_lost_s);
CREATE INDEX ix_replica_state ON replica (state, has_file, size_bytes, stored_bytes, n_tiles);
CREATE INDEX ix_replica_path ON replica (path);
CREATE INDEX ix_replica_dataset_id ON replica (dataset_id);
COMMIT;
